"""Roofline model of run time: the larger of operations over peak rate and bytes over bandwidth, plus kernel launches.

It ranks options. Its seconds are off by a factor, which `corrections.learn_time` learns from measured runs; without
them its seconds on a GPU are what a step takes at least, and said to be predicted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kgops.gpus.known import KnownGpu
from kgops.jobs.job import Job
from kgops.planning.job_size import Shape
from kgops.planning.process_memory import kind_of
from kgops.planning.targets import Target
from kgops.workloads.explain.memory import ExplainShape
from kgops.workloads.predict.sizes import PredictShape
from kgops.workloads.registry import devices_of
from kgops.workloads.regress.sizes import RegressShape
from kgops.workloads.tracin.sizes import TracinShape, does_of
from kgops.workloads.train.job import ConvEConfig
from kgops.workloads.train.sizes import TrainShape
from kgops.workloads.train.threads import step_gflop, threads_for

# One core of a CPU with AVX-512: what products reached here, and a core's share of the memory's bandwidth. They order
# chunk sizes on a CPU; of its seconds only those of TracIn are shown, as predicted, until such a run was measured.
_CORE_FLOPS = {"fp32": 9e10, "bf16": 3e11}
_CORE_BANDWIDTH = 1.2e10
_CORE_CACHE = 2 << 20  # scores of a chunk that stay in it cost no bandwidth
_CORE_LAUNCH = 2e-6
_CORE_STEP = 3.9e-3  # what a step took there however small its model: dozens of small operations and Python
# Between two kernels of an eager step; what the driver needs, whatever the GPU.
_GPU_LAUNCH = 5e-6
# A GPU of which nothing is known but its driver's answers: ratios between formats as on most.
_UNKNOWN_FLOPS = {"fp32": 2e13, "tf32": 4e13, "fp16": 8e13, "bf16": 8e13}
_UNKNOWN_BANDWIDTH = 6e11

# Passes over the scores of a chunk: written by a product, turned into the gradient, read by two products.
_SCORE_PASSES = 4
# Kernels of a step and of a block of TracIn, counted with torch's CUDA build over emulated GPUs and held by
# tests/planning/test_step_time.py; how many a library makes of one product is not known there: each counts once.
_STEP_KERNELS = 84  # a batch, the encoder forward and backward, the optimizer
_BATCH_NORM_KERNELS = 119
_PRECISION_KERNELS = {"fp16": 35, "bf16": 13}  # copies of weights, and fp16's scaling of gradients
_SOFTMAX_KERNELS = 10
_CHUNK_KERNELS = {"sigmoid": 16, "softmax": 29}
_HALF_CHUNK_KERNELS = 5
_REPLAYED_STEP_KERNELS = 23  # a batch, and one launch of the step's graph
_BLOCK_KERNELS = {"target": 118, "entities": 129}
_BLOCK_CHUNK_KERNELS = 11
_QUESTIONS_KERNELS, _QUESTION_KERNELS = 37, 3  # of a block of questions, and of each
_PAIRS_KERNELS, _PAIRS_CHUNK_KERNELS = 35, 11
_CANDIDATES = 8  # triples of a prediction's two entities, over triples an entity: those asked about have more
# The image network: passes over a map of a stage, written and read, there and back; kernels of a step, and of its
# convolutions, which are gone through frame by frame where activations are recomputed.
_MAP_PASSES = 24
_REGRESS_KERNELS, _IMAGE_KERNELS = 60, 135
_PRECISION_REGRESS_KERNELS = {"fp16": 69, "bf16": 56}
_PRECISION_IMAGE_KERNELS = 46
# So many fewer where torch.compile makes the kernels: of a step and its norms, and of convolutions and their casts.
_FUSED_KERNELS, _FUSED_NORM_KERNELS = 5, 64
_FUSED_IMAGE_KERNELS, _FUSED_CAST_KERNELS = 30, 32
_FUSED = 2  # passes over a map in one, where torch.compile makes the kernels; not measured on a GPU
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
    cores: int = 1  # that a run may use, of a CPU; the other rates are a core's

    def of(self, precision: str) -> float:
        return self.flops.get(precision, self.flops["fp32"])


@dataclass(frozen=True, slots=True)
class StepTime:
    """Modelled time of one optimizer step, and of a block of training triples for TracIn."""

    seconds: float
    launches: int
    limit: str  # what takes the longest: "launches", or of the GPU's work "operations" or "bytes"


def rates_of(target: Target) -> Rates:
    if not target.on_gpu:
        core = Rates(_CORE_FLOPS, _CORE_BANDWIDTH, _CORE_LAUNCH, _CORE_STEP, _CORE_CACHE, overlaps=False)
        return replace(core, cores=len(os.sched_getaffinity(0)))
    if target.known is None:
        return Rates(_UNKNOWN_FLOPS, _UNKNOWN_BANDWIDTH, _GPU_LAUNCH)
    return Rates(_gpu_flops(target.known), target.known.bandwidth_gb_s * 1e9, _GPU_LAUNCH)


def seconds(shape: Shape, rates: Rates) -> float:
    """Modelled seconds of a training epoch, of all answers, or of a TracIn run over all tests and checkpoints."""
    return step_time(shape, rates).seconds * _steps(shape)


def time_kind(job: Job) -> str:
    """Runs of one kind are off the model by a similar factor."""
    settings = job.settings
    kind = kind_of(
        *(job.workload, settings.get("engine"), settings.get("model")),
        shared_out=devices_of(job) != 1,
    )
    if job.workload != "tracin":
        return kind
    return (
        f"{kind} {does_of(settings)} {settings['loss'] or ('target' if settings['run'] is None else 'train')}"
    )


def _steps(shape: Shape) -> int:
    """Optimizer steps of an epoch, blocks of questions, or blocks of training triples of a TracIn run."""
    if isinstance(shape, TrainShape):
        return max(1, math.ceil(shape.queries.queries / shape.batch_size))
    if isinstance(shape, RegressShape):
        return shape.steps
    if isinstance(shape, PredictShape):
        return math.ceil(_asked(shape) / shape.at_once)
    if isinstance(shape, ExplainShape):
        return _explained_blocks(shape)
    tests = shape.tests if shape.does == "trace" else 1  # self-influence
    tiles = math.ceil(tests / max(_tests_of_a_block(shape), 1))
    blocks = math.ceil(shape.counts.train / max(shape.block, 1))
    return shape.checkpoints * tiles * blocks


def step_time(shape: Shape, rates: Rates) -> StepTime:
    if isinstance(shape, TrainShape):
        return _training_step(shape, rates)
    if isinstance(shape, RegressShape):
        return _regression_step(shape, rates)
    if isinstance(shape, PredictShape):
        return _questions(shape, rates)
    return _block(shape.traced if isinstance(shape, ExplainShape) else shape, rates)


def _block(shape: TracinShape, rates: Rates) -> StepTime:
    model = shape.model
    # Encoder forward and backward for each distinct query, scores over entities where the loss has them.
    groups = _queries_of_a_block(shape)
    encoder = 6 * groups * (model.features * (_kernel(model) + model.embedding_dim))
    over_entities = shape.loss != "target"
    scored = model.num_entities if over_entities else 0
    scores = 6 * groups * scored * model.embedding_dim
    chunks = math.ceil(scored / shape.chunk)
    pairs = shape.rows_each**2 * max(shape.block, 1) * _tests_of_a_block(shape)
    gram = 4 * pairs * (model.features + model.embedding_dim)
    traffic = _SCORE_PASSES * 4 * _spilled(groups * min(shape.chunk, max(scored, 1)), rates) * chunks
    threads = threads_for(step_gflop(model, shape.block) / 2, rates.cores)
    operations = (encoder + scores) / rates.of("fp32") / threads
    operations += gram / rates.of("fp32" if shape.gram == 4 else "bf16") / threads
    kernels = _BLOCK_KERNELS["entities" if over_entities else "target"] + _BLOCK_CHUNK_KERNELS * chunks
    return _timed(operations, traffic / rates.bandwidth, kernels, rates)


def _queries_of_a_block(shape: TracinShape) -> int:
    """On average. Triples are sorted by their queries for tails; of those for heads nearly each triple has its own."""
    tails = shape.counts.tails
    if not tails.answers:
        return shape.groups
    forward = math.ceil(shape.block * tails.queries / tails.answers)
    return min(shape.groups, forward + shape.block if shape.both_directions else forward)


def _tests_of_a_block(shape: TracinShape) -> int:
    return min(shape.tests if shape.does == "trace" else 1, shape.tests_of_a_tile)


def _explained_blocks(shape: ExplainShape) -> int:
    """Of candidates, and of the queries in which the curvature is seen. A prediction's entities are in many triples."""
    counts, block = shape.traced.counts, max(shape.traced.block, 1)
    candidates = _CANDIDATES * counts.train / max(counts.entities, 1)
    return shape.predictions * math.ceil(candidates / block) + math.ceil(shape.traced.fisher_queries / block)


def _questions(shape: PredictShape, rates: Rates) -> StepTime:
    """Encoder forward for each question, or for each head of all pairs, and its scores of all entities."""
    model, asked = shape.model, min(_asked(shape), shape.at_once)
    encoder = 2 * asked * model.features * (_kernel(model) + model.embedding_dim)
    scores = 2 * asked * model.num_entities * model.embedding_dim
    traffic = 2 * 4 * asked * model.num_entities / rates.bandwidth
    kernels = _QUESTIONS_KERNELS + _QUESTION_KERNELS * asked
    if shape.pairs:
        kernels = _PAIRS_KERNELS + _PAIRS_CHUNK_KERNELS * math.ceil(model.num_entities / shape.chunk)
    return _timed((encoder + scores) / rates.of("fp32"), traffic, kernels, rates)


def _asked(shape: PredictShape) -> int:
    """Questions, or heads of all pairs."""
    return max(1, shape.model.num_entities if shape.pairs else shape.questions)


def _training_step(shape: TrainShape, rates: Rates) -> StepTime:
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
    operations = (encoder + products) / rates.of(shape.precision)
    return _timed(operations, (scores + weights) / rates.bandwidth, _training_kernels(shape, chunks), rates)


def _training_kernels(shape: TrainShape, chunks: int) -> int:
    if shape.graphs:
        return _REPLAYED_STEP_KERNELS
    kind = "softmax" if shape.loss.endswith("-ce") else "sigmoid"
    kernels = _STEP_KERNELS + _PRECISION_KERNELS.get(shape.precision, 0)
    kernels += _BATCH_NORM_KERNELS if shape.model.batch_norm else 0
    if shape.compiled:
        kernels -= _FUSED_KERNELS + (_FUSED_NORM_KERNELS if shape.model.batch_norm else 0)
    kernels += _SOFTMAX_KERNELS if kind == "softmax" else 0
    return kernels + chunks * (_CHUNK_KERNELS[kind] + (_HALF_CHUNK_KERNELS if shape.low == 2 else 0))


def _regression_step(shape: RegressShape, rates: Rates) -> StepTime:
    """Convolutions in the low type; every map written, read and read again, there and back."""
    c, images = shape.model, shape.batch * shape.model.temporal_frames
    entering = (1, *c.channels)
    products = sum(9 * entering[i] * out * c.pixels(i) for i, out in enumerate(c.channels))
    maps = images * sum(out * c.pixels(i) for i, out in enumerate(c.channels))
    recomputing = 4 / 3 if shape.checkpointing else 1.0
    # Compiled, what lies between two convolutions is one kernel there and one back.
    passes = _MAP_PASSES / (1 if shape.compile == "off" else _FUSED)
    wide = 4 if shape.on_gpu and shape.compile == "off" else shape.low
    operations = recomputing * 6 * images * products / rates.of(shape.precision)
    moved = recomputing * passes * wide * maps
    moved += 4 * c.parameters * _OPTIMIZER_PASSES.get(shape.optimizer, 7)
    return _timed(operations, moved / rates.bandwidth, _regression_kernels(shape, recomputing), rates)


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


def _timed(operations: float, traffic: float, kernels: int, rates: Rates) -> StepTime:
    """`operations` and `traffic`: the seconds that the arithmetic and the memory would take alone."""
    launching = kernels * rates.launch
    busy = operations + traffic
    together = rates.step + (max(busy, launching) if rates.overlaps else busy + launching)
    limit = "launches" if launching > busy else "operations" if operations > traffic else "bytes"
    return StepTime(together, kernels, limit)


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
