"""Applied options of a training, with reasons."""

from __future__ import annotations

from collections.abc import Iterator

from kgops.jobs.job import Job
from kgops.jobs.on_device import (
    NO_GPU,
    NOTHING_TO_LOAD,
    Applied,
    ValueAndReason,
    WorkerDevice,
    applied_cleanup,
    gradient_scaling,
    on_or_off,
    training_compile,
    training_precision,
)
from kgops.workloads.train.chunk_sizes import TRAIN_BATCH, loss_chunk
from kgops.workloads.train.job import TRAIN


def training_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of a training by kgops' own engine."""
    requested = job.options
    precision, precision_reason = training_precision(requested.get("precision", "fp32"), device)
    batch, chunk = requested.get("batch_size", TRAIN_BATCH), requested.get("entity_chunk", "auto")
    checkpointing = bool(requested.get("gradient_checkpointing", False))
    yield Applied("precision", precision, precision_reason)
    yield Applied("batch_size", batch)
    if chunk != "auto":
        yield Applied("entity_chunk", chunk)
    else:
        default_chunk = loss_chunk(None, batch, device.kind)
        yield Applied("entity_chunk", default_chunk, "by device and batch size")
    yield Applied("gradient_checkpointing", on_or_off(checkpointing))
    yield Applied("compile", *training_compile(job, device, checkpointing))
    yield Applied("cuda_graphs", *_cuda_graphs(requested.get("cuda_graphs", False), device))
    yield gradient_scaling(requested, precision)
    plain = device.kind == "cuda" and job.settings["optimizer"] == "adagrad"
    fused = "training uses torch's fused optimizer step where it exists"
    yield Applied(
        "optimizer_kernel",
        "plain" if plain else "fused",
        fused if requested.get("optimizer_kernel") == "plain" else None,
    )
    yield applied_cleanup(job, device)
    for name in requested:
        if name == "num_workers":
            yield Applied(name, 0, NOTHING_TO_LOAD)
        elif name == "grad_clip":
            yield Applied(name, requested[name])
        elif name not in TRAIN.optimizations:
            yield Applied(name, "off", "training has no such option")


def _cuda_graphs(is_requested: bool, device: WorkerDevice) -> ValueAndReason:
    if not is_requested:
        return "off", None
    return ("on", None) if device.kind == "cuda" else ("off", NO_GPU)


def pykeen_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of PyKEEN's pipeline."""
    requested = job.options
    precision = requested.get("precision", "fp32")
    yield Applied("batch_size", requested.get("batch_size", TRAIN_BATCH))
    yield Applied("precision", "fp32", None if precision == "fp32" else "PyKEEN's pipeline trains in float32")
    yield applied_cleanup(job, device)
    for name, value in {"gradient_checkpointing": False, **requested}.items():
        if name in ("num_workers", "grad_clip"):
            yield Applied(name, value)
        elif name not in ("batch_size", "precision", "memory_cleanup"):
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "PyKEEN's pipeline has no such option")
