"""Start and stop of a benchmark from a screen: the process of a `kgops bench` command, in the background."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from kgops.errors import Usage
from kgops.jobs.files import open_regular
from kgops.settings import Home
from kgops.supervisor import locks
from kgops.supervisor.control import stop_run
from storage import benches, run_list, runs
from storage.database import Connection

_VERBS = ("matrix", "claims")


def is_running(home: Home) -> bool:
    """Whether a benchmark runs in this home, wherever it was started."""
    return locks.is_held(home.path / "bench.lock")


def can_start(command: str) -> bool:
    """Whether it is a command of `kgops bench` that measures."""
    words = _words(command)
    return words[:2] == ["kgops", "bench"] and words[2:3] != [] and words[2] in _VERBS


def start(home: Home, conn: Connection, bench: int | None, command: str) -> subprocess.Popen[bytes]:
    """Starts the command, in the folder in which the benchmark was started. It outlives this process; what it prints
    is in the home's bench.log."""
    if is_running(home):
        raise Usage("another benchmark is running in this home", "press s to stop it")
    known = benches.get(conn, bench) if bench is not None else None
    folder = Path(known.plan.get("cwd") or ".") if known is not None else Path()
    if not folder.is_dir():
        raise Usage(f"{folder} no longer exists", f"in the folder of the job file:  {command}")
    output = open_regular(home.path / "bench.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kgops", *_words(command)[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, "KGOPS_HOME": str(home.path)},
            start_new_session=True,
        )
    finally:
        os.close(output)


def trouble(home: Home) -> str:
    """The error that the last started benchmark printed, or its last line."""
    try:
        lines = (home.path / "bench.log").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((one for one in lines if one.startswith("Error: ")), lines[-1] if lines else "")


def stop(home: Home, conn: Connection) -> str:
    """Stops the current run of the running benchmark, which ends with it. Finished pairs are kept."""
    if not is_running(home):
        raise Usage("no benchmark is running in this home")
    for heading in benches.headings(conn):
        if heading.ended_at is not None:
            continue
        wanted = run_list.Filter(states=runs.UNFINISHED, tag=f"bench-{heading.number}")
        for run in run_list.page(conn, wanted):
            stop_run(home, conn, run, None)
            return f"asked benchmark {heading.number} to stop, by its run {run.id}; x continues it"
    raise Usage("the benchmark is between two of its runs", "press s again")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []
