"""Whatever has happened to a file: it is imported as a run that can be shown, or refused by its name, and
nothing of it is kept."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Console
from test_import_group_scores import TREATS, write_scores

from kgops.errors import KgopsError
from kgops.interchange.importing import import_from
from kgops.present.log_lines import newest_lines
from kgops.present.report_page import page
from kgops.present.run_detail import read_run_detail
from kgops.settings import Home
from kgops.supervisor.run_json import read_runs, write_runs
from storage import runs, transfer
from storage.database import integrity_problems

ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1 << 70,
        -(1 << 63),
        1e308,
        "",
        "x",
        "\0",
        "é" * 3,
        "../..",
        [],
        [[]],
        {},
        {"a": None},
    ),
    *("NaN", "Infinity", "succeeded", "running", 0.5, "\ud800", "results/../../x"),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value at which there could be another."""
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def with_odd_node(text: bytes, generator: random.Random) -> bytes:
    """Valid JSON in which one value is another, is missing, or stands twice."""
    whole = json.loads(text)
    *way, last = generator.choice(list(places(whole)))
    node = whole
    for key in way:
        node = node[key]
    act = generator.randrange(4)
    if act == 0:
        del node[last]
    elif act == 1 and isinstance(node, list):
        node.append(node[last])
    else:
        node[last] = generator.choice(ODD)
    return json.dumps(whole).encode()


def cut(text: bytes, generator: random.Random) -> bytes:
    return text[: generator.randrange(len(text))]


def flipped(text: bytes, generator: random.Random) -> bytes:
    out = bytearray(text)
    for _ in range(generator.choice((1, 1, 4))):
        out[generator.randrange(len(out))] = generator.randrange(256)
    return bytes(out)


def spliced(text: bytes, generator: random.Random) -> bytes:
    a, b, c = sorted(generator.randrange(len(text)) for _ in range(3))
    return text[:b] + text[a:c] + text[c:]


def try_it(home: Home, conn: sqlite3.Connection, target: Path, named: str) -> bool:
    """Whether it was imported; what was is whole and can be shown, what was not left nothing."""
    before, folders = runs.count(conn), set(home.runs.iterdir())
    try:
        found = import_from(home, conn, target, again=True)
    except KgopsError as error:
        assert named in error.message, error.message
        assert runs.count(conn) == before and set(home.runs.iterdir()) == folders
        return False
    for one in found:
        assert one.number is not None
        rows = transfer.read_rows(conn, one.number)
        assert rows is not None and rows.run["state"] in runs.ENDED
        text = "".join(write_runs(iter([rows])))
        (again,) = read_runs(conn, text.encode(), "again")
        assert "".join(write_runs(iter([again]))).partition("runs")[2] == text.partition("runs")[2]
        shown = read_run_detail(home, conn, one.number)
        assert shown is not None
        page(shown, newest_lines(shown.path / "worker.log", 200))
    return True


@pytest.mark.parametrize("mutate", [with_odd_node, cut, flipped, spliced])
def test_a_mutated_export_is_imported_whole_or_refused_by_name(
    run_cli: Console,
    conn: sqlite3.Connection,
    tmp_path: Path,
    mutate: Callable[[bytes, random.Random], bytes],
) -> None:
    assert run_cli("run", "--tag", "x", "exec", "--", "true").code == 0
    assert run_cli("export", "1", "--to", "json", "--output", tmp_path / "x.json").code == 0
    good = (tmp_path / "x.json").read_bytes()
    imported = 0
    for seed in range(40):
        path = tmp_path / f"mutant-{seed}.json"
        path.write_bytes(mutate(good, random.Random(seed)))
        imported += try_it(Home(run_cli.home), conn, path, str(path))
    assert integrity_problems(conn) == []
    if mutate is with_odd_node:
        assert imported > 5  # else nothing but refusals was tried


def test_a_mutated_output_folder_is_imported_whole_or_refused_by_name(
    home: Path, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    good.mkdir()
    history = [{"epoch": n, "loss": 1 / n, "valid": {"both": {"mrr": 0.1 * n}}} for n in range(1, 4)]
    told = {
        "config": {"model": {"dim": 2}},
        "training_history": history,
        "test_results": {"both": {"mrr": 0.3}},
    }
    lines = [{"index": 0, "triple": dict(zip(("head", "relation", "tail"), TREATS, strict=True))}]
    for name, body in {**told, "batch_tracin_summary": {"total_triples": 1, "results": lines}}.items():
        (good / f"{name}.json").write_text(json.dumps(body))
    write_scores(good / "triple_000_tracin.csv", TREATS, [0.5, -0.5, 1e-9])
    names = sorted(path.name for path in good.iterdir())
    imported = 0
    for seed in range(100):
        generator = random.Random(seed)
        bad = shutil.copytree(good, tmp_path / f"bad-{seed}")
        path = bad / generator.choice(names)
        ways = (cut, flipped, spliced) if path.suffix == ".csv" else (with_odd_node, cut, flipped, spliced)
        path.write_bytes(generator.choice(ways)(path.read_bytes(), generator))
        imported += try_it(Home(home), conn, bad, str(path))
    assert 15 < imported < 100
    assert integrity_problems(conn) == []


def test_a_mutated_run_folder_is_imported_or_refused_by_name(
    run_cli: Console, conn: sqlite3.Connection, tmp_path: Path
) -> None:
    code = 'import os; open(os.environ[\'KGOPS_EVENTS\'], \'a\').write(\'{"event": "note", "text": "x"}\\n\')'
    assert run_cli("run", "exec", "--", "python3", "-c", code).code == 0
    good = run_cli.folder(1)
    names = sorted(path.relative_to(good).as_posix() for path in good.rglob("*") if path.is_file())
    imported = 0
    for seed in range(40):
        generator = random.Random(seed)
        bad = shutil.copytree(good, tmp_path / f"bad-{seed}")
        path = bad / generator.choice(names)
        text = path.read_bytes()
        ways = [cut, flipped, spliced] + ([with_odd_node] * 3 if path.suffix == ".json" else [])
        path.write_bytes(generator.choice(ways)(text, generator) if text else b"\xff{")
        imported += try_it(Home(run_cli.home), conn, bad, str(bad))
    assert imported > 10
    assert integrity_problems(conn) == []
