"""Applies and reports the option memory_cleanup in a worker."""

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
    """For a process that does not report it. On unless disabled, as in the original scripts."""
    if device.type != "cuda" or not job.options.get(_NAME, True):
        return OFF
    return MemoryCleanup(CudaMemory(device))


@contextmanager
def memory_cleanup(
    job: Job, device: torch.device, report: Reporter, *, process: str | None = None
) -> Iterator[MemoryCleanup]:
    """Reports the option at entry and exit. `process`: which of several processes the counts are of."""
    requested = job.options.get(_NAME, "auto")
    if not requested or device.type != "cuda":
        report.option(_NAME, requested, "off", "no CUDA device" if requested else None)
        yield OFF
        return
    report.option(_NAME, requested, "on", None)

    def report_on(summary: str) -> None:
        report.option(_NAME, requested, "on", f"{summary} ({process})" if process else summary)

    # Also reported at the first cleanup: a killed worker does not get to report at its end.
    cleanup = MemoryCleanup(CudaMemory(device), on_first=report_on)
    try:
        yield cleanup
    finally:
        report_on(cleanup.summary)
