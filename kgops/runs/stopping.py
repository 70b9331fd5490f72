"""Asking a run to stop: a small file in its folder, which needs no database and outlives every process."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kgops.jobs.files import read_json, write_json
from kgops.runs.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Stop:
    grace_s: float
    at: float


def request_stop(folder: RunFolder, grace_s: float) -> None:
    """Asks; whoever supervises the run sees it within a tick. Asking again changes the grace."""
    write_json(folder.stop, {"grace_s": grace_s, "at": time.time()})


def read_stop(folder: RunFolder) -> Stop | None:
    if not folder.stop.exists():
        return None
    table = read_json(folder.stop)
    try:
        return Stop(float(table["grace_s"]), float(table["at"]))
    except (TypeError, KeyError, ValueError):
        return Stop(0.0, time.time())  # the file is there: somebody did ask
