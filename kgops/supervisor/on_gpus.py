"""Finds the run that a process on a GPU belongs to, and each run's memory on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kgops.gpus.processes import DRIVERS_MIB, MemorySource, all_processes, lists_every_process, sum_of
from kgops.gpus.readings import GpuReading, ProcessReading
from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.run_folder import RunFolder
from storage import reports, runs, series
from storage.database import Connection
from storage.runs import Run

_MAX_ANCESTORS = 64  # workers' trees are shallower; also bounds a walk through reused PIDs


@dataclass(frozen=True, slots=True)
class RunOnGpu:
    """A run's memory on one GPU; `by` is the method of measurement. Both None: unknown."""

    run: int
    label: str
    used_mib: float | None
    by: MemorySource | None


class Owners:
    """Finds the active run that a process belongs to. Cheap while no run is active."""

    def __init__(self, home: Home, conn: Connection) -> None:
        self._home = home
        self._conn = conn
        self.active = runs.in_states(conn, runs.ACTIVE)
        self._known: tuple[dict[int, int], dict[str, int]] | None = None

    def run_of(self, pid: int) -> int | None:
        """The run of a process, by the tag in its environment or by an ancestor that is a run's gate.

        PIDs are reused: the answer counts only if the process is the same before and after.
        """
        process = processes.identify(pid) if self.active else None
        if process is None:
            return None
        run = self._run_of_ancestor(pid)
        return run if process.is_alive() else None

    def on_gpu(self, gpu: GpuReading, run_of: Callable[[int], int | None] | None = None) -> list[RunOnGpu]:
        """Active runs on this GPU, by their processes, else by their supervisors' last sample.

        `run_of`: the run of a PID, where it was found before.
        """
        used, _ = self.used_on(gpu, run_of)
        return [
            RunOnGpu(run.id, run.label, mib, "processes")
            if (mib := used[run.id]) is not None
            else self._as_recorded(run)
            for run in self.active
            if run.id in used
        ]

    def used_on(
        self, gpu: GpuReading, run_of: Callable[[int], int | None] | None = None
    ) -> tuple[dict[int, float | None], tuple[int, ...]]:
        """MiB of each active run that was given this GPU or has processes on it (None: the driver hides it), and
        PIDs there that belong to no run."""
        listed = all_processes(gpu)
        # Where memory is in use and no process at all is listed, as in containers, nobody knows whose it is.
        is_whole = lists_every_process(listed) and (listed or (gpu.memory_used_mib or 0) <= DRIVERS_MIB)
        held: dict[int | None, list[ProcessReading]] = {}
        for process in listed or ():
            held.setdefault((run_of or self.run_of)(process.pid), []).append(process)
        used: dict[int, float | None] = {}
        for run in self.active:
            if run.id in held:
                used[run.id] = sum_of(one.used_mib for one in held[run.id])
            elif not gpu.uuids.isdisjoint(run.gpus):
                used[run.id] = 0 if is_whole else None
        return used, tuple(one.pid for one in held.get(None, ()))

    def _run_of_ancestor(self, pid: int) -> int | None:
        gates, tags = self._identified()
        ancestor: int | None = pid
        for _ in range(_MAX_ANCESTORS):
            if ancestor is None or ancestor <= 1:
                return None
            if (run := gates.get(ancestor)) is not None:
                return run
            if processes.is_supervisor(ancestor):
                return None  # of another home's run, which may have been started inside one of ours
            if (tag := processes.tag_of(ancestor)) is not None and (run := tags.get(tag)) is not None:
                return run
            ancestor = processes.parent(ancestor)
        return None

    def _identified(self) -> tuple[dict[int, int], dict[str, int]]:
        """Runs by the PIDs of their gates and supervisors, which inherit a worker's orphans, and by their tags."""
        if self._known is None:
            self._known = {}, {}
            for run in self.active:
                folder = RunFolder(self._home.runs / run.folder)
                try:
                    tree = Tree(folder, folder.last_attempt())
                    tag, gate = tree.tag, tree.gate()
                except OSError:  # the folder cannot be read now: the run's memory is unknown
                    continue
                gates, tags = self._known
                tags[tag] = run.id
                if gate is not None and gate.is_alive():
                    gates[gate.pid] = run.id
                    parent = processes.parent(gate.pid)
                    if parent is not None and processes.is_supervisor(parent):
                        gates[parent] = run.id
        return self._known

    def _as_recorded(self, run: Run) -> RunOnGpu:
        method_events = reports.events(self._conn, run.id, kinds=(reports.GPU_MEMORY_BY,))
        curve = next((c for c in series.of_run(self._conn, run.id) if c.name == "gpu_memory_mib"), None)
        if not method_events or curve is None or method_events[-1].body.get("way") != "memory change":
            return RunOnGpu(run.id, run.label, None, None)
        return RunOnGpu(run.id, run.label, curve.last_value, "memory change")
