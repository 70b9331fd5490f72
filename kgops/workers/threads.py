"""Chooses and reports the number of CPU threads of a worker."""

from __future__ import annotations

import os

import torch

from kgops.training.threads import threads_for
from kgops.workers.report import Reporter

__all__ = ["choose_threads", "keep_to_one_thread"]

_AT_MOST = torch.get_num_threads()  # torch's default


def keep_to_one_thread() -> None:
    """Until threads are chosen, so that this process can be forked: torch starts threads at its first large product."""
    torch.set_num_threads(1)


def choose_threads(
    gflop: float, what: str, device: torch.device, report: Reporter, *, processes: int = 1
) -> None:
    """Chooses threads by the GFLOP of one step or block, unless OMP_NUM_THREADS is set; `processes` share the cores."""
    if device.type != "cpu":
        return
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(_AT_MOST)
        report.note(f"{_AT_MOST} threads, as OMP_NUM_THREADS says.")
        return
    cores = max(1, min(_AT_MOST, len(os.sched_getaffinity(0))) // processes)
    threads = threads_for(gflop, cores)
    torch.set_num_threads(threads)
    many = f"{threads} thread{'s' if threads > 1 else ''}"
    report.note(f"{many} of {cores}: {what} is about {gflop:.2g} GFLOP. OMP_NUM_THREADS=N decides otherwise.")
