"""The home of the tour, and the live run in it."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from contextlib import closing
from typing import Any

from kgops.errors import Unavailable, Usage
from kgops.jobs import events
from kgops.jobs.files import read_json, write_json
from kgops.settings import Home, find_home
from kgops.supervisor.control import stop_run, wait_for_end
from kgops.tour import SAMPLE
from storage import reports, run_list, runs
from storage.database import Connection, open_writer

_EVERY_S = 2.0


def main() -> None:
    """`python -m kgops.tour.home MINUTES`; appends its events to the file named by KGOPS_EVENTS."""
    points = max(int(float(sys.argv[1]) * 60 / _EVERY_S), 1)
    print(f"({SAMPLE}): nothing is trained here", flush=True)
    with open(os.environ["KGOPS_EVENTS"], "ab", buffering=0) as file:  # noqa: PTH123 - unbuffered, to append
        for n in range(points):
            now, value = time.time(), 0.41 + 1.89 * math.exp(-4 * n / points) * (1 + 0.04 * math.sin(7 * n))
            file.write(events.write(events.METRIC, now, name="loss", value=value, step=n + 1))
            progress = {"done": n + 1, "total": points, "unit": "step", "rate": 1 / _EVERY_S}
            file.write(events.write(events.PROGRESS, now, phase=SAMPLE, **progress))
            print(f"INFO step {n + 1} of {points}  loss {value:.4f}", flush=True)
            time.sleep(_EVERY_S)


if __name__ == "__main__":
    main()


TAG = "tour"  # of every run that the tour creates
_MARKER = "tour.json"
_KEY = "kgops_tour"
_SUFFIX = "-tour"
_GRACE_S = 2.0
# The files of a home; a tour with any other file is not removed.
_TOUR_FILES = (_MARKER, "runs", "pending", "bench.lock", "counts.json", "starts.json", "serve.log")


def default_home() -> Home:
    """The folder beside the usual home; the usual home where it is a tour."""
    usual = find_home()
    if is_tour(usual):
        return usual
    return Home(usual.path.with_name(usual.path.name + _SUFFIX))


def is_tour(home: Home) -> bool:
    return _KEY in _marker(home)


def _marker(home: Home) -> dict[str, Any]:
    """The marker's contents; empty where there is none."""
    table = read_json(home.path / _MARKER)
    return table if isinstance(table, dict) else {}


def begin(home: Home) -> None:
    """Creates the folder and its marker. Raises Usage where the folder is not empty."""
    if is_tour(home):
        state = "already" if _marker(home).get("complete") else "that was not finished"
        raise Usage(
            f"there is a tour in {home.path} {state}",
            f"look at it: KGOPS_HOME={home.path} kgops; or remove it first: kgops demo --remove-tour",
        )
    usual, path = find_home().path.resolve(), home.path.resolve()
    if path == usual or usual in path.parents or path in usual.parents:
        raise Usage(
            f"{home.path} is your own home, or contains it, or is inside it", "choose a separate folder"
        )
    if home.path.is_symlink() or (home.path.exists() and not home.path.is_dir()):
        raise Usage(f"{home.path} is not a folder", "name one that is empty or does not exist: --home DIR")
    try:
        if home.path.exists() and any(home.path.iterdir()):
            raise Usage(
                f"{home.path} is not empty", "name a folder that is empty or does not exist: --home DIR"
            )
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.path.chmod(0o700)
        _write_marker(home, complete=False)
    except OSError as error:
        raise Unavailable(f"cannot make {home.path}: {os.strerror(error.errno or 0)}") from error


def finish(home: Home) -> None:
    _write_marker(home, complete=True)


def _write_marker(home: Home, *, complete: bool) -> None:
    text = "A tour of kgops: this folder holds sample data. `kgops demo --remove-tour` removes it."
    write_json(home.path / _MARKER, {_KEY: 1, "what": text, "complete": complete})


def own_runs(conn: Connection) -> list[int]:
    """Runs that a person started in the tour's home."""
    return [run for run in run_list.ordered(conn) if TAG not in reports.tags(conn, run)]


def remove(home: Home, *, own_too: bool) -> None:
    """Stops the tour's runs and removes the folder, the marker last, so that an interrupted removal can be repeated."""
    _must_be_only_ours(home)
    if home.database.exists():
        with closing(open_writer(home.database)) as conn:
            if (own := own_runs(conn)) and not own_too:
                listed = ", ".join(map(str, own[:5])) + (", …" if len(own) > 5 else "")
                raise Usage(
                    f"in {home.path} there are runs of your own: {listed}",
                    "keep them: kgops export RUN --to json --output FILE; or pass --yes to remove them, too",
                )
            _stop_all(home, conn)
    for path in home.path.iterdir():
        if path.name == _MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # SQLite removes its side files when the last supervisor leaves
    (home.path / _MARKER).unlink()
    home.path.rmdir()


def _must_be_only_ours(home: Home) -> None:
    if not is_tour(home) or home.path.is_symlink():
        raise Usage(
            f"there is no tour in {home.path}", "`kgops demo --tour` creates one; --home names another folder"
        )
    strange = sorted(path.name for path in home.path.iterdir() if not _is_ours(path.name))
    if strange:
        raise Usage(
            f"{home.path} also contains {strange[0]!r:.80}, which is not part of the tour",
            "move it away first",
        )


def _is_ours(name: str) -> bool:
    """Whether a file belongs to a tour, SQLite's side files and half-written markers included."""
    return name in _TOUR_FILES or name.startswith(("kgops.db", f".{_MARKER}."))


def _stop_all(home: Home, conn: Connection) -> None:
    """Stops queued runs first: otherwise the end of one run would start the next."""
    going = runs.in_states(conn, runs.UNFINISHED)
    for run in sorted(going, key=lambda one: (one.state not in runs.WAITING, -one.id)):
        stop_run(home, conn, run, _GRACE_S)
    for run in going:
        wait_for_end(home, conn, run.id)
