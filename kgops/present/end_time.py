"""When a planned run would end: how long it waits for the runs before it, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import Suggestion
from kgops.present.overview import eta_s
from kgops.settings import Home
from kgops.supervisor.gpu_room import others_mib, read_gpus, shares_of, usable_mib
from kgops.workloads.registry import workload_of
from storage import runs
from storage.database import Connection
from storage.runs import Run

_OF_NOBODY_MIB = 64  # that a driver may hold without any process


class EndTime(NamedTuple):
    """Seconds from now; None where unknown. `is_measured`: by runs on this machine, otherwise only by data sheets."""

    begins_in_s: float | None
    takes_s: float | None
    is_measured: bool

    @property
    def ends_in_s(self) -> float | None:
        known = self.begins_in_s is not None and self.takes_s is not None
        return (self.begins_in_s or 0.0) + (self.takes_s or 0.0) if known else None


def end_time(placed: Placement, home: Home, conn: Connection | None, now: float) -> EndTime:
    suggestion = placed.planned.suggestion
    takes_s, is_measured = (None, False) if suggestion is None else _duration(suggestion)
    return EndTime(_begins_in_s(placed, home, conn, now), takes_s, is_measured)


def _duration(suggestion: Suggestion) -> tuple[float | None, bool]:
    """Of the whole run, not of an epoch."""
    again = suggestion.retrainings
    if again is not None:
        scored, expected = suggestion.expected, again.expected
        if scored is None or expected is None:
            return None, False
        return scored.s + expected.s, True
    job = suggestion.job_size.job
    epochs = workload_of(job).epochs
    count = 1 if epochs is None else job.settings[epochs]
    if (measured := suggestion.expected) is not None:
        return measured.s * count, True
    if suggestion.predicted_step is not None:
        return suggestion.best.seconds * count, False
    return None, False


def _begins_in_s(placed: Placement, home: Home, conn: Connection | None, now: float) -> float | None:
    if placed.fit.state in ("now", "unknown"):
        return 0.0
    if placed.fit.state != "later" or conn is None or runs.in_states(conn, runs.WAITING):
        return None  # how long runs take that have not begun is not known
    wanted = set(placed.planned.uuids)
    before = [run for run in runs.in_states(conn, runs.ACTIVE) if wanted.intersection(run.gpus)]
    left = [_left_s(run, now) for run in before]
    if not left or any(one is None for one in left) or _others_are_in_the_way(placed, before, home, conn):
        return None
    return max(one for one in left if one is not None)


def _left_s(run: Run, now: float) -> float | None:
    left = eta_s(run)
    return None if left is None else max(left - (now - (run.reported_at or now)), 0.0)


def _others_are_in_the_way(placed: Placement, before: Sequence[Run], home: Home, conn: Connection) -> bool:
    """Whether memory that no run of kgops holds would still be missing once `before` have ended."""
    need, gpus = placed.planned.reserved_mib, read_gpus(home, conn)
    if isinstance(gpus, str):
        return True
    for gpu in gpus:
        if gpu.reading.uuid in placed.planned.uuids:
            usable = usable_mib(gpu.reading)
            there = [run for run in before if gpu.reading.uuid in run.gpus]
            has_whole = any(run.reserved_mib is None for run in there)
            others = 0 if has_whole else others_mib(gpu.reading.memory_used_mib or 0, shares_of(gpu, there))
            if usable is None or (others > _OF_NOBODY_MIB and (need is None or need > usable - others)):
                return True
    return False
