"""Memory of a worker's process before it reads data: it depends on the build of torch, so it is measured once here."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from kgops import __version__
from kgops.jobs.files import read_json, write_json
from kgops.jobs.job import Job
from kgops.workloads.registry import WORKLOADS

FILE = "starts.json"  # in the home
START = "--start"  # a worker called with it prints the memory of its start, and ends
_ENGINES = {"pykeen": ("kgops.maths.train.pykeen_engine",)}  # what a worker imports for it
_LONGEST_S = 120.0


def start_mib(job: Job, remembered: Path | None) -> float | None:
    """MiB, measured by starting such a worker where `remembered`, a file, does not have it. None: not measured."""
    engine = job.settings.get("engine") or "kgops"
    key = f"{job.workload} {engine} {_environment()}"
    known = (read_json(remembered) if remembered is not None else None) or {}
    if not isinstance(known, dict) or not isinstance(known.get(key), int | float):
        measured = _measure(str(WORKLOADS[job.workload].module), engine)
        if measured is None or remembered is None:
            return measured
        known = {**(known if isinstance(known, dict) else {}), key: measured}
        write_json(remembered, known)
    return float(known[key])


def _environment() -> str:
    """What another installation or machine has otherwise."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "n/a"
    return f"kgops {__version__} torch {torch} {sys.prefix} on {platform.node()}"


@cache
def _measure(module: str, engine: str) -> float | None:
    """Starts it as a supervisor does. None too where it does not answer in time, as on a machine without a free CPU."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, START, *_ENGINES.get(engine, ())],
            env={**os.environ, "KGOPS_RUN_FOLDER": os.devnull},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        return float(done.stdout)
    except (ValueError, OSError, subprocess.TimeoutExpired):
        return None
