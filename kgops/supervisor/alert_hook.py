"""The command that a supervisor starts once for each alert about its run, the run's GPUs or the home's disk."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable

from kgops.gpus.processes import ProcessReader, all_processes
from kgops.gpus.readings import GpuReading
from kgops.settings import Home
from kgops.supervisor.alerts import Alert, disk_alerts, diverged_alert, gpu_alerts, stall_alerts
from kgops.supervisor.end_hook import facts_of, read_hook, start_hook
from kgops.supervisor.on_gpus import Owners
from storage import alerts, runs, series
from storage.database import Connection
from storage.runs import Run

TIME_LIMIT_S = 60.0


class AlertHook:
    """Starts `on_alert` of the home's hooks.toml, and waits for nothing."""

    def __init__(self, home: Home, run: int) -> None:
        self._home = home
        self._run = run
        self._started: list[tuple[subprocess.Popen[bytes], float]] = []
        self._changed_at = 0
        self._command: list[str] | None = None

    def pids(self) -> set[int]:
        """Of commands that go on, which are no processes of the run."""
        self._started = [(one, until) for one, until in self._started if one.poll() is None]
        return {one.pid for one, _ in self._started}

    def check(self, conn: Connection, gpus: Iterable[GpuReading]) -> None:
        """Starts the command for each alert that it was not started for. `gpus`: those of the run."""
        self._kill_late_ones()
        self._read_file()
        run = runs.get(conn, self._run) if self._command else None
        if run is None or self._command is None:
            return
        for alert in self._alerts(conn, run, gpus):
            # Marked first: a command that starts twice is worse than one that is lost with a killed supervisor.
            if not alerts.mark_hooked(conn, alert.name):
                continue
            facts = {"KGOPS_ALERT": alert.kind, "KGOPS_ALERT_TEXT": alert.text}
            process = start_hook(self._command, {**facts_of(run, self._home), **facts}, is_during_run=True)
            if process is not None:
                self._started.append((process, time.monotonic() + TIME_LIMIT_S))

    def _read_file(self) -> None:
        """Only when it was changed, so that a broken one is logged once."""
        try:
            changed_at = self._home.hooks.stat().st_mtime_ns
        except OSError:
            self._command = None
            return
        if changed_at != self._changed_at:
            self._changed_at, self._command = changed_at, read_hook(self._home, "on_alert")

    def _alerts(self, conn: Connection, run: Run, gpus: Iterable[GpuReading]) -> list[Alert]:
        now = time.time()
        found = [*stall_alerts(run, now), *disk_alerts(self._home, now)]
        if names := [one.name for one in series.of_run(conn, run.id) if one.n and one.last_value is None]:
            found.append(diverged_alert(run, names))
        owners = Owners(self._home, conn)
        for gpu in gpus:
            held = [one.used_mib for one in owners.on_gpu(gpu)]
            known = [mib for mib in held if mib is not None]
            others = [one.pid for one in all_processes(gpu) or () if owners.run_of(one.pid) is None]
            users = {one.user for one in ProcessReader().read(others).values()}
            found += gpu_alerts(gpu, sum(known) if len(known) == len(held) else None, sorted(users), now)
        return found

    def _kill_late_ones(self) -> None:
        running = self.pids()  # reaps the others
        for one, until in self._started:
            if one.pid in running and time.monotonic() > until:
                os.killpg(one.pid, signal.SIGKILL)  # it leads a session
