"""What planning asks of a training: sizes, time, disk use, OOM fallbacks, applied options. And the trained model that
another job reads, known without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.files import read_json
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice
from kgops.jobs.option import Effect
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.plan import (
    CHECKPOINT,
    GRAPH_MODES,
    OPTIMIZER_PASSES,
    RECORD,
    RESUME_CHECKPOINT,
    SCORE_PASSES,
    Count,
    DiskUse,
    Fallbacks,
    Options,
    Rates,
    Stage,
    Step,
    StepTime,
    chunk,
    other_precisions,
    smaller_batches,
    smaller_chunks,
    spilled,
    timed,
    unknown_data,
    with_options,
)
from kgops.workloads.train import memory
from kgops.workloads.train.job import pykeen_options, training_options
from kgops.workloads.train.models import ModelConfig, buffer_bytes, kernel, model_of_config, weight_bytes
from kgops.workloads.train.options import TRAIN_BATCH, loss_chunk
from kgops.workloads.train.sizes import TrainShape, train_shape

EXACT = {"entity_chunk": (512, 2048, 8192, 32768), "gradient_checkpointing": (True,)}
peak_memory = memory.peak_memory
rounding_choices = other_precisions


def stages(job: Job, count: Count) -> list[Stage] | str:
    if job.settings["engine"] != "kgops":
        return "there is no formula for PyKEEN's models"
    counts = count(job.settings)
    if counts is None:
        return unknown_data(job.settings)

    def shape(options: Options, gpu: GpuFacts | None, counts: Counts) -> TrainShape | None:
        return train_shape(with_options(job, options), counts, gpu)

    return [Stage(job, counts, shape)]


def applied(job: Job, device: WorkerDevice, processes: tuple[int | None, str | None]) -> Iterator[Applied]:
    del processes  # a training has one
    by_kgops = job.settings["engine"] == "kgops"
    return training_options(job, device) if by_kgops else pykeen_options(job, device)


def fallbacks(job: Job, gpu: GpuFacts | None) -> list[Fallbacks]:
    return fallbacks_of(job, job.settings, gpu)


def fallbacks_of(job: Job, settings: Mapping[str, Any], gpu: GpuFacts | None) -> list[Fallbacks]:
    """Of a job with this training stage."""
    kind = PyKEENFallbacks if settings["engine"] == "pykeen" else TrainFallbacks
    return [kind.of(job, settings, gpu)]


def smaller_results(job: Job, counts: Counts) -> Iterator[tuple[str, Any]]:
    every = job.settings["checkpoint_frequency"]
    for times in (2, 5, 10, 20, 50) if every else ():
        yield "checkpoint_frequency", every * times


# Kernels of a step and of a block of TracIn, counted with torch's CUDA build over emulated GPUs.
# tests/planning/test_step_time.py checks them. How many a library makes of one product is not known there: each counts
# once.
_STEP_KERNELS = 84  # a batch, the encoder forward and backward, the optimizer
_BATCH_NORM_KERNELS = 119
_PRECISION_KERNELS = {"fp16": 35, "bf16": 13}  # copies of weights, and fp16's scaling of gradients
_SOFTMAX_KERNELS = 10
_CHUNK_KERNELS = {"sigmoid": 16, "softmax": 29}
_HALF_CHUNK_KERNELS = 5
_REPLAYED_STEP_KERNELS = 23  # a batch, and one launch of the step's graph
# So many fewer where torch.compile makes the kernels: of a step and its norms, and of convolutions and their casts.
_FUSED_KERNELS, _FUSED_NORM_KERNELS = 5, 64


def step_time(shape: TrainShape, rates: Rates) -> StepTime:
    model, batch = shape.model, shape.batch
    encoder: float = 6 * batch * model.features * (kernel(model) + model.embedding_dim)
    if shape.checkpointing:
        encoder += encoder / 3  # forward once more
    products = 6 * batch * model.num_entities * model.embedding_dim
    chunks = math.ceil(model.num_entities / shape.chunk)
    scores = SCORE_PASSES * shape.low * spilled(batch * min(shape.chunk, model.num_entities), rates) * chunks
    parameters = (model.num_entities + 2 * model.num_relations) * model.embedding_dim
    parameters += model.features * model.embedding_dim
    weights = 4 * parameters * OPTIMIZER_PASSES.get(shape.optimizer, 7)
    operations = (encoder + products) / rates.of(shape.precision)
    return timed(operations, (scores + weights) / rates.bandwidth, _training_kernels(shape, chunks), rates)


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


def steps(shape: TrainShape) -> int:
    """Optimizer steps of an epoch."""
    return max(1, math.ceil(shape.queries.queries / shape.batch_size))


class TrainFallbacks(Fallbacks):
    """ConvE by kgops' own engine."""

    def start(self, entities: int | None) -> dict[str, Any]:
        requested = self.job.options
        batch, device = requested.get("batch_size", TRAIN_BATCH), "cuda" if self.gpu else "cpu"
        return {
            "batch_size": batch,
            "entity_chunk": chunk(requested, loss_chunk(None, batch, device), entities),
            "gradient_checkpointing": requested.get("gradient_checkpointing", False),
            "cuda_graphs": requested.get("cuda_graphs", False) if self.gpu else False,
            "compile": "off" if self._skips_compile else requested.get("compile", "off"),
            "precision": self._precision(),
        }

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "exact":
            yield from smaller_chunks(now)
            yield {"cuda_graphs": False}, "a captured CUDA graph keeps its memory"
            if now["compile"] not in GRAPH_MODES:
                yield {"gradient_checkpointing": True}, "activations are recomputed instead of kept"
        elif effect == "rounding":
            if now["compile"] in GRAPH_MODES and self.gpu:
                yield {"compile": "default"}, "no memory kept by captured CUDA graphs"
                yield {"gradient_checkpointing": True}, "activations are recomputed instead of kept"
            elif not self.gpu:
                yield {"compile": "off"}, "torch.compile takes memory"
            yield from self._lower_precision(now)
        else:
            yield from smaller_batches(now)


class PyKEENFallbacks(Fallbacks):
    """PyKEEN's pipeline: only the batch size changes its memory."""

    def start(self, entities: int | None) -> dict[str, Any]:
        return {"batch_size": self.job.options.get("batch_size", TRAIN_BATCH)}

    def steps(self, effect: Effect, now: Mapping[str, Any]) -> Iterator[Step]:
        if effect == "changes results":
            yield from smaller_batches(now)


_TRAINING_IN_RECORD = 4 << 10  # beside that: configuration, history and more events
_GROUP_IN_QUALITY = 270  # of a relation, direction or degree in the quality by group
_GROUPS = 10  # of directions and degrees
_EPOCH_IN_RECORD = 1 << 10  # in the record


def disk_use(job: Job, counts: Counts, shape: TrainShape | None, seconds: float) -> DiskUse | None:
    """`seconds` is about how long it takes: one that goes on for longer has a point to resume from before its last."""
    if shape is None:
        return None
    settings = job.settings
    every = settings["checkpoint_frequency"]
    tracin_checkpoints = settings["num_epochs"] // every if every else 0
    model = weight_bytes(shape.model) + buffer_bytes(shape.model) + CHECKPOINT
    moments = memory.MOMENTS[shape.optimizer]
    resume_checkpoint = model + moments * weight_bytes(shape.model) + RESUME_CHECKPOINT - CHECKPOINT
    resume_checkpoints = 2 if seconds >= settings["resume_every"] else 1
    parts = {
        "checkpoints for TracIn": tracin_checkpoints * model,
        "models": (1 + shape.validates) * model,
        "points to resume from": resume_checkpoints * resume_checkpoint,
        "record": RECORD + _TRAINING_IN_RECORD + _EPOCH_IN_RECORD * settings["num_epochs"],
    }
    if shape.test:
        parts["quality"] = _GROUP_IN_QUALITY * (min(shape.model.num_relations, shape.test) + _GROUPS)
    copied = (tracin_checkpoints + 1 + shape.validates) * model
    outside = {settings["output_dir"]: copied} if settings["output_dir"] else {}
    # The next is whole before the one that it replaces goes.
    return DiskUse(parts, outside, (3 - resume_checkpoints) * resume_checkpoint, 2 * (tracin_checkpoints + 4))


_UNKNOWN_MODEL = (
    "there is no config.json next to the model, and only torch could read the model's size from its weights"
)


def trained_model(job: Job, count: Count) -> tuple[ModelConfig, Mapping[str, Any], Counts] | str:
    """The model that a job reads, the settings of its training, and the counts of its graph."""
    config = config_beside(job.settings)
    model = model_of_config(config) if config is not None else None
    if config is None or model is None:
        return _UNKNOWN_MODEL
    counts = count(job.settings)
    if counts is None:
        return unknown_data(job.settings)
    training = config.get("training")
    return model, {"loss": None, **(training if isinstance(training, dict) else {})}, counts


def config_beside(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config.json that training wrote next to its models or next to the folder of its checkpoints."""
    candidates = []
    if settings["checkpoint_dir"]:
        folder = Path(settings["checkpoint_dir"])
        candidates += [folder.parent / "config.json", folder / "config.json"]
    if settings["model_path"]:
        candidates.append(Path(settings["model_path"]).parent / "config.json")
    for path in candidates:
        table = read_json(path, follow=True)
        if isinstance(table, dict):
            return table
    return None
