"""Requests a run's stop by a slot in its folder, without the database, disk space or a live process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from kgops.supervisor import run_folder
from kgops.supervisor.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Stop:
    grace_s: float
    at: float


def request_stop(folder: RunFolder, grace_s: float) -> None:
    """Requests a stop; the supervisor sees it within a tick. A second request changes the grace."""
    run_folder.fill(folder.stop, {"grace_s": grace_s, "at": time.time()})


def read_stop(folder: RunFolder) -> Stop | None:
    """The stop request; None if there is none."""
    table = run_folder.read(folder.stop)
    if table is None:
        return None
    try:
        stop = Stop(float(table["grace_s"]), float(table["at"]))
    except (TypeError, KeyError, ValueError):
        return Stop(0.0, time.time())  # a written slot: a stop was requested
    return stop if math.isfinite(stop.grace_s) else Stop(0.0, stop.at)
