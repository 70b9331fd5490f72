"""The process tree of a worker, and samples of its memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from kgops.gpus.devices import has_driver
from kgops.jobs.files import read_table
from kgops.supervisor import locks, processes
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder


def _identity_of(folder: RunFolder) -> str:
    stat = folder.path.stat()
    return f"{stat.st_dev:x}-{stat.st_ino:x}"


@dataclass(frozen=True, slots=True)
class Tree:
    """An attempt's processes: the gate, its worker, and all their descendants."""

    folder: RunFolder
    number: int

    @property
    def tag(self) -> str:
        """Unique tag in the environment of the attempt's processes.

        It names the folder's device and inode, not its path: a home may have several paths, be moved during a run,
        or be copied, and the processes do not belong to the copy.
        """
        return f"{_identity_of(self.folder)}#{self.number}"

    def gate(self) -> Identity | None:
        """The gate's identity, recorded before the worker ran; it may be dead. None in a copy of the folder."""
        table = read_table(self.folder.attempt(self.number).identity)
        if table.get("tag", self.tag) != self.tag:
            return None
        return processes.identity_from(table)

    def is_alive(self) -> bool:
        """Whether a process of the tree is left. The lock tells at once; only processes that closed all inherited
        files (and so the lock) are searched by tag."""
        if locks.is_held(self.folder.worker_lock):
            return True
        gate = self.gate()
        if gate is not None and gate.boot != processes.boot_id():
            return False
        return (
            (gate is not None and gate.is_alive()) or bool(processes.tagged(self.tag)) or bool(self._marked())
        )

    def members(self) -> list[Identity]:
        """All processes but the gate."""
        gate = self.gate()
        roots = [gate.pid] if gate is not None and gate.is_alive() else []
        pids_below = processes.descendants([*roots, *processes.orphans(self.tag)])
        pids = {pid for pid in pids_below if pid not in roots}
        members = {process for pid in pids if (process := processes.identify(pid)) is not None}
        members |= {process for process in processes.tagged(self.tag) if process != gate}
        if not members and locks.is_held(self.folder.worker_lock):
            # A process overwrote its environment; the lock it inherited still identifies it.
            members = {process for process in processes.holders(self.folder.worker_lock) if process != gate}
        return list(members or self._marked())

    def _marked(self) -> list[Identity]:
        """Processes found by the mark alone: they closed all files, cleared their environment, left the session and
        lost their parent."""
        mark = read_table(self.folder.attempt(self.number).identity).get("mark")
        return processes.marked(mark) if isinstance(mark, int) and self.gate() is not None else []

    def ask_to_stop(self, *, whole_tree: bool) -> None:
        """Sends SIGTERM to the worker; with `whole_tree`, or without a gate, to the whole tree."""
        gate = self.gate()
        if whole_tree or gate is None or not gate.is_alive():
            targets = self.members()
        else:
            targets = [
                process
                for pid in processes.children(gate.pid)
                if (process := processes.identify(pid)) is not None
            ]
        for process in targets:
            processes.send(process, signal.SIGTERM)

    def end(self, *, grace_s: float, reap: Callable[[], None] = lambda: None) -> None:
        """Kills the tree and returns when no process is left. The gate goes last, since it records the exit.

        A subreaper passes `reap`, which waits for orphans: zombies stay listed.
        """
        members = self.members()
        if members and grace_s > 0:
            self.ask_to_stop(whole_tree=True)
            deadline = time.monotonic() + grace_s
            while self.members() and time.monotonic() < deadline:
                reap()
                time.sleep(0.02)
        gate_deadline = time.monotonic() + 2.0
        while True:
            members = self.members()
            for process in members:
                processes.send(process, signal.SIGKILL)
            gate = self.gate()
            if not members and gate is not None and gate.is_alive() and time.monotonic() > gate_deadline:
                processes.send(gate, signal.SIGKILL)
            reap()
            if not members and not self.is_alive():
                return
            time.sleep(0.01)


# Importing `typing` would cost every supervisor half a megabyte.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from kgops.gpus.processes import HeldMemory
    from kgops.gpus.readings import GpuReading
    from kgops.gpus.sampler import GpuSampler


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    host_mib: float | None
    gpu_mib: float | None  # on the GPU where it uses most
    gpu_method: str | None  # how it was measured: by processes, or by the GPU's memory change
    cpu_s: float | None


class Sampler:
    """Reads /proc for the tree below the gate, and NVML if the machine has GPUs."""

    def __init__(self, gate_pid: int, *, gpu: str | None, exclusive: bool, interval_s: float) -> None:
        """`gpu`: as in the run's row. `exclusive`: no other run shares it."""
        self.gate_pid = gate_pid
        self._gpus = None
        if gpu is not None or has_driver():
            from kgops.gpus.processes import TreeMemory

            self._gpus = _start_gpus(interval_s)
            self._memory = TreeMemory(
                gpu.split(",") if gpu and exclusive else (), processes.born_at(gate_pid)
            )

    def take(self) -> Sample:
        pids = [pid for pid in worker_pids(self.gate_pid) if pid != self.gate_pid]
        held = self._held(set(pids))
        return Sample(
            at=time.time(),
            host_mib=processes.host_memory_mib(pids),
            gpu_mib=held.mib if held else None,
            gpu_method=held.source if held else None,
            cpu_s=processes.cpu_seconds(pids) if pids else None,
        )

    def own_gpus(self, uuids: Collection[str]) -> list[GpuReading]:
        """The newest readings of these GPUs, or of the GPUs of these slices."""
        newest = self._gpus.newest() if self._gpus is not None else None
        return [gpu for gpu in newest.gpus if not gpu.uuids.isdisjoint(uuids)] if newest is not None else []

    def _held(self, pids: set[int]) -> HeldMemory | None:
        newest = self._gpus.newest() if self._gpus is not None else None
        return None if newest is None else self._memory.of(newest, pids)

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.stop()
            self._gpus = None


def worker_pids(gate_pid: int) -> list[int]:
    """The gate's tree, and its orphans, which we inherit as subreaper."""
    orphans = [pid for pid in processes.children(os.getpid()) if not processes.is_supervisor(pid)]
    return processes.descendants([gate_pid, *orphans])


def _start_gpus(interval_s: float) -> GpuSampler:
    """Samples in a thread: a slow driver must not delay a stop or the database."""
    from kgops.gpus.sampler import GpuSampler

    sampler = GpuSampler(interval_s)
    sampler.start()
    return sampler
