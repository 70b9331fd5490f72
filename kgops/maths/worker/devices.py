"""The devices, threads, GPU memory budget and memory cleanup of a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kgops.jobs.job import Job
from kgops.jobs.on_device import cpu_processes
from kgops.jobs.run_options import GPU_BUDGET
from kgops.maths.models.products import note_of_library
from kgops.maths.worker.memory_cleanup import OFF, CudaMemory, MemoryCleanup
from kgops.maths.worker.report import Reporter
from kgops.workloads.train.models import threads_for

_MIB = 1 << 20


def keep_to_budget(device: torch.device) -> None:
    """Limits torch's allocator to the budget of this run on `device`; without a budget, or on a CPU, not at all."""
    budget = os.environ.get(GPU_BUDGET)
    if budget and device.type == "cuda":
        limit_gpu(device, round(float(budget) * _MIB))


def limit_gpu(device: torch.device, size: int) -> None:
    """torch gives cached segments back before it reserves more bytes than `size`; then it raises out of memory.

    Blocks of many sizes would otherwise leave segments in the cache that no later block fits into.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / torch.cuda.mem_get_info(index)[1]), index)


def devices_for(requested: int | str, device: torch.device) -> tuple[list[str], str | None]:
    """One device for each process, and why they differ from the request. A single process has `device`."""
    single = [str(device)]
    if requested == 1:
        return single, None
    if device.type == "cpu":
        processes, why = cpu_processes(requested)
        return ["cpu"] * processes, why
    count = torch.cuda.device_count()
    if requested == "all":
        return [f"cuda:{index}" for index in range(count)], None
    # GPU numbers are the machine's; a run sees only its GPUs, numbered from 0.
    wanted = requested if isinstance(requested, int) else requested.count(",") + 1
    devices = [f"cuda:{index}" for index in range(min(wanted, count))]
    return devices or single, None if len(devices) == wanted else f"this run was given {count}"


_AT_MOST = torch.get_num_threads()  # torch's default


def keep_to_one_thread() -> None:
    """Until threads are chosen, so that this process can be forked: torch starts threads at its first large product."""
    torch.set_num_threads(1)


def choose_threads(gflop: float, what: str, device: torch.device, report: Reporter) -> None:
    """Chooses threads by the GFLOP of one step or block, unless OMP_NUM_THREADS is set."""
    if device.type != "cpu":
        return
    if (library := note_of_library()) is not None:
        report.note(library)
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(_AT_MOST)
        report.note(f"using {_many(_AT_MOST)}, the number in OMP_NUM_THREADS.")
        return
    cores = max(1, min(_AT_MOST, len(os.sched_getaffinity(0))))
    threads = threads_for(gflop, cores)
    torch.set_num_threads(threads)
    waits = ", which spin while they wait" if threads > 1 and _threads_spin() else ""
    report.note(
        f"using {threads} of {_many(cores)}{waits}, since {what} is about {gflop:.2g} GFLOP; "
        "set OMP_NUM_THREADS to change"
    )


def _many(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def _threads_spin() -> bool:
    spins = os.environ.get("GOMP_SPINCOUNT")
    if spins is not None:
        return spins.strip() != "0"
    return os.environ.get("OMP_WAIT_POLICY", "").strip().upper() == "ACTIVE"


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
