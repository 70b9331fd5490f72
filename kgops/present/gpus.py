"""GPUs as a person needs them: who holds what of each, by kgops' runs and by other users, and their processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kgops.gpus.processes import ProcessDetails, ProcessReader, all_processes, sum_of
from kgops.gpus.readings import GpuReading, ProcessReading, usable
from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.gpu_room import Share, held_mib, room_mib
from kgops.supervisor.on_gpus import Owners, RunOnGpu
from storage.database import Connection
from storage.runs import Run


class GpuProcess(NamedTuple):
    """A process on a GPU or MIG slice. None: the driver, the kernel or a container hides it."""

    gpu: str  # `1`, or `1:0` for a slice
    pid: int
    used_mib: int | None
    sm_percent: int | None
    run: int | None
    user: str | None
    is_own: bool
    cpu_percent: float | None
    started_at: float | None
    start_ticks: int | None  # with the PID, which process it is
    command: str | None
    is_mps_client: bool


@dataclass(frozen=True, slots=True)
class OtherUser:
    """A user with processes on a GPU that belong to no run. `used_mib`: None if the driver hides one of them."""

    name: str | None
    used_mib: int | None


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """A GPU, or a slice of one: kgops' runs on it, their reservations, and all processes."""

    reading: GpuReading
    label: str  # `1`, or `1:0` for a slice
    runs: tuple[RunOnGpu, ...] = ()
    reserved_by: tuple[tuple[int, int], ...] = ()  # runs, and MiB of each
    processes: tuple[GpuProcess, ...] | None = None  # None: the driver does not list them
    slices: tuple[GpuUsage, ...] = ()

    @property
    def is_slice(self) -> bool:
        return ":" in self.label

    @property
    def usable_mib(self) -> int | None:
        """Memory that programs can have: the driver keeps some."""
        total = self.reading.memory_total_mib
        return None if total is None else total - (self.reading.memory_reserved_mib or 0)

    @property
    def profile(self) -> str:
        """The profile that suits it."""
        from kgops.planning.profiles import suited_to_gpu  # needed where there are GPUs

        return suited_to_gpu(self.reading.name)

    @property
    def reserved_mib(self) -> int:
        return sum(mib for _, mib in self.reserved_by)

    @property
    def used_by_runs_mib(self) -> float | None:
        """Memory of kgops' runs; None if one is unknown."""
        held = [run.used_mib for run in self.runs]
        known = [mib for mib in held if mib is not None]
        return sum(known) if len(known) == len(held) else None

    @property
    def shares(self) -> dict[int, Share]:
        """Reserved and used memory of each run on this GPU."""
        used = {run.run: run.used_mib for run in self.runs}
        return {run: (reserved, used.get(run)) for run, reserved in self.reserved_by}

    @property
    def room_mib(self) -> float | None:
        """What one more run can be given, as the queue counts it."""
        return room_mib(self.usable_mib, self.reading.memory_used_mib, list(self.shares.values()))

    @property
    def others(self) -> tuple[OtherUser, ...]:
        """Users whose processes belong to no run, most memory first."""
        held: dict[str | None, list[int | None]] = {}
        for process in self.processes or ():
            if process.run is None:
                held.setdefault(process.user, []).append(process.used_mib)
        others = [OtherUser(user, sum_of(of)) for user, of in held.items()]
        return tuple(sorted(others, key=lambda one: -(one.used_mib or 0)))


class ExpectedStart(NamedTuple):
    """Where the first waiting run would start, by what is predicted, and when; `at` None: unknown."""

    run: int
    gpu: str
    need_mib: int
    at: float | None


def expected_start(
    waiting: Sequence[Run], gpus: Iterable[GpuUsage], ends: Mapping[int, float | None]
) -> ExpectedStart | None:
    """For the first run in the queue that reserves memory of a GPU. `ends`: of the running runs, expected."""
    run = next((run for run in waiting if run.gpu_request is not None and run.reserved_mib), None)
    if run is None or run.reserved_mib is None:
        return None
    from kgops.jobs.run_options import (
        WantedGpus,  # a dashboard without waiting runs needs none of the options
    )

    wanted = WantedGpus.read(run.gpu_request)
    parts = [part for gpu in gpus for part in (gpu.slices or (gpu,)) if part.reading.is_wanted(wanted)]
    found = [
        ExpectedStart(run.id, part.label, run.reserved_mib, _room_at(part, run.reserved_mib, ends))
        for part in parts
        if part.usable_mib is not None and part.usable_mib >= run.reserved_mib
    ]
    return min(found, key=lambda one: (one.at is None, one.at), default=None)


def _room_at(gpu: GpuUsage, need_mib: int, ends: Mapping[int, float | None]) -> float | None:
    """When enough memory is predicted to be free, by the ends of runs there; other users are assumed to stay."""
    free = gpu.room_mib
    if free is None or gpu.used_by_runs_mib is None:
        return None
    known = sorted((at, share) for run, share in gpu.shares.items() if (at := ends.get(run)) is not None)
    for at, share in known:
        free += held_mib(share)
        if free >= need_mib:
            return at
    return None


_Known = dict[int, tuple[int | None, ProcessDetails | None]]  # run and details by PID


class GpuUsageReader:
    """Joins readings with the kernel's processes and with runs, again and again.

    Keeps facts of processes, so that a reading costs one file of each process.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._processes = ProcessReader()
        self._runs: dict[tuple[int, int | None], int | None] = {}
        self._active: tuple[int, ...] = ()

    def read(self, gpus: Sequence[GpuReading], conn: Connection | None) -> tuple[GpuUsage, ...]:
        """Without a database (`conn` None) no process belongs to a run."""
        owners = Owners(self._home, conn) if conn is not None and gpus else None
        active = tuple(run.id for run in owners.active) if owners is not None else ()
        if active != self._active:
            self._active, self._runs = active, {}
        listed = {process.pid for gpu in gpus for process in all_processes(gpu) or ()}
        details = self._processes.read(sorted(listed))
        before, self._runs = self._runs, {}
        known: _Known = {}
        for pid in listed:
            one = details.get(pid)
            key = (pid, None if one is None else one.start_ticks)
            if key not in before and owners is not None and active:
                before[key] = owners.run_of(pid)
            self._runs[key] = before.get(key)
            known[pid] = before.get(key), one
        return tuple(self._usage(gpu, known, owners) for gpu in gpus)

    def _usage(self, gpu: GpuReading, known: _Known, owners: Owners | None) -> GpuUsage:
        label = str(gpu.index)
        if not gpu.slices:
            return self._one(gpu, label, gpu.processes, known, owners)
        slices = tuple(
            self._one(part, f"{label}:{of.index}", of.processes, known, owners)
            for part, of in zip(usable((gpu,)), gpu.slices, strict=True)
        )
        whole = self._one(gpu, label, all_processes(gpu), known, owners)
        listed = [process for part in slices for process in part.processes or ()]
        hidden = any(part.processes is None for part in slices)
        return replace(whole, slices=slices, processes=whole.processes if hidden else tuple(listed))

    def _one(
        self,
        gpu: GpuReading,
        label: str,
        listed: Iterable[ProcessReading] | None,
        known: _Known,
        owners: Owners | None,
    ) -> GpuUsage:
        processes = None if listed is None else tuple(_process(label, one, *known[one.pid]) for one in listed)
        active: Sequence[Run] = owners.active if owners is not None else ()
        found = {process.pid: process.run for process in processes or ()}
        return GpuUsage(
            reading=gpu,
            label=label,
            runs=tuple(owners.on_gpu(gpu, found.get)) if owners is not None and active else (),
            reserved_by=tuple(
                (run.id, run.reserved_mib or 0) for run in active if not gpu.uuids.isdisjoint(run.gpus)
            ),
            processes=processes,
        )


_HIDDEN: dict[str, Any] = {**dict.fromkeys(ProcessDetails._fields), "is_own": False}


def _process(
    label: str, reading: ProcessReading, run: int | None, details: ProcessDetails | None
) -> GpuProcess:
    known = _HIDDEN if details is None else details._asdict()
    cpu_percent = known["cpu_percent"]
    return GpuProcess(
        gpu=label,
        pid=reading.pid,
        used_mib=reading.used_mib,
        sm_percent=reading.sm_percent,
        run=run,
        is_mps_client=reading.is_mps_client,
        **{**known, "cpu_percent": None if cpu_percent is None else round(cpu_percent, 1)},
    )


def signal_process(process: GpuProcess, number: int) -> bool:
    """Signals exactly this process, or nothing; False: it has ended. Raises PermissionError for another user's."""
    if process.start_ticks is None:
        return False
    return processes.send(processes.Identity(process.pid, process.start_ticks, processes.boot_id()), number)
