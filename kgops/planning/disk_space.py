"""Predicts a job's disk use and compares it with the free space on each disk it writes to."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from kgops.jobs.job import Job
from kgops.planning.planner import Suggestion
from kgops.planning.speed import rates_of, seconds
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.plan import Count, DiskUse, Shape, plan_of
from kgops.workloads.registry import workload_of

MARGIN = 0.10  # kept free beside a prediction
_BLOCK = 4096  # of a disk: a file ends within one
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TargetDisk:
    """A file system that the job writes to, by its first path there; `free` None: unknown."""

    path: Path
    need: int
    free: int | None

    @property
    def fits(self) -> bool:
        return self.free is None or self.need <= self.free

    def as_table(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "need_mib": self.need / _MIB,
            "free_mib": None if self.free is None else self.free / _MIB,
        }


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """Predicted disk use; `certain`: the places without what is only bounded. `nearest`: the smallest change that would
    fit, and its bytes."""

    use: DiskUse
    places: tuple[TargetDisk, ...]
    certain: tuple[TargetDisk, ...]
    nearest: tuple[str, int] | None = None

    @property
    def fits(self) -> bool:
        """True also if only an upper bound would not fit."""
        return all(place.fits for place in self.certain)

    def as_table(self) -> dict[str, Any]:
        outside = {path: size / _MIB for path, size in self.use.outside.items()}
        return {
            "total_mib": self.use.total / _MIB,
            "at_most": self.use.at_most,
            "parts_mib": {name: size / _MIB for name, size in self.use.parts.items()},
            "copies_mib": outside,
            "places": [place.as_table() for place in self.places],
        }


def disk_plan(job: Job, suggestion: Suggestion | None, runs: Path, count: Count) -> DiskPlan | None:
    """For a run whose folder is in `runs`; None if its disk use cannot be predicted."""
    stages = _stages_of(job, suggestion, count)
    plan = _disk_plan(stages, runs)
    if plan is None or plan.fits:
        return plan
    smaller = ((option, _disk_plan(fewer, runs)) for option, fewer in _smaller(job, stages))
    nearest = next(((option, one.use.total) for option, one in smaller if one is not None and one.fits), None)
    return replace(plan, nearest=nearest)


class _Stage(NamedTuple):
    """A stage of the job, with its sizes (None: unknown) and expected seconds."""

    job: Job
    counts: Counts
    shape: Shape | None = None
    seconds: float = 0.0

    @property
    def use(self) -> DiskUse | None:
        return plan_of(self.job.workload).disk_use(self.job, self.counts, self.shape, self.seconds)


def _stages_of(job: Job, suggestion: Suggestion | None, count: Count) -> list[_Stage]:
    if suggestion is None:  # the triples may decide, whatever the model
        workload = workload_of(job)
        is_whole = workload.has_graph and not workload.is_command and workload.stages is None
        counts = count(job.settings) if is_whole else None
        return [] if counts is None else [_Stage(job, counts)]
    facts = suggestion.target.facts
    found = []
    for stage in suggestion.job_size.stages:
        shape = stage.shape(job.options, facts, stage.counts)
        seconds_ = 0.0 if shape is None else _seconds(stage.job, shape, suggestion)
        found.append(_Stage(replace(stage.job, options=job.options), stage.counts, shape, seconds_))
    return found


def _disk_plan(stages: Sequence[_Stage], runs: Path) -> DiskPlan | None:
    uses = [use for use in (stage.use for stage in stages) if use is not None]
    if not uses:
        return None
    use = reduce(DiskUse.and_then, uses)
    certain = [one for one in uses if not one.at_most]
    needed = _target_disks(reduce(DiskUse.and_then, certain), runs) if certain else ()
    return DiskPlan(use, _target_disks(use, runs), needed)


def _smaller(job: Job, stages: Sequence[_Stage]) -> Iterator[tuple[str, list[_Stage]]]:
    """Smaller variants: the setting to change and the stages; of the last stage first, the smallest change first."""
    for at, stage in reversed(list(enumerate(stages))):
        for name, value in plan_of(stage.job.workload).smaller_results(stage.job, stage.counts):
            settings = {**stage.job.settings, name: value}
            changed = stage._replace(job=replace(stage.job, settings=settings))
            is_stage = workload_of(job).stages is not None
            flag = f"--{name.replace('_', '-')} {value}"
            option = f"{stage.job.workload}.{name} = {value}" if is_stage else flag
            yield option, [*stages[:at], changed, *stages[at + 1 :]]


def _seconds(stage: Job, shape: Shape, suggestion: Suggestion) -> float:
    """Expected seconds by this machine's past runs, otherwise by a roofline."""
    epochs = workload_of(stage).epochs
    each_s = seconds(shape, rates_of(suggestion.target))
    correction = suggestion.corrections.time
    expected_s = each_s if correction is None else correction.expected(each_s).s
    return expected_s if epochs is None else stage.settings[epochs] * expected_s


def _target_disks(use: DiskUse, runs: Path) -> tuple[TargetDisk, ...]:
    """One per file system, with a margin, and the overhead of block rounding and the database."""
    run_folder_bytes = sum(use.parts.values()) + use.passing + use.parts.get("record", 0)
    needs = {
        runs: run_folder_bytes + use.files * _BLOCK,
        **{Path(path).absolute(): n for path, n in use.outside.items()},
    }
    disks: dict[int, tuple[Path, float, int | None]] = {}
    for path, need in needs.items():
        existing = next(one for one in (path, *path.parents) if one.exists())
        device, free = _free_bytes(existing)
        first_path, bytes_before, _ = disks.get(device, (existing, 0.0, None))
        disks[device] = first_path, bytes_before + need * (1 + MARGIN), free
    return tuple(TargetDisk(path, math.ceil(need), free) for path, need, free in disks.values())


def _free_bytes(path: Path) -> tuple[int, int | None]:
    """Device number of an existing path, and the bytes that this user may still write there."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return path.stat().st_dev, None
    return path.stat().st_dev, stat.f_bavail * stat.f_frsize
