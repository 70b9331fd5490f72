"""What a plan is made for: a GPU of this machine, a GPU known by name, or the CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kgops.errors import Usage
from kgops.gpus.facts import GpuFacts, facts_of_known, facts_of_reading, torch_build
from kgops.gpus.known import KnownGpu, known_by_name, known_by_short_name, short_names
from kgops.gpus.nvml import Nvml, open_nvml
from kgops.gpus.readings import GpuReading
from kgops.jobs.gpu_request import WantedGpus
from kgops.jobs.keys import nearest

__all__ = [
    "Target",
    "find_targets",
    "gpus_asked",
    "gpus_here",
    "gpus_meant",
    "processor",
    "target_of_job",
    "torch_is_for_cpus",
]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """`facts` None is the CPU. `usable_mib` is what one run can have at most, `free_mib` what is free now;
    None is unknown, as of a GPU that is not here."""

    title: str
    facts: GpuFacts | None
    known: KnownGpu | None
    usable_mib: float | None
    free_mib: float | None
    gpu_name: str | None = None  # what `--gpu` calls it, where it is in this machine
    uuid: str | None = None

    @property
    def room_mib(self) -> float | None:
        """What a prediction is held against. A run waits until its GPU has room; for host memory it does not,
        and what others hold of that is not there."""
        return self.usable_mib if self.on_gpu else self.free_mib or self.usable_mib

    @property
    def on_gpu(self) -> bool:
        return self.facts is not None


def find_targets(asked: str | None) -> list[Target]:
    """`t4` of the known GPUs, `cpu`, an index or UUID here, `all` of them; None: what a run here would get."""
    if asked == "cpu":
        return [processor()]
    known = known_by_short_name(asked) if asked else None
    if known is not None:
        return [_known(known)]
    here = gpus_here()
    if asked in (None, "auto"):
        return [_weakest(here)] if here else [processor()]
    found = _asked(here, asked)
    if found:
        return found
    if asked == "all":
        raise Usage("this machine has no GPU", f"GPUs are known by name, too: {', '.join(short_names())}")
    names = ("cpu", *(target.gpu_name or "" for target in here), *short_names())
    raise Usage(f"there is no GPU {asked!r:.60}{nearest(asked or '', dict.fromkeys(names))}")


def target_of_job(gpu_request: str | None, device: str) -> Target:
    """Where a run with this `--gpu` and `device` setting would be: the GPU it insists on, any that torch can use, or
    the CPU."""
    if device == "cpu":
        return processor()
    found = gpus_asked(gpu_request)
    return _weakest(found) if found else processor()


def gpus_asked(gpu_request: str | None) -> list[Target]:
    """Those here that a run with this `--gpu` may get, and torch can use; whoever names some insists on them."""
    return [] if gpu_request is None and torch_is_for_cpus() else gpus_meant(gpu_request)


def gpus_meant(gpu_request: str | None) -> list[Target]:
    """Those that `--gpu` means, whether torch can use them or not."""
    return _asked(gpus_here(), gpu_request)


def torch_is_for_cpus() -> bool:
    """Whether the torch that is installed can use no GPU."""
    build = torch_build()
    return build is not None and build.cuda is None


def _asked(here: list[Target], gpu_request: str | None) -> list[Target]:
    ask = WantedGpus.read(gpu_request)
    return [
        one
        for one in here
        if ask.includes(one.gpu_name, one.uuid, model=one.known.short_name if one.known else None)
    ]


def gpus_here() -> list[Target]:
    """Of every GPU that answers."""
    opened = open_nvml()
    if not isinstance(opened, Nvml):
        return []
    with opened:
        return [_here(gpu) for gpu in opened.gpus() if gpu.problem is None]


def processor() -> Target:
    """Its memory is the machine's, or what the control group leaves of it."""
    told = _meminfo()
    total, free = told.get("MemTotal"), told.get("MemAvailable")
    limit = _group_limit()
    if limit is not None and (total is None or limit < total):
        total, free = limit, None if free is None else min(free, limit)
    return Target("the CPU", None, None, total, free)


def _known(gpu: KnownGpu) -> Target:
    # Without a dump of the driver's reserve the nominal memory is all there is to go by.
    usable = gpu.usable_mib if gpu.usable_mib is not None else gpu.memory_mib
    return Target(gpu.title, facts_of_known(gpu), gpu, usable, None)


def _here(gpu: GpuReading) -> Target:
    total = gpu.memory_total_mib
    usable = None if total is None else total - (gpu.memory_reserved_mib or 0)
    known = known_by_name(gpu.name) if gpu.name else None
    facts = facts_of_reading(gpu)
    return Target(facts.name, facts, known, usable, gpu.memory_free_mib, str(gpu.index), gpu.uuid)


def _weakest(targets: list[Target]) -> Target:
    """While the choice is open: what suits the one of least capability and memory suits all."""
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
    """Of the control group this process is in, version 2; its parents' count too."""
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
