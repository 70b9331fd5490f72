"""Finds the run that a process on a GPU belongs to, and each run's memory on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kgops.gpus.processes import MemorySource, all_processes
from kgops.gpus.readings import GpuReading
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
        self._folders = {run.folder: run.id for run in self.active}
        self._gates: dict[int, int] | None = None

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
        held: dict[int, list[int | None]] = {}
        for process in all_processes(gpu) or ():
            number = (run_of or self.run_of)(process.pid)
            if number is not None:
                held.setdefault(number, []).append(process.used_mib)
        runs_here = []
        for run in self.active:
            if run.id in held:
                runs_here.append(_by_processes(run, held[run.id]))
            elif not gpu.uuids.isdisjoint(run.gpus):
                runs_here.append(self._as_recorded(run))
        return runs_here

    def _run_of_ancestor(self, pid: int) -> int | None:
        ancestor: int | None = pid
        for _ in range(_MAX_ANCESTORS):
            if ancestor is None or ancestor <= 1:
                return None
            if (run := self._gate_pids().get(ancestor)) is not None:
                return run
            if (tag := processes.tag_of(ancestor)) is not None and (run := self._run_of_tag(tag)) is not None:
                return run
            ancestor = processes.parent(ancestor)
        return None

    def _run_of_tag(self, tag: str) -> int | None:
        """The run with this tag; other homes may have folders of the same name."""
        folder = Path(tag.rpartition("#")[0])
        run = self._folders.get(folder.name)
        try:
            return run if run and folder.samefile(self._home.runs / folder.name) else None
        except OSError:
            return None

    def _gate_pids(self) -> dict[int, int]:
        """PIDs of gates and supervisors, which inherit a worker's orphans, by run."""
        if self._gates is None:
            self._gates = {}
            for run in self.active:
                folder = RunFolder(self._home.runs / run.folder)
                gate = Tree(folder, folder.last_attempt()).gate()
                if gate is not None and gate.is_alive():
                    self._gates[gate.pid] = run.id
                    parent = processes.parent(gate.pid)
                    if parent is not None and processes.is_supervisor(parent):
                        self._gates[parent] = run.id
        return self._gates

    def _as_recorded(self, run: Run) -> RunOnGpu:
        method_events = reports.events(self._conn, run.id, kinds=(reports.GPU_MEMORY_BY,))
        curve = next((c for c in series.of_run(self._conn, run.id) if c.name == "gpu_memory_mib"), None)
        if not method_events or curve is None or method_events[-1].body.get("way") != "memory change":
            return RunOnGpu(run.id, run.label, None, None)
        return RunOnGpu(run.id, run.label, curve.last_value, "memory change")


def _by_processes(run: Run, held: list[int | None]) -> RunOnGpu:
    known = [mib for mib in held if mib is not None]
    return RunOnGpu(run.id, run.label, sum(known) if len(known) == len(held) else None, "processes")
