"""Damages the database of a home many times over, and runs commands on it; prints what happened as JSON.

`python tests/damaging.py FOLDER COUNT [SEED]`. Everything runs in this process: whoever starts it guards it.
"""

import faulthandler
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from screen_home import fill, hold

from kgops.cli import main
from kgops.jobs import toml
from kgops.jobs.files import write_durably, write_json
from kgops.settings import Home
from kgops.supervisor.plan_file import Plan, as_table
from kgops.supervisor.run_folder import RunFolder
from screens.feed_reader import FeedReader
from screens.feed_state import DASHBOARD, OneRun
from storage import run_list, runs
from storage.database import open_writer
from storage.runs import Run

_PAGE = 4096
_HUNG_S = 120


class Hung(BaseException):
    """A command did not end."""


def make_home(folder: Path) -> Path:
    """Nine runs; the last changes are in the write-ahead log alone."""
    home = folder / "home"
    for name in ("", "runs", "pending"):
        (home / name).mkdir(mode=0o700)
    conn = open_writer(home / "kgops.db")
    fill(conn, home)
    runs.end(conn, 9, state="cancelled", reason="stopped while queued", exit_code=None, ended_at=2e9)
    for run in run_list.page(conn):
        _write_folder(conn, home, run)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.execute("UPDATE run SET rate = 0.5 WHERE id = 7")
    conn.execute("INSERT INTO note (run, at, text) VALUES (1, 1.0, 'only in the log')")
    shutil.copy(home / "kgops.db", folder / "kgops.db")
    shutil.copy(home / "kgops.db-wal", folder / "kgops.db-wal")
    conn.close()
    return home


def _write_folder(conn: sqlite3.Connection, home: Path, run: Run) -> None:
    """The run's plan in its row and folder, as a launch leaves it."""
    spec, folder = runs.spec(conn, run.id), RunFolder(home / "runs" / run.folder)
    columns: dict[str, Any] = {
        name: getattr(run, name) for name in ("workload", "label", "profile", "gpu_request")
    }
    columns |= {name: getattr(run, name) for name in ("submitted_at", "reserved_mib", "predicted_mib")}
    rest: dict[str, Any] = {
        "command": ["python", "-m", "kgops.maths.train.worker"],
        "cwd": "/srv",
        "exclusive": False,
        "attempts": 3,
    }
    parts = {"key": "a key"} | {
        name: value for name, value in spec.plan.items() if name in Plan.__dataclass_fields__
    }
    plan = Plan(number=run.id, grace_s=10.0, log_mib=64.0, **columns, **rest, **parts)
    runs.replan(conn, run.id, job=spec.job, plan={**as_table(plan), **spec.plan})
    write_json(folder.plan, as_table(plan))
    write_json(folder.environment, spec.environment)
    write_durably(folder.job, toml.dumps(spec.job).encode())


def damage(
    database: bytes, log: bytes, texts: list[bytes], chance: random.Random
) -> tuple[str, bytes, bytes]:
    """The name of what was done, and both files after it."""
    kind = chance.choice(["text", "text", "text", "byte", "byte", "header", "cells", "page", "swap", "log"])
    changed, pages = bytearray(database), len(database) // _PAGE
    if kind == "log":
        at = chance.randrange(len(log))
        return kind, database, log[:at] + bytes([log[at] ^ chance.randrange(1, 256)]) + log[at + 1 :]
    if kind in ("page", "swap"):
        one, other = (chance.randrange(pages) * _PAGE for _ in range(2))
        kept = changed[one : one + _PAGE]
        changed[one : one + _PAGE] = changed[other : other + _PAGE] if kind == "swap" else bytes(_PAGE)
        changed[other : other + _PAGE] = kept if kind == "swap" else changed[other : other + _PAGE]
        return kind, bytes(changed), log
    if kind == "text":
        text = chance.choice(texts)
        at = database.find(text, chance.randrange(len(database)))
        at = (at if at >= 0 else database.find(text)) + chance.randrange(len(text))
    elif kind == "byte":
        at = chance.randrange(len(database))
    elif kind == "header":
        at = chance.choice([0, chance.randrange(pages) * _PAGE]) + chance.randrange(100)
    else:  # the end of a page has its first cells, with the types of their columns
        at = (1 + chance.randrange(pages)) * _PAGE - 1 - chance.randrange(300)
    changed[max(at, 0)] = chance.choice(
        [0, 0xFF, changed[at] ^ (1 << chance.randrange(8)), chance.randrange(256)]
    )
    return kind, bytes(changed), log


def texts_of(path: Path, database: bytes) -> list[bytes]:
    """The texts of all rows, as they lie in the file."""
    conn = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    names = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {
        cell.encode()
        for name in names
        if not name.startswith(("sqlite", "run_text"))
        for row in conn.execute(f"SELECT * FROM {name}")
        for cell in row
        if isinstance(cell, str)
    }
    conn.close()
    return sorted(text for text in found if len(text) > 2 and text in database)


def commands(out: Path, number: int) -> dict[str, Callable[[], Any]]:
    words = {
        "runs": "runs",
        "show 1": "show 1",
        "show 2 --json": "show 2 --json",
        "logs": "logs 7",
        "compare": "compare 1 2",
        "influences": "influences 3",
        "doctor": "doctor",
        "stop": "stop 6",
        "gpus": "gpus --json",
        "export": f"export 1 3 --to json --output {out}/out.json --force",
        "report": f"report 1 --output {out}/out.html --force",
    }
    others = (
        "runs state:succeeded mrr>0.1 --metric mrr --json",
        "show 5",
        "stop 7 --no-wait",
        "suggest train --dataset nations",
    )
    words["another"] = others[number % len(others)]
    return {name: lambda text=text: main(text.split()) for name, text in words.items()} | {"feed": feed}


def feed() -> None:
    """What the dashboard reads for its first screen and for a run's page."""
    reader = FeedReader(Home(Path(os.environ["KGOPS_HOME"])), 1.0, True)
    try:
        for wanted in (DASHBOARD, OneRun(1), OneRun(7)):
            state = reader.read(wanted, afresh=True)
            print(state.error_text or state)
    finally:
        reader.close()


@contextmanager
def alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        faulthandler.dump_traceback(all_threads=True)
        raise Hung

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(_HUNG_S)
    try:
        yield
    finally:
        signal.alarm(0)


def attempt(call: Callable[[], Any]) -> tuple[str, str, str]:
    """How the call ended: shown, refused, fault or hung; its output; its error or traceback."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    try:
        with redirect_stdout(out), redirect_stderr(err), alarm():
            code = call()
    except Hung:
        return "hung", "", "no answer"
    except Exception:
        return "fault", "", traceback.format_exc()
    out.seek(0)
    err.seek(0)
    said = out.read()
    return "refused" if code and not said else "shown", said, err.read()


def run(folder: Path, count: int, seed: int) -> dict[str, Any]:
    home = make_home(folder)
    os.environ["KGOPS_HOME"] = str(home)
    database, log = ((folder / name).read_bytes() for name in ("kgops.db", "kgops.db-wal"))
    texts = texts_of(folder / "kgops.db", database)
    held = hold(home)
    ends: Counter[str] = Counter()
    faults: list[dict[str, str]] = []
    spent: dict[str, float] = {}
    for number in range(seed, seed + count):
        kind, damaged, damaged_log = damage(database, log, texts, random.Random(number))
        for name, call in commands(folder, number).items():
            for left in home.glob("kgops.db*"):
                left.unlink()
            (home / "kgops.db").write_bytes(damaged)
            (home / "kgops.db-wal").write_bytes(damaged_log)
            begun = time.perf_counter()
            end, _, err = attempt(call)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begun
            ends[f"{name}: {end}"] += 1
            if end in ("fault", "hung"):
                faults.append(
                    {"damage": f"{number} ({kind})", "command": name, "end": end, "error": err[-3000:]}
                )
    for fd in held:
        os.close(fd)
    return {
        "ends": dict(sorted(ends.items())),
        "faults": faults,
        "spent": {k: round(v, 2) for k, v in spent.items()},
    }


if __name__ == "__main__":
    base = Path(sys.argv[1])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    json.dump(run(base, int(sys.argv[2]), seed), sys.stdout, indent=1)
