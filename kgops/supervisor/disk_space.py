"""Predicts a job's disk use and compares it with the free space on each disk it writes to."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

from kgops.jobs.job import Job
from kgops.planning.disk_use import (
    DiskUse,
    TracinDiskUse,
    predict_disk_use,
    regression_disk_use,
    tracin_disk_use,
    training_disk_use,
)
from kgops.planning.planner import Suggestion
from kgops.planning.speed import rates_of, seconds
from kgops.workloads.graphs.counts import counts_of, files_of
from kgops.workloads.predict.sizes import PredictShape
from kgops.workloads.regress.sizes import RegressShape
from kgops.workloads.tracin.sizes import TracinShape
from kgops.workloads.train.sizes import TrainShape
from storage import predictions
from storage.database import Connection

MARGIN = 0.10  # kept free beside a prediction
_BLOCK = 4096  # of a disk: a file ends within one
_MIN_MIB_FOR_SPEED = 16  # smaller writes do not show a disk's speed
_TOP_K_OFFERED = (10_000, 1_000, 100, 10)  # values of --top-k to suggest
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
class WriteSpeed:
    """Median write speed of past runs on this machine, in MiB a second."""

    mib_per_s: float
    samples: int


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """Predicted disk use; `certain`: the places without what is only bounded. `nearest`: the smallest change that would
    fit, and its bytes."""

    use: DiskUse
    places: tuple[TargetDisk, ...]
    certain: tuple[TargetDisk, ...]
    nearest: tuple[str, int] | None = None
    write_speed: WriteSpeed | None = None

    @property
    def fits(self) -> bool:
        """True also if only an upper bound would not fit."""
        return all(place.fits for place in self.certain)

    @property
    def writing_s(self) -> float | None:
        """Seconds spent writing; None if no run here has written enough to measure the speed."""
        return None if self.write_speed is None else self.use.written / _MIB / self.write_speed.mib_per_s

    def as_table(self) -> dict[str, Any]:
        outside = {path: size / _MIB for path, size in self.use.outside.items()}
        return {
            "total_mib": self.use.total / _MIB,
            "at_most": self.use.at_most,
            "parts_mib": {name: size / _MIB for name, size in self.use.parts.items()},
            "copies_mib": outside,
            "written_mib": self.use.written / _MIB,
            "writing_s": self.writing_s,
            "places": [place.as_table() for place in self.places],
        }


def disk_plan(
    job: Job,
    suggestion: Suggestion | None,
    runs: Path,
    conn: Connection | None,
    *,
    remembered: Path | None = None,
    most_bytes: int | None = None,
) -> DiskPlan | None:
    """For a run whose folder is in `runs`; None if its disk use cannot be predicted."""
    stages = _Stages.of(job, suggestion)
    if suggestion is None and job.workload == "tracin":  # no memory model needed: the triples decide
        counts, files = counts_of(job.settings, remembered, most_bytes=most_bytes), files_of(job.settings)
        if counts is not None and files is not None:
            stages = _Stages(tracin=tracin_disk_use(job, counts, files, None))
    plan = stages.plan(runs)
    if plan is None:
        return None
    if conn is not None and plan.use.written:
        plan = replace(plan, write_speed=_write_speed(conn))
    if plan.fits:
        return plan
    smaller = ((option, fewer.plan(runs)) for option, fewer in stages.smaller(job))
    nearest = next(((option, one.use.total) for option, one in smaller if one is not None and one.fits), None)
    return replace(plan, nearest=nearest)


@dataclass(frozen=True, slots=True)
class _Stages:
    """A job's stages in order; training with its sizes and expected seconds."""

    training: tuple[Job, TrainShape, float] | None = None
    tracin: TracinDiskUse | None = None
    regression: DiskUse | None = None
    predicting: DiskUse | None = None

    @classmethod
    def of(cls, job: Job, suggestion: Suggestion | None) -> _Stages:
        if suggestion is None:
            return cls()
        subject, target = suggestion.job_size, suggestion.target
        training = tracin = regression = predicting = None
        for shape in subject.shapes(job.options, target.facts):
            if isinstance(shape, TrainShape) and subject.train is not None:
                training = subject.train, shape, _seconds(subject.train, shape, suggestion)
            elif isinstance(shape, TracinShape) and subject.tracin is not None:
                files = files_of(subject.tracin.settings)
                stage = replace(subject.tracin, options=job.options)
                tracin = None if files is None else tracin_disk_use(stage, subject.counts, files, shape)
            elif isinstance(shape, PredictShape) and subject.predict is not None:
                files = files_of(subject.predict.settings)
                predicting = None if files is None else predict_disk_use(subject.predict, shape, files)
            elif isinstance(shape, RegressShape) and subject.flights is not None:
                regression = regression_disk_use(job, shape, len(subject.flights.frames))
        return cls(training, tracin, regression, predicting)

    def plan(self, runs: Path) -> DiskPlan | None:
        uses = [] if self.training is None else [training_disk_use(*self.training)]
        uses += [] if self.tracin is None else [self.tracin.use()]
        uses += [one for one in (self.regression, self.predicting) if one is not None]
        if not uses:
            return None
        use = reduce(DiskUse.and_then, uses)
        certain = [one for one in uses if not one.at_most]
        needed = _target_disks(reduce(DiskUse.and_then, certain), runs) if certain else ()
        return DiskPlan(use, _target_disks(use, runs), needed)

    def smaller(self, job: Job) -> Iterator[tuple[str, _Stages]]:
        """Smaller variants: the option to change and the stages; the smallest change first."""
        is_cli_flag = job.workload != "pipeline"
        if self.tracin is not None:
            for k in _TOP_K_OFFERED:
                if k < (self.tracin.top_k or self.tracin.trains):
                    fewer = replace(self, tracin=replace(self.tracin, top_k=k))
                    yield (f"--top-k {k}" if is_cli_flag else f"tracin.top_k = {k}"), fewer
        if self.training is not None:
            stage, shape, seconds = self.training
            every = stage.settings["checkpoint_frequency"]
            for rarer in [every * times for times in (2, 5, 10, 20, 50)] if every else []:
                settings = {**stage.settings, "checkpoint_frequency": rarer}
                fewer = replace(self, training=(replace(stage, settings=settings), shape, seconds))
                option = (
                    f"--checkpoint-frequency {rarer}"
                    if is_cli_flag
                    else f"train.checkpoint_frequency = {rarer}"
                )
                yield option, fewer


def _seconds(stage: Job, shape: TrainShape, suggestion: Suggestion) -> float:
    """Expected seconds by this machine's past runs, else by a roofline."""
    epochs: int = stage.settings["num_epochs"]
    epoch_s = seconds(shape, rates_of(suggestion.target))
    correction = suggestion.corrections.time
    return epochs * (epoch_s if correction is None else correction.expected(epoch_s).s)


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


def _write_speed(conn: Connection) -> WriteSpeed | None:
    rates = predictions.writing_rates(conn, platform.node(), least_mib=_MIN_MIB_FOR_SPEED)
    return WriteSpeed(median(rates), len(rates)) if rates else None
