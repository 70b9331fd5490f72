"""The numbers that the memory and the step time of a regression depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kgops.gpus.facts import GpuFacts
from kgops.jobs.chunk_sizes import REGRESS_BATCH, REGRESS_VALIDATION_SHARE
from kgops.jobs.job import Job
from kgops.jobs.on_device import WorkerDevice, skips_compile
from kgops.jobs.regress import config_of
from kgops.jobs.regression_config import RegressionConfig
from kgops.planning.flight_files import Flights

__all__ = ["RegressShape", "regress_shape"]


@dataclass(frozen=True, slots=True)
class RegressShape:
    """`train` windows of an epoch, `valid` ones that are asked after it and `held_out` ones at the end. `at_once`
    windows are computed at a time; `low` is the bytes of a number in convolutions and products, `pixel` of one in a
    batch as it is read."""

    model: RegressionConfig
    on_gpu: bool
    train: int
    valid: int
    held_out: int
    pixel: int
    batch_size: int
    at_once: int
    precision: str
    low: int
    optimizer: str
    checkpointing: bool
    compile: str
    augment: bool
    flat_field: bool
    loss: str

    @property
    def examples(self) -> int:
        """Of an epoch."""
        return self.train

    @property
    def batch(self) -> int:
        """Windows of a usual batch."""
        return max(1, min(self.batch_size, self.train))

    @property
    def computed(self) -> int:
        """Windows in one pass through the network."""
        return min(self.at_once, self.batch)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return max(1, math.ceil(self.train / self.batch_size))


def regress_shape(job: Job, flights: Flights, gpu: GpuFacts | None, precision: str) -> RegressShape:
    """Of a job `regress`; `precision` is the number format that its options come to on this GPU (None: the CPU)."""
    settings, options = job.settings, job.options
    model = config_of(settings, options, (flights.height, flights.width))
    windows = flights.windows(model.temporal_frames)
    held = settings["validation_flight"] or max(windows)
    parts = [_split(own, model.temporal_frames) for name, own in windows.items() if name != held]
    batch_size = options.get("batch_size", REGRESS_BATCH)
    microbatch = options.get("microbatch", "auto")
    return RegressShape(
        model,
        gpu is not None,
        max(1, sum(train for train, _ in parts)),
        sum(valid for _, valid in parts),
        windows.get(held, 0),
        flights.pixel,
        batch_size,
        batch_size if microbatch == "auto" else min(microbatch, batch_size),
        precision,
        2 if precision in ("fp16", "bf16") else 4,
        settings["optimizer"],
        bool(options.get("gradient_checkpointing", False)),
        "off" if gpu is None and skips_compile(job, WorkerDevice()) else options.get("compile", "off"),
        settings["augment"],
        settings["flat_field_correction"],
        settings["loss_type"],
    )


def _split(windows: int, length: int) -> tuple[int, int]:
    """`Training.of`: of a flight's windows those trained on, and those that say when to stop."""
    valid = int(REGRESS_VALIDATION_SHARE * windows)
    # Those that share frames with a validated one are left out.
    train = windows - valid - (length - 1 if valid else 0)
    return (train, valid) if train > 0 else (windows, 0)
