"""Roofline model of run time: the larger of operations over peak rate and bytes over bandwidth, plus kernel launches.

It ranks options. Its seconds are off by a factor, which `time_corrections` learns from measured runs; without them
kgops shows ratios only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kgops.gpus.known import KnownGpu
from kgops.jobs.train import ConvEConfig
from kgops.planning.regress_sizes import RegressShape
from kgops.planning.stage_sizes import Shape
from kgops.planning.targets import Target
from kgops.planning.train_sizes import TrainShape

__all__ = ["Rates", "rates_of", "seconds"]

# One core of a CPU with AVX-512: what products reached here, and a core's share of the memory's bandwidth.
# They order chunk sizes on a CPU and claim nothing of yours.
_CORE_FLOPS = {"fp32": 9e10, "bf16": 3e11}
_CORE_BANDWIDTH = 1.2e10
_CORE_CACHE = 2 << 20  # scores of a chunk that stay in it cost no bandwidth
_CORE_LAUNCH = 4e-6
_CORE_STEP = 4e-3  # what a step took there however small its model: dozens of small operations and Python
# Between two kernels of an eager step; what the driver needs, whatever the GPU.
_GPU_LAUNCH = 5e-6
# A GPU of which nothing is known but its driver's answers: ratios between formats as on most.
_UNKNOWN_FLOPS = {"fp32": 2e13, "tf32": 4e13, "fp16": 8e13, "bf16": 8e13}
_UNKNOWN_BANDWIDTH = 6e11

# Passes over the scores of a chunk: written by a product, turned into the gradient, read by two products.
_SCORE_PASSES = 4
_KERNELS_A_CHUNK = 8
_KERNELS_A_STEP = 70  # encoder forward and backward, and the optimizer
# The image network: passes over a map of a stage, written and read, there and back; and kernels of one pass through it.
_MAP_PASSES = 24
_IMAGE_KERNELS = 200
_FUSED = 2  # as many of either in one, where torch.compile makes the kernels; not measured on a GPU
_OPTIMIZER_PASSES = {"adam": 7, "adamw": 7, "adagrad": 5, "sgd": 3}  # over the parameters, read and written


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second by number format, bytes per second, seconds per kernel launch."""

    flops: Mapping[str, float]
    bandwidth: float
    launch: float
    step: float = 0.0  # seconds of every step, whatever its size
    cache: int = 0
    overlaps: bool = True  # kernels are sent ahead while the GPU computes

    def of(self, precision: str) -> float:
        return self.flops.get(precision, self.flops["fp32"])


def rates_of(target: Target) -> Rates:
    if not target.on_gpu:
        return Rates(_CORE_FLOPS, _CORE_BANDWIDTH, _CORE_LAUNCH, _CORE_STEP, _CORE_CACHE, overlaps=False)
    if target.known is None:
        return Rates(_UNKNOWN_FLOPS, _UNKNOWN_BANDWIDTH, _GPU_LAUNCH)
    return Rates(_gpu_flops(target.known), target.known.bandwidth_gb_s * 1e9, _GPU_LAUNCH)


def seconds(shape: Shape, rates: Rates) -> float:
    """Modelled seconds of a training epoch, or of a TracIn run over all tests and checkpoints."""
    if isinstance(shape, TrainShape):
        return _training_step(shape, rates) * max(1, math.ceil(shape.queries.queries / shape.batch_size))
    if isinstance(shape, RegressShape):
        return _regression_step(shape, rates) * shape.steps
    model, block = shape.model, max(shape.block, 1)
    blocks = math.ceil(shape.counts.train / block)
    # Encoder forward and backward for each distinct query, scores over entities where the loss has them.
    encoder = 6 * shape.groups * (model.features * (_kernel(model) + model.embedding_dim))
    over_entities = shape.loss != "target"
    scored = model.num_entities if over_entities else 0
    scores = 6 * shape.groups * scored * model.embedding_dim
    chunks = math.ceil(scored / shape.chunk) if over_entities else 0
    tests_in_all = shape.tests if shape.does == "trace" else 1  # self-influence, or building an index
    tests = min(tests_in_all, shape.tests_of_a_tile)
    tiles = math.ceil(tests_in_all / max(tests, 1))
    gram = 4 * block * tests * (model.features + model.embedding_dim)
    traffic = _SCORE_PASSES * 4 * _spilled(shape.groups * min(shape.chunk, max(scored, 1)), rates) * chunks
    rate = rates.of("fp32")
    gram_rate = rates.of("fp32" if shape.gram == 4 else "bf16")
    busy = (encoder + scores) / rate + gram / gram_rate + traffic / rates.bandwidth
    launches = (_KERNELS_A_STEP + _KERNELS_A_CHUNK * chunks) * rates.launch
    directions = 2 if shape.both_directions else 1
    return shape.checkpoints * tiles * blocks * directions * _together(busy, launches, rates)


def _training_step(shape: TrainShape, rates: Rates) -> float:
    model, batch = shape.model, shape.batch
    encoder: float = 6 * batch * model.features * (_kernel(model) + model.embedding_dim)
    if shape.checkpointing:
        encoder += encoder / 3  # forward once more
    products = 6 * batch * model.num_entities * model.embedding_dim
    chunks = math.ceil(model.num_entities / shape.chunk)
    scores = (
        _SCORE_PASSES * shape.low * _spilled(batch * min(shape.chunk, model.num_entities), rates) * chunks
    )
    parameters = (model.num_entities + 2 * model.num_relations) * model.embedding_dim
    parameters += model.features * model.embedding_dim
    weights = 4 * parameters * _OPTIMIZER_PASSES.get(shape.optimizer, 7)
    rate = rates.of(shape.precision)
    busy = (encoder + products) / rate + (scores + weights) / rates.bandwidth
    launches = (_KERNELS_A_STEP + _KERNELS_A_CHUNK * chunks) * rates.launch
    return _together(busy, launches, rates)


def _regression_step(shape: RegressShape, rates: Rates) -> float:
    """Convolutions in the low type; every map written, read and read again, there and back."""
    c, images = shape.model, shape.batch * shape.model.temporal_frames
    entering = (1, *c.channels)
    products = sum(9 * entering[i] * out * c.pixels(i) for i, out in enumerate(c.channels))
    maps = images * sum(out * c.pixels(i) for i, out in enumerate(c.channels))
    recomputing = 4 / 3 if shape.checkpointing else 1.0
    # Compiled, what lies between two convolutions is one kernel there and one back.
    passes = _MAP_PASSES / (1 if shape.compile == "off" else _FUSED)
    passes_a_step = math.ceil(shape.batch / max(shape.computed, 1)) * (
        c.temporal_frames if shape.checkpointing else 1
    )
    wide = 4 if shape.on_gpu and shape.compile == "off" else shape.low
    busy = recomputing * (
        6 * images * products / rates.of(shape.precision) + passes * wide * maps / rates.bandwidth
    )
    busy += 4 * c.parameters * _OPTIMIZER_PASSES.get(shape.optimizer, 7) / rates.bandwidth
    kernels = _IMAGE_KERNELS if shape.compile == "off" else _IMAGE_KERNELS / _FUSED
    return _together(busy, recomputing * passes_a_step * kernels * rates.launch, rates)


def _together(busy: float, launches: float, rates: Rates) -> float:
    return rates.step + (max(busy, launches) if rates.overlaps else busy + launches)


def _spilled(scores: int, rates: Rates) -> int:
    """Scores that go through memory."""
    return 0 if 4 * scores <= rates.cache else scores


def _kernel(model: ConvEConfig) -> int:
    return model.channels * model.kernel_height * model.kernel_width


def _gpu_flops(gpu: KnownGpu) -> dict[str, float]:
    tera = 1e12
    fp32 = gpu.fp32_tflops * tera
    flops = {"fp32": fp32, "tf32": (gpu.tf32_tflops or gpu.fp32_tflops) * tera}
    for name in ("fp16", "bf16"):
        flops[name] = gpu.half_tflops * tera if name in gpu.tensor_core_dtypes else fp32
    return flops
