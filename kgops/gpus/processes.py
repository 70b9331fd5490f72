"""GPU memory of a process tree, also inside containers, where the driver reports other PIDs."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kgops.gpus.readings import GpuReading, ProcessReading, Snapshot, usable
from kgops.jobs.text import from_bytes


def sees_host_pids() -> bool:
    """Whether this process counts processes as the driver does: False inside a container of its own PIDs."""
    try:
        # The kernel's first PID namespace has this fixed inode (PROC_PID_INIT_INO).
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"  # noqa: PTH115  no path
    except OSError:
        return False


def tree_memory_mib(
    gpus: Iterable[GpuReading], pids: Collection[int], *, host_pids: bool | None = None
) -> dict[str, int | None]:
    """Memory that the processes `pids` hold on each GPU, by the GPU's uuid; None where it is hidden.

    A tree that no GPU lists holds 0, except in a container: there the driver speaks of other PIDs or of
    none, an unlisted tree says nothing, and the answer is None. It is None beside an MPS server, too: before
    Volta the driver lists the server alone, with the memory of its clients. The slices of a GPU count for the GPU.
    """
    same_pids = sees_host_pids() if host_pids is None else host_pids
    held: dict[str, int | None] = {}
    for gpu in gpus:
        if gpu.uuid is not None:
            held[gpu.uuid] = _tree_on_gpu(all_processes(gpu), pids, same_pids)
    return held


def all_processes(gpu: GpuReading) -> tuple[ProcessReading, ...] | None:
    """A GPU's processes; with MIG, those of its slices, since the GPU itself answers only to root."""
    if not gpu.slices:
        return gpu.processes
    joined: list[ProcessReading] = []
    for mig_slice in gpu.slices:
        if mig_slice.processes is None:
            return gpu.processes
        joined.extend(mig_slice.processes)
    return tuple(joined)


def _tree_on_gpu(
    processes: tuple[ProcessReading, ...] | None, pids: Collection[int], same_pids: bool
) -> int | None:
    held = [process.used_mib for process in processes or () if process.pid in pids]
    if not held:
        return 0 if lists_every_process(processes, host_pids=same_pids) else None
    return sum_of(held)


DRIVERS_MIB = 64  # a GPU's used memory up to this may be the driver's own


def lists_every_process(
    processes: tuple[ProcessReading, ...] | None, *, host_pids: bool | None = None
) -> bool:
    """Whether a process that the driver does not list uses no memory of the GPU."""
    same_pids = sees_host_pids() if host_pids is None else host_pids
    return same_pids and processes is not None and not any(is_mps_server(one.pid) for one in processes)


def sum_of(held: Iterable[int | None]) -> int | None:
    """Their sum; None if one is unknown."""
    total = 0
    for used_mib in held:
        if used_mib is None:
            return None
        total += used_mib
    return total


def is_mps_server(pid: int) -> bool:
    """Whether the process is `nvidia-cuda-mps-server`; the kernel keeps 15 characters of a name."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:  # noqa: PTH123  quicker for many processes
            return name.read().strip() == "nvidia-cuda-mps-server"[:15]
    except OSError:
        return False


MemorySource = Literal["processes", "memory change"]


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Memory of a process tree on the GPU where it holds most, and how it was determined; None is unknown."""

    mib: int | None
    source: MemorySource | None


class TreeMemory:
    """Follows the memory of one process tree, also where the driver does not name its processes.

    In a container the driver speaks of other PIDs or of none. There the change of a GPU's memory since
    before the tree used it is the tree's, as long as no other process used that GPU.
    """

    def __init__(self, own_gpus: Collection[str], born_at: float | None) -> None:
        """`own_gpus`: uuids of GPUs that no other run is given. `born_at`: when the tree began; None is
        unknown, and then no reading is old enough to be taken for the GPUs without it."""
        self._own_gpus = own_gpus
        self._born_at = born_at
        self._before: dict[str, GpuReading] = {}
        self._first = True

    def of(self, snapshot: Snapshot, pids: Collection[int], *, host_pids: bool | None = None) -> HeldMemory:
        if self._first and snapshot.gpus:
            self._first = False
            self._before = self._untouched(snapshot)
        named = list(tree_memory_mib(snapshot.gpus, pids, host_pids=host_pids).values())
        known = [mib for mib in named if mib is not None]
        if known and (any(known) or None not in named):
            return HeldMemory(max(known), "processes")
        return (
            HeldMemory(change, "memory change")
            if (change := self._change(snapshot)) is not None
            else _UNKNOWN
        )

    def _untouched(self, snapshot: Snapshot) -> dict[str, GpuReading]:
        """The GPUs as they were before the tree's first CUDA call."""
        if self._born_at is None or snapshot.taken_at > self._born_at + _FIRST_CUDA_CALL_S:
            return {}
        return {gpu.uuid: gpu for gpu in usable(snapshot.gpus) if gpu.uuid and gpu.uuid in self._own_gpus}

    def _change(self, snapshot: Snapshot) -> int | None:
        now = [gpu for gpu in usable(snapshot.gpus) if gpu.uuid in self._before]
        changes = [_change_of(self._before[gpu.uuid], gpu) for gpu in now if gpu.uuid]
        known = [mib for mib in changes if mib is not None]
        return max(known) if known and len(known) == len(self._own_gpus) else None


# A worker is still loading torch then, which takes a second; a reading later than that may hold its context.
_FIRST_CUDA_CALL_S = 0.5
_UNKNOWN = HeldMemory(None, None)


def _change_of(before: GpuReading, now: GpuReading) -> int | None:
    if before.memory_used_mib is None or now.memory_used_mib is None:
        return None
    # A process that ended meanwhile freed memory: the difference is then meaningless.
    left = {p.pid for p in before.processes or ()} - {p.pid for p in now.processes or ()}
    return None if left else max(now.memory_used_mib - before.memory_used_mib, 0)


_STATE, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 0, 11, 12, 19  # fields of /proc/PID/stat behind the name
_LONGEST_COMMAND = 4096
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class ProcessDetails(NamedTuple):  # made anew for every process every second
    """A living process. `start_ticks` and the PID identify it: PIDs are reused."""

    start_ticks: int
    started_at: float
    user: str
    is_own: bool  # of the user who asks
    command: str | None  # None: a process of the kernel
    cpu_percent: float | None = None  # of one CPU since the reading before; None at the first


class ProcessReader:
    """Reads processes again and again; what never changes of a process is read once."""

    def __init__(self) -> None:
        self._booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._known: dict[int, ProcessDetails] = {}
        self._cpu: dict[int, tuple[float, int]] = {}  # when, and ticks so far
        self._users: dict[int, str] = {}

    def read(self, pids: Collection[int]) -> dict[int, ProcessDetails]:
        """Details by PID, without processes that are gone or hidden from this user."""
        found: dict[int, ProcessDetails] = {}
        cpu: dict[int, tuple[float, int]] = {}
        for pid in pids:
            fields = _stat(pid)
            if fields is None:
                continue
            now, ticks = time.monotonic(), int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            known, start_ticks = self._known.get(pid), int(fields[_START_TICKS])
            if known is None or known.start_ticks != start_ticks:
                known = self._meet(pid, start_ticks)
                self._cpu.pop(pid, None)
            if known is None:
                continue
            found[pid] = known = _with_cpu(known, self._cpu.get(pid), now, ticks)
            cpu[pid] = now, ticks
        self._known, self._cpu = found, cpu
        return found

    def _meet(self, pid: int, start_ticks: int) -> ProcessDetails | None:
        try:
            uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116  quicker for many processes
            with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123  quicker for many processes
                words = file.read(_LONGEST_COMMAND).split(b"\0")
        except OSError:
            return None
        started_at = self._booted_at + start_ticks * _TICK_S
        return ProcessDetails(start_ticks, started_at, self._user(uid), uid == os.getuid(), _command(words))

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            try:
                self._users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:  # of another machine, as with files from a container
                self._users[uid] = str(uid)
        return self._users[uid]


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat behind the name; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  quicker for many processes
            raw = file.read(1024)
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split(b" ", _START_TICKS + 1)
    return None if fields[_STATE] in (b"Z", b"X") else fields


def _with_cpu(
    known: ProcessDetails, before: tuple[float, int] | None, now: float, ticks: int
) -> ProcessDetails:
    if before is None or now <= before[0]:
        return known
    percent = 100 * (ticks - before[1]) * _TICK_S / (now - before[0])
    return ProcessDetails(
        known.start_ticks, known.started_at, known.user, known.is_own, known.command, percent
    )


def _command(words: list[bytes]) -> str | None:
    """The command line with the program's name alone of its path, and without secrets."""
    from kgops.jobs.secrets import (
        masked_arguments,  # its patterns take milliseconds, and a screen opens without them
    )

    shown = masked_arguments([text for word in words if (text := from_bytes(word))])
    return " ".join([os.path.basename(shown[0]), *shown[1:]]) if shown else None  # noqa: PTH119  a text
