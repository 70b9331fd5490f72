"""Applied options of a regression, with reasons."""

from __future__ import annotations

from collections.abc import Iterator

from kgops.jobs.job import Job
from kgops.jobs.on_device import (
    Applied,
    WorkerDevice,
    applied_cleanup,
    gradient_scaling,
    on_or_off,
    training_compile,
    training_precision,
)
from kgops.workloads.regress.chunk_sizes import REGRESS_BATCH, REGRESS_FRAMES
from kgops.workloads.regress.job import REGRESS


def regression_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    requested = job.options
    precision, precision_reason = training_precision(requested.get("precision", "fp32"), device)
    batch, microbatch = (
        requested.get("batch_size", REGRESS_BATCH),
        requested.get("microbatch", "auto"),
    )
    checkpointing = bool(requested.get("gradient_checkpointing", False))
    yield Applied("precision", precision, precision_reason)
    yield Applied("batch_size", batch)
    if microbatch == "auto":
        yield Applied("microbatch", batch, "the whole batch")
    else:
        yield Applied(
            "microbatch", min(microbatch, batch), "at most the batch size" if microbatch > batch else None
        )
    yield Applied("temporal_frames", requested.get("temporal_frames", REGRESS_FRAMES))
    yield Applied(
        "gradient_checkpointing", on_or_off(checkpointing), "frame by frame" if checkpointing else None
    )
    yield Applied("compile", *training_compile(job, device, checkpointing))
    yield gradient_scaling(requested, precision)
    yield applied_cleanup(job, device)
    for name, value in requested.items():
        if name == "memory_optimized":
            yield Applied(name, on_or_off(value), "half the channels" if value else None)
        elif name == "num_workers":
            why = "one thread reads the next windows while a step runs"
            yield Applied(name, 1, why if value != 1 else None)
        elif name != "memory_cleanup" and name not in REGRESS.optimizations:
            yield Applied(name, "off", "regression has no such option")
