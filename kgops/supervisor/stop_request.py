"""Asking a run to stop: a slot in its folder, which needs no database, no room on the disk and no living process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from kgops.supervisor import preallocated_record
from kgops.supervisor.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Stop:
    grace_s: float
    at: float


def request_stop(folder: RunFolder, grace_s: float) -> None:
    """Asks; whoever supervises the run sees it within a tick. Asking again changes the grace."""
    preallocated_record.fill(folder.stop, {"grace_s": grace_s, "at": time.time()})


def read_stop(folder: RunFolder) -> Stop | None:
    """None where nobody asked."""
    table = preallocated_record.read(folder.stop)
    if table is None:
        return None
    try:
        stop = Stop(float(table["grace_s"]), float(table["at"]))
    except (TypeError, KeyError, ValueError):
        return Stop(0.0, time.time())  # a whole slot: somebody did ask
    return stop if math.isfinite(stop.grace_s) else Stop(0.0, stop.at)
