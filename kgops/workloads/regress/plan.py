"""What planning asks of a regression: sizes, time, disk use, OOM fallbacks, applied options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.jobs.option import Effect
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.number_formats import applied_precision
from kgops.workloads.plan import (
    CHECKPOINT,
    GRAPH_MODES,
    OPTIMIZER_PASSES,
    RECORD,
    RESUME_CHECKPOINT,
    Count,
    DiskUse,
    Fallbacks,
    Options,
    Rates,
    Stage,
    Step,
    StepTime,
    nothing,
    other_precisions,
    sizes,
    timed,
    with_options,
)
from kgops.workloads.regress import memory
from kgops.workloads.regress.job import regression_options
from kgops.workloads.regress.memory import MOMENTS
from kgops.workloads.regress.options import REGRESS_BATCH, REGRESS_FRAMES
from kgops.workloads.regress.sizes import RegressShape, flights_of, regress_shape

EXACT = {"gradient_checkpointing": (True,)}
peak_memory = memory.peak_memory
rounding_choices = other_precisions
smaller_results = nothing


def stages(job: Job, count: Count) -> list[Stage] | str:
    del count  # it has no triples
    flights = flights_of(job.settings)
    if isinstance(flights, str):
        return flights

    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> RegressShape:
        precision = applied_precision(options.get("precision", "fp32"), gpu)
        return regress_shape(with_options(job, options), flights, gpu, precision)

    return [Stage(job, Counts(0, 0, 0), shape)]


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # a regression has one
    return regression_options(job, device)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return [RegressFallbacks.of(job, job.settings, gpu)]


# The image network: passes over a map of a stage, written and read, there and back; kernels of a step, and of its
# convolutions, which are gone through frame by frame where activations are recomputed.
_MAP_PASSES = 24
_REGRESS_KERNELS, _IMAGE_KERNELS = 60, 135
_PRECISION_REGRESS_KERNELS = {"fp16": 69, "bf16": 56}
_PRECISION_IMAGE_KERNELS = 46
_FUSED_IMAGE_KERNELS, _FUSED_CAST_KERNELS = 30, 32
_FUSED = 2  # passes over a map in one, where torch.compile makes the kernels; not measured on a GPU


def step_time(shape: RegressShape, rates: Rates) -> StepTime:
    """Convolutions in the low type; every map written, read and reread, there and back."""
    c, images = shape.model, shape.batch * shape.model.temporal_frames
    maps = images * sum(out * c.pixels(i) for i, out in enumerate(c.channels))
    recomputing = 4 / 3 if shape.checkpointing else 1.0
    # Compiled, what lies between two convolutions is one kernel there and one back.
    passes = _MAP_PASSES / (1 if shape.compile == "off" else _FUSED)
    wide = 4 if shape.on_gpu and shape.compile == "off" else shape.low
    operations = recomputing * 6 * images * c.products / rates.of(shape.precision)
    moved = recomputing * passes * wide * maps
    moved += 4 * c.parameters * OPTIMIZER_PASSES.get(shape.optimizer, 7)
    return timed(operations, moved / rates.bandwidth, _regression_kernels(shape, recomputing), rates)


def _regression_kernels(shape: RegressShape, recomputing: float) -> int:
    frames = shape.model.temporal_frames if shape.checkpointing else 1
    is_low = shape.precision in _PRECISION_REGRESS_KERNELS
    images = _IMAGE_KERNELS + is_low * _PRECISION_IMAGE_KERNELS
    if shape.compile != "off":
        images -= _FUSED_IMAGE_KERNELS + is_low * _FUSED_CAST_KERNELS
    kernels = _REGRESS_KERNELS + _PRECISION_REGRESS_KERNELS.get(shape.precision, 0)
    a_pass = kernels + recomputing * frames * images
    passes = math.ceil(shape.batch / max(shape.computed, 1))
    return round(passes * a_pass)


def steps(shape: RegressShape) -> int:
    """Optimizer steps of an epoch."""
    return shape.steps


FEWEST_FRAMES = 3  # of a window: with two, no frame lies between


class RegressFallbacks(Fallbacks):
    """Image regression, in the order of the original project. A microbatch gives the same step as a whole batch."""

    def start(self, entities: int | None) -> dict[str, Any]:
        requested = self.job.options
        batch = requested.get("batch_size", REGRESS_BATCH)
        microbatch = requested.get("microbatch", "auto")
        return {
            "microbatch": batch if microbatch == "auto" else min(microbatch, batch),
            "temporal_frames": requested.get("temporal_frames", REGRESS_FRAMES),
            "memory_optimized": requested.get("memory_optimized", False),
            "gradient_checkpointing": requested.get("gradient_checkpointing", False),
            "compile": "off" if self._skips_compile else requested.get("compile", "off"),
            "precision": self._precision(),
        }

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        checkpointing = {"gradient_checkpointing": True}, "only one frame's activations are kept"
        graphs = now["compile"] in GRAPH_MODES
        if effect == "exact" and not graphs:
            yield checkpointing
        elif effect == "rounding":
            if graphs:
                yield {"compile": "default"}, "no memory kept by captured CUDA graphs"
                yield checkpointing
            for windows in sizes(now["microbatch"], 1):
                yield {"microbatch": windows}, "fewer windows per pass, for the same step"
            yield {"compile": "off"}, "torch.compile takes memory"
            yield from self._lower_precision(now)
        elif effect == "changes results":
            for frames in range(now["temporal_frames"] - 1, FEWEST_FRAMES - 1, -1):
                yield {"temporal_frames": frames}, "fewer frames per window"
            yield {"memory_optimized": True}, "half the channels"


def disk_use(job: Job, counts: Counts, shape: RegressShape | None, seconds: float) -> DiskUse | None:
    if shape is None:
        return None
    found = flights_of(job.settings)
    flights = 0 if isinstance(found, str) else len(found.frames)
    settings = job.settings
    weights = 4 * shape.model.parameters
    stages = settings["pretrain"] + settings["final"] + (flights if settings["loo"] else 0)
    model = weights + CHECKPOINT
    resume_checkpoint = model + MOMENTS.get(shape.optimizer, 2) * weights + RESUME_CHECKPOINT - CHECKPOINT
    parts = {"models": stages * model, "points to resume from": 2 * resume_checkpoint, "record": 2 * RECORD}
    folder = settings["output_directory"]
    outside = {folder: stages * model} if folder else {}
    return DiskUse(parts, outside, resume_checkpoint, stages + 8)
