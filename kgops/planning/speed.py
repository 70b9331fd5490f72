"""Roofline model of run time: the larger of operations over peak rate and bytes over bandwidth, plus kernel launches.

It ranks options. Its seconds are off by a factor, which `corrections.learn_time` learns from measured runs. Without
such runs, its seconds on a GPU are a lower bound of a step's time, and are marked as predicted. `Retrainings` are
trainings that a run repeats to check its findings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgops.gpus.known import KnownGpu
from kgops.jobs.job import Job
from kgops.planning.memory_estimate import ExpectedTime, TimeCorrection
from kgops.planning.process_memory import kind_of
from kgops.planning.targets import Target
from kgops.workloads.plan import Rates, Shape, StepTime, plan_of
from kgops.workloads.registry import devices_of, workload_of
from kgops.workloads.train.sizes import TrainShape

# One core of a CPU with AVX-512: rates that products reached here, and a core's share of the memory's bandwidth. They
# order chunk sizes on a CPU. Of its seconds only TracIn's are shown, as predicted, until such a run was measured.
_CORE_FLOPS = {"fp32": 9e10, "bf16": 3e11}
_CORE_BANDWIDTH = 1.2e10
_CORE_CACHE = 2 << 20  # scores of a chunk that stay in it cost no bandwidth
_CORE_LAUNCH = 2e-6
_CORE_STEP = 3.9e-3  # least time of a step there, for any small model: dozens of small operations and Python
# Between two kernels of an eager step; what the driver needs, whatever the GPU.
_GPU_LAUNCH = 5e-6
# A GPU of which nothing is known but its driver's answers: ratios between formats as on most.
_UNKNOWN_FLOPS = {"fp32": 2e13, "tf32": 4e13, "fp16": 8e13, "bf16": 8e13}
_UNKNOWN_BANDWIDTH = 6e11


def rates_of(target: Target) -> Rates:
    if not target.on_gpu:
        core = Rates(_CORE_FLOPS, _CORE_BANDWIDTH, _CORE_LAUNCH, _CORE_STEP, _CORE_CACHE, overlaps=False)
        return replace(core, cores=len(os.sched_getaffinity(0)))
    if target.known is None:
        return Rates(_UNKNOWN_FLOPS, _UNKNOWN_BANDWIDTH, _GPU_LAUNCH)
    return Rates(_gpu_flops(target.known), target.known.bandwidth_gb_s * 1e9, _GPU_LAUNCH)


def seconds(shape: Shape, rates: Rates) -> float:
    """Modelled seconds of a training epoch, of all answers, or of a TracIn run over all tests and checkpoints."""
    return step_time(shape, rates).seconds * plan_of(shape.workload).steps(shape)


def time_kind(job: Job) -> str:
    """Runs of one kind are off the model by a similar factor."""
    settings = job.settings
    kind = kind_of(job.workload, shared_out=devices_of(job) != 1)
    return f"{kind} {own}" if (own := workload_of(job).time_kind(settings)) else kind


def step_time(shape: Shape, rates: Rates) -> StepTime:
    return plan_of(shape.workload).step_time(shape, rates)


def _gpu_flops(gpu: KnownGpu) -> dict[str, float]:
    tera = 1e12
    fp32 = gpu.fp32_tflops * tera
    flops = {"fp32": fp32, "tf32": (gpu.tf32_tflops or gpu.fp32_tflops) * tera}
    for name in ("fp16", "bf16"):
        flops[name] = gpu.half_tflops * tera if name in gpu.tensor_core_dtypes else fp32
    return flops


@dataclass(frozen=True, slots=True)
class Retrainings:
    """`count` trainings of so many epochs, one after the other; fewer where that is `at_most`, or `epochs_at_most`.
    `epoch_s` is modelled, `time` what runs on this machine taught of it; None where it is not known."""

    count: int
    at_most: bool
    epochs: int | None
    epochs_at_most: bool
    epoch_s: float | None
    time: TimeCorrection | None

    @property
    def expected(self) -> ExpectedTime | None:
        """Of all of them."""
        if self.time is None or self.epoch_s is None or self.epochs is None:
            return None
        one, whole = self.time.expected(self.epoch_s), self.count * self.epochs
        return ExpectedTime(one.s * whole, one.low_s * whole, one.high_s * whole, one.runs)

    def __str__(self) -> str:
        """Lines of a plan about retraining."""
        what = f"plus {'at most ' * self.at_most}{self.count:,} trainings"
        expected = self.expected
        if expected is None:
            return f"{what}, whose time is not known yet"
        bound = "at most " if self.epochs_at_most else ""
        epochs = f"{bound}{self.epochs:,} epoch{'' if self.epochs == 1 else 's'}"
        runs = f"{expected.runs} training{'' if expected.runs == 1 else 's'} here"
        return (
            f"{what} of {epochs}: {_amount(expected.s)} s ({_amount(expected.low_s)} to {_amount(expected.high_s)}, "
            f"from {runs})"
        )

    def as_table(self) -> dict[str, Any]:
        expected = self.expected
        return {
            "count": self.count,
            "at_most": self.at_most,
            "epochs": self.epochs,
            "epochs_at_most": self.epochs_at_most,
            "expected_s": None if expected is None else expected._asdict(),
        }


def trains_again(job: Job) -> bool:
    return workload_of(job).retrainings(job.settings) > 0


def retrainings_of(
    job: Job,
    shape: TrainShape | None,
    rates: Rates,
    time: TimeCorrection | None,
) -> Retrainings | None:
    """Of a job `tracin` or `explain`, which trains `shape` again (None: not known); None where it does not."""
    if not trains_again(job):
        return None
    explains = "explanations" in workload_of(job).leaves
    count = workload_of(job).retrainings(job.settings)
    epoch_s = None if shape is None else seconds(shape, rates)
    kept = _kept_epochs(job.settings["checkpoint_dir"])
    whole = None if shape is None else shape.epochs
    epochs = kept[-1] if kept else whole
    of_model = explains and bool(job.settings["model_path"])
    if of_model and kept and whole is not None:
        # A best or final model is of any epoch before the next checkpoint would have been kept.
        epochs = min(kept[-1] + kept[0] - 1, whole)
    return Retrainings(count, explains and job.settings["smallest"], epochs, of_model, epoch_s, time)


def _kept_epochs(checkpoints: str | None) -> list[int]:
    folder = Path(checkpoints or "")  # relative in a pipeline, whose checkpoints are not there yet
    kept = folder.glob("checkpoint_epoch_*.pt") if folder.is_absolute() else ()
    numbers = (one.stem.rpartition("_")[2] for one in kept)
    return sorted(int(one) for one in numbers if one.isdecimal())


def _amount(seconds_: float) -> str:
    return f"{seconds_:.3g}" if seconds_ < 1000 else f"{seconds_:,.0f}"
