"""Random regression jobs that run in a second or two, for `estimating`."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kgops.errors import KgopsError
from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.maths.regress.flights import read_flights
from kgops.maths.regress.loop import regress
from kgops.maths.regress.worker import regression_settings, step_gflop
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job
from kgops.workloads.number_formats import applied_precision
from kgops.workloads.regress.job import config_of
from kgops.workloads.regress.sizes import Flights, RegressShape, flights_in, regress_shape

_GFLOP = 60.0  # of a whole setting, at most
_FLIGHTS = 2


@dataclass(frozen=True)
class RegressSetting:
    """Frames of each flight, and the settings of the job."""

    height: int
    width: int
    frames: int
    integers: bool  # frames are bytes, as cameras give them
    settings: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    def job(self, folder: Path = Path("drawn")) -> Job:
        own = {"data_directory": str(folder), "epochs": 2, "pretrain": False, "device": "cpu"}
        return read_job(
            {"workload": "regress", "regress": {**own, **self.settings}, "options": self.options}, "drawn"
        )


def draw_regress(rng: random.Random, *, gflop: float = _GFLOP) -> RegressSetting:
    while True:
        length, batch = rng.randint(1, 8), rng.choice((1, 2, 4, 8, 12, 16, 20, 32))
        options: dict[str, Any] = {
            "batch_size": batch,
            "temporal_frames": length,
            "memory_optimized": rng.random() < 0.6,
            "precision": rng.choice(("fp32", "fp32", "bf16")),
            "gradient_checkpointing": rng.random() < 0.4,
        }
        if rng.random() < 0.3:
            options["microbatch"] = rng.choice((1, 2, 3, 8))
        settings: dict[str, Any] = {
            "architecture": rng.choice(("transformer", "gnn", "ssm", "cnn")),
            "angles_mode": rng.choice(("both", "both", "sza_only", "saa_only", "none")),
            "use_spatial_attention": rng.random() < 0.7,
            "use_temporal_attention": rng.random() < 0.7,
            "dropout": rng.choice((0.0, 0.3)),
            "loss_type": rng.choice(("huber", "mse", "weighted_huber_mae")),
            "optimizer": rng.choice(("adamw", "adamw", "adam", "sgd")),
            "augment": rng.random() < 0.5,
            "flat_field_correction": rng.random() < 0.5,
        }
        frames = length - 1 + max(2, round(batch * rng.uniform(0.6, 3)))
        size = [round(16 * (224 / 16) ** rng.random()) for _ in ("height", "width")]
        setting = RegressSetting(size[0], size[1], frames, rng.random() < 0.7, settings, options)
        if _gflop(setting) <= gflop:
            return setting


def draw_large_regress(rng: random.Random) -> RegressSetting:
    """A regression of a GiB to four by a rough count of its largest maps."""
    while True:
        drawn = draw_regress(rng, gflop=math.inf)
        options = drawn.options
        piece = min(
            options.get("microbatch", 32),
            options["batch_size"],
            drawn.frames - options["temporal_frames"] + 1,
        )
        frames = piece * (1 if options["gradient_checkpointing"] else options["temporal_frames"])
        channels = 32 if options["memory_optimized"] else 64
        if 1.2e9 < 4 * 9 * channels * drawn.height * drawn.width * frames < 4e9 and drawn.frames < 60:
            return drawn


def write_flights(setting: RegressSetting, folder: Path, seed: int) -> None:
    """Flights of noise: memory does not depend on the data."""
    noise = np.random.default_rng(seed)
    for number in range(_FLIGHTS):
        shape = (setting.frames, setting.height, setting.width)
        frames = noise.integers(0, 256, shape, dtype=np.uint8)
        np.savez(
            folder / f"{number}.npz",
            frames=frames if setting.integers else frames.astype(np.float32),
            solar_zenith=noise.uniform(20, 60, setting.frames),
            solar_azimuth=noise.uniform(100, 250, setting.frames),
            height=noise.uniform(0.5, 3, setting.frames),
            time=np.arange(setting.frames, dtype=float),
        )


def shape_of(job: Job, folder: Path, gpu: GpuFacts | None) -> RegressShape:
    """Sizes as the planner reads them."""
    flights = flights_in(folder)
    if isinstance(flights, str):
        raise KgopsError(flights)
    return regress_shape(job, flights, gpu, applied_precision(job.options.get("precision", "fp32"), gpu))


def shape_of_setting(setting: RegressSetting, gpu: GpuFacts | None) -> RegressShape:
    """As `shape_of` finds them in the flights that are written."""
    job = setting.job()
    frames = {str(number): setting.frames for number in range(_FLIGHTS)}
    flights = Flights(setting.height, setting.width, 1 if setting.integers else 4, frames)
    return regress_shape(job, flights, gpu, applied_precision(job.options.get("precision", "fp32"), gpu))


def work_of(job: Job, folder: Path, device: torch.device, report: Reporter) -> Callable[[], None]:
    """The worker's training function, with its results next to the flights."""
    flights = read_flights(folder, job.options["temporal_frames"])
    config = config_of(job.settings, job.options, flights[0].image_size)
    settings = regression_settings(job)

    def work() -> None:
        regress(flights, config, settings, folder / "results", report, device=device)

    return work


def _gflop(setting: RegressSetting) -> float:
    """Of two epochs on one flight, and what is validated and held out."""
    config = config_of(setting.job().settings, setting.options, (setting.height, setting.width))
    windows = setting.frames - config.temporal_frames + 1
    return step_gflop(config, windows) * (3 if setting.options["gradient_checkpointing"] else 2.5)
