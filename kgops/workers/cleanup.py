"""The option memory_cleanup of a worker: what was asked for, whether it is on, and in the end what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kgops.jobs.job import Job
from kgops.training.memory_cleanup import OFF, CudaMemory, MemoryCleanup
from kgops.workers.report import Reporter

__all__ = ["cleanup_for", "memory_cleanup"]

_NAME = "memory_cleanup"


def cleanup_for(job: Job, device: torch.device) -> MemoryCleanup:
    """For a process that reports nothing of it. On unless somebody disabled it, as in the group's scripts."""
    if device.type != "cuda" or not job.options.get(_NAME, True):
        return OFF
    return MemoryCleanup(CudaMemory(device))


@contextmanager
def memory_cleanup(
    job: Job, device: torch.device, report: Reporter, *, whose: str | None = None
) -> Iterator[MemoryCleanup]:
    """For as long as this lasts. `whose`: which process the counts are of, where there are several."""
    asked = job.options.get(_NAME, "auto")
    if not asked or device.type != "cuda":
        report.option(_NAME, asked, "off", "no CUDA device" if asked else None)
        yield OFF
        return
    report.option(_NAME, asked, "on", None)

    def tell(summary: str) -> None:
        report.option(_NAME, asked, "on", f"{summary} ({whose})" if whose else summary)

    # Told the first time too: of a worker that is killed later nobody else would hear it.
    cleanup = MemoryCleanup(CudaMemory(device), on_first=tell)
    try:
        yield cleanup
    finally:
        tell(cleanup.summary)
