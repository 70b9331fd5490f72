"""Starts an attempt: makes its folder and gate, and writes the gate's identity to disk before the worker runs."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.jobs import manifest
from kgops.jobs.files import set_aside, size_of, sync, write_json
from kgops.jobs.run_options import GPU, GPU_BUDGET
from kgops.jobs.text import fill_in
from kgops.settings import Home, home_here
from kgops.supervisor import gate, locks, processes, run_folder
from kgops.supervisor.plan_file import Plan, Private
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.watch import reap

# Modules that follow a worker on a cluster.
_CLUSTER_FOLLOWERS = {"slurm": "kgops.cluster.follow"}
_GATES = 3  # forked for an attempt, when one is killed before it is known


@dataclass(frozen=True, slots=True)
class Beginning:
    """Starts a new attempt."""

    folder: RunFolder
    plan: Plan
    private: Private
    gpu: str | None
    number: int
    settings: dict[str, Any]

    def begin(self, report_wait: Callable[[str], bool]) -> tuple[Identity, int]:
        """The gate, and the pipe that opens it; the gate exits when the pipe closes. OSError if nothing was started.

        `report_wait` gets the reason why there is no process yet, and returns whether to keep waiting.
        """
        tree = Tree(self.folder, self.number)
        attempt = self.folder.attempt(self.number)
        attempt.path.mkdir(parents=True)
        run_folder.reserve(attempt.exit)
        attempt.reserve_marks()
        sync(self.folder.attempts)
        began = gate.Clocks.now()
        details = {
            "settings": self.settings,
            "at": began.wall_s,
            "log_from": size_of(self.folder.log),
            "tag": tree.tag,
            "mark": (mark := processes.new_mark()),
        }
        start = self._start(tree, began, mark)
        opening, opener = os.pipe()
        try:
            lock = self._worker_lock()
            identity = None
            try:
                for _ in range(_GATES):
                    pid = gate.fork_patiently(report_wait)
                    if pid == 0:
                        os.close(opener)
                        gate.run_gate(start, opening, lock)
                    identity = processes.identify(pid)
                    if identity is not None:
                        break
                    os.waitpid(pid, 0)  # it was killed at once, and its worker has not run
            finally:
                os.close(lock)  # now only the worker's tree holds it
            if identity is None:
                raise ProcessLookupError(errno.ESRCH, "the gate ended before it was opened")
            write_json(attempt.identity, {**identity.as_table(), **details})
        except BaseException:
            os.close(opener)
            raise
        finally:
            os.close(opening)
        return identity, opener

    def _start(self, tree: Tree, began: gate.Clocks, mark: int | None) -> gate.Start:
        home = home_here()
        folder = RunFolder(home.runs / self.folder.path.name)
        return gate.Start(
            self.folder.attempt(self.number),
            self._command(folder),
            Path(self.private.cwd),
            self._environment(home, folder, tree.tag),
            self.private.umask,
            self.folder.log,
            began,
            mark,
            # kgops' workers set the limit after loading their libraries, which do not report out-of-memory clearly.
            self.plan.memory_limit_mib if self.plan.is_command else None,
        )

    def _worker_lock(self) -> int:
        """Takes the worker lock, after killing what is left of earlier attempts."""
        set_aside(self.folder.worker_lock)
        while (lock := locks.take(self.folder.worker_lock)) is None:
            for earlier in range(1, self.number):
                Tree(self.folder, earlier).end(grace_s=0, reap=reap)
            for who in processes.holders(self.folder.worker_lock):
                processes.send(who, signal.SIGKILL)
        return lock

    def _command(self, folder: RunFolder) -> list[str]:
        plan = self.plan
        if plan.module is None:
            return fill_in(self.private.command, self.settings)
        # -P: Python must not import modules from the working folder.
        module = _CLUSTER_FOLLOWERS.get(plan.on or "", plan.module)
        return [sys.executable, "-P", "-m", module, str(folder.job)]

    def _environment(self, home: Home, folder: RunFolder, tag: str) -> dict[str, str]:
        """`home` and `folder` by their full paths."""
        plan = self.plan
        return {
            **self.private.environment,
            **plan.environment,
            "KGOPS_HOME": str(home.path),
            "KGOPS_RUN": str(plan.number),
            "KGOPS_RUN_FOLDER": str(folder.path),
            "KGOPS_EVENTS": str(folder.events),
            "KGOPS_ATTEMPT": str(self.number),
            "KGOPS_SETTINGS": json.dumps(self.settings),
            "KGOPS_DATA_BEFORE": json.dumps(plan.data_before or {}),
            "KGOPS_FORCE": "1" if plan.forced else "",  # else a run started inside another would inherit it
            processes.TAG: tag,
            GPU: self.gpu or "",  # else a run started inside another would inherit that one's
            manifest.OWNER: manifest.owner(plan.key, self.number),
            GPU_BUDGET: str((plan.forecast or {}).get("gpu_budget_mib") or ""),
            **({} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": self.gpu}),
        }
