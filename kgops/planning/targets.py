"""The GPU or CPU that a plan is for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kgops.errors import Usage
from kgops.gpus.facts import GpuFacts, facts_of_known, facts_of_reading
from kgops.gpus.known import KnownGpu, known_by_name, known_by_short_name, short_names
from kgops.gpus.readings import GpuReading, Snapshot, usable
from kgops.gpus.sampler import read_within
from kgops.jobs.option_reading import nearest
from kgops.jobs.run_options import WantedGpus

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """`facts` None is the CPU. `usable_mib` is the most one run can use, `free_mib` is free now; None: unknown,
    as for a GPU that is not in this machine. A plan for GPUs here has it by `supervisor/gpu_room`."""

    title: str
    facts: GpuFacts | None
    known: KnownGpu | None
    usable_mib: float | None
    free_mib: float | None
    gpu_name: str | None = None  # what `--gpu` calls it, where it is in this machine
    uuid: str | None = None
    limit_mib: int | None = None  # of each process of the job; on the CPU only

    @property
    def room_mib(self) -> float | None:
        """Memory that a prediction must fit. For a GPU it is the usable memory, since runs wait for it. For a CPU
        it is free memory, or a lower limit of the job."""
        return self.limit_mib if self.is_limited else self._machine_mib

    @property
    def taken_mib(self) -> float:
        """What others use of a GPU, or have reserved; 0 where that is unknown."""
        if not self.on_gpu or self.usable_mib is None or self.free_mib is None:
            return 0.0
        return max(self.usable_mib - self.free_mib, 0.0)

    @property
    def is_limited(self) -> bool:
        """Whether the job's limit is what it must fit."""
        room = self._machine_mib
        return self.limit_mib is not None and (room is None or self.limit_mib <= room)

    @property
    def _machine_mib(self) -> float | None:
        return self.usable_mib if self.on_gpu else self.free_mib or self.usable_mib

    @property
    def on_gpu(self) -> bool:
        return self.facts is not None


def find_targets(requested: str | None) -> list[Target]:
    """`t4` of the known GPUs, `cpu`, an index or UUID here, or `all`; None: the target of a run here."""
    if requested == "cpu":
        return [cpu_target()]
    known = known_by_short_name(requested) if requested else None
    if known is not None:
        return [_known(known)]
    here = gpus_here()
    if requested in (None, "auto"):
        return [weakest(here)] if here else [cpu_target()]
    if selected := gpus_here(requested):
        return selected
    if requested == "all":
        raise Usage("this machine has no GPU", f"name a GPU model instead: {', '.join(short_names())}")
    names = ("cpu", *(target.gpu_name or "" for target in here), *short_names())
    raise Usage(f"there is no GPU {requested!r:.60}{nearest(requested or '', dict.fromkeys(names))}")


def target_of_job(gpu_request: str | None, device: str) -> Target:
    """The target of a run with this `--gpu` and `device`: the requested GPU, any that torch can use, or the CPU."""
    if device == "cpu":
        return cpu_target()
    gpus = requested_gpus(gpu_request)
    return weakest(gpus) if gpus else cpu_target()


def requested_gpus(gpu_request: str | None) -> list[Target]:
    """GPUs here that a run with this `--gpu` may get; without a request only if torch can use GPUs."""
    gpus = gpus_here(gpu_request)
    return [gpu for gpu in gpus if gpu_request is not None or (gpu.facts and gpu.facts.cuda_problem) is None]


def gpus_here(gpu_request: str | None = None) -> list[Target]:
    """Targets of all GPUs that answer and that `--gpu` selects, whether torch can use them or not."""
    read, wanted = read_within(), WantedGpus.read(gpu_request)
    return [_here(gpu, read) for gpu in usable(read.gpus) if gpu.problem is None and gpu.is_wanted(wanted)]


def cpu_target() -> Target:
    """The CPU with the machine's memory, or the limit of the control group."""
    meminfo = _meminfo()
    total, free = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
    limit = _group_limit()
    if limit is not None and (total is None or limit < total):
        total, free = limit, None if free is None else min(free, limit)
    return Target("the CPU", None, None, total, free)


def _known(gpu: KnownGpu) -> Target:
    # Without a known driver reserve the nominal memory is used.
    usable = gpu.usable_mib if gpu.usable_mib is not None else gpu.memory_mib
    return Target(gpu.title, facts_of_known(gpu), gpu, usable, None)


def _here(gpu: GpuReading, read: Snapshot) -> Target:
    total = gpu.memory_total_mib
    usable = None if total is None else total - (gpu.memory_reserved_mib or 0)
    known = known_by_name(gpu.name) if gpu.name else None
    facts = facts_of_reading(gpu, read)
    return Target(facts.name, facts, known, usable, gpu.memory_free_mib, gpu.names[0], gpu.uuid)


def weakest(targets: list[Target]) -> Target:
    """The GPU of least capability and memory: a plan for it suits the others."""
    return min(
        targets, key=lambda t: ((t.facts and t.facts.compute_capability) or (99, 0), t.usable_mib or 0)
    )


def _meminfo() -> dict[str, float]:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return {}
    return {name: int(kib) / 1024 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def _group_limit() -> float | None:
    """Memory limit of this process's control group (version 2) and its parents, in MiB."""
    try:
        path = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
    except OSError:
        return None
    folder, limits = Path("/sys/fs/cgroup") / path, []
    for one in (folder, *folder.parents):
        try:
            text = (one / "memory.max").read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text) / _MIB)
    return min(limits, default=None)
