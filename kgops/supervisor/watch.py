"""Watches one attempt: forwards stop requests, samples memory and records the worker's reports."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection
from pathlib import Path

from kgops.settings import Home, home_here
from kgops.supervisor import processes, worker_reports
from kgops.supervisor.attempt_end import Observations
from kgops.supervisor.durable_writes import Record, log
from kgops.supervisor.plan_file import Plan
from kgops.supervisor.process_tree import Sample, Sampler, Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder, put_right, read_stop
from storage import attempts, reports, series
from storage.database import transaction
from storage.errors import StorageError
from storage.series import Point

TICK_S = 0.5  # at 0.25 an idle supervisor took 0.23 % of a core; a stop is seen within this time
# The kernel frees some ten GB a second of a killed process.
KILLED_RECENTLY_S = 10.0
COMMIT_EVERY_S = 0.5
MAX_CHUNKS_PER_COMMIT = 16  # MiB per commit: a worker's many reports must not delay its display or a stop
MAX_INTAKE_S = 0.5  # plus one chunk: log patterns may be slow
SAMPLE_EVERY_S = 2.0
SAMPLES_WRITTEN_EVERY_S = 6.0
SETTLED_S = 2 * SAMPLE_EVERY_S + 1  # after which a sample is of what torch reserved last
ALERTS_EVERY_S = 10.0
LEFTOVERS_GRACE_S = 5.0  # for processes that outlive the worker

# Importing `typing` would cost every supervisor half a megabyte.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from kgops.supervisor.alert_hook import AlertHook


class Watch:
    """Watches an attempt from its start or adoption until no process of its tree is left."""

    def __init__(self, record: Record, folder: RunFolder, plan: Plan, gpu: str | None, number: int) -> None:
        self._record, self._folder, self._plan, self._gpu = record, folder, plan, gpu
        self._number = number
        self._hook: AlertHook | None = None
        self._tree = Tree(folder, number)
        self._samples: list[Sample] = []
        self._next_sample = self._next_commit = self._next_write = self._next_alerts = 0.0
        self._kill_at: float | None = None
        self._grace_s: float | None = None
        self._orphan_killed = False
        self._gpu_method: str | None = None
        self._context_mib = 0.0
        self._must_reload = False  # the intake's state, since a transaction failed

    def until_tree_ended(self, gate: Identity) -> Observations:
        """Watches until the tree has ended, and returns the observations."""
        kills = KernelKills(gate.pid)
        status = self._until_gate_ended(gate, kills)
        stop_sent = self._kill_at is not None
        self._tree.end(grace_s=0 if stop_sent else LEFTOVERS_GRACE_S, reap=reap)
        if self._must_reload:
            self._record.retry_until_written(lambda conn: self._record.intake.reload_state())
        return Observations(
            gate_signal=-status if status is not None and status < 0 else None,
            gate_code=status if status is not None and status >= 0 else None,
            kernel_oom_kill=kills.killed_recently(),
            orphan_killed=self._orphan_killed,
            stop_sent=stop_sent,
        )

    def _until_gate_ended(self, gate: Identity, kills: KernelKills) -> int | None:
        """Watches until the gate has ended; its exit code if known, or minus the signal that ended it."""
        try:
            pidfd = os.pidfd_open(gate.pid)
        except ProcessLookupError:
            return None
        exclusive = self._plan.exclusive or self._plan.reserved_mib is None
        sampler = Sampler(gate.pid, gpu=self._gpu, exclusive=exclusive, interval_s=SAMPLE_EVERY_S)
        try:
            # Check the identity only now that the pidfd pins the process.
            if gate.is_alive():
                self._watch(pidfd, sampler, kills)
            return _status_of_child(gate.pid)
        finally:
            sampler.close()
            os.close(pidfd)

    def _watch(self, pidfd: int, sampler: Sampler, kills: KernelKills) -> None:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        while not poll.poll(TICK_S * 1000) or (self._kill_at is not None and self._has_members()):
            try:
                self._tick(sampler, kills)
            except OSError as error:
                # An unreadable file of the run, or no descriptor left: the worker goes on, and so do we.
                log(f"will try again: {error}")
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return  # the caller kills the tree

    def _tick(self, sampler: Sampler, kills: KernelKills) -> None:
        now = time.monotonic()
        grace_s = read_stop(self._folder)
        if grace_s is not None and grace_s != self._grace_s:
            # A new grace counts from now; the old one again does not postpone the end.
            is_first = self._kill_at is None
            self._kill_at, self._grace_s = now + grace_s, grace_s
            if is_first:
                self._ask_to_stop()
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_EVERY_S
            put_right(self._folder)
            kills.update()
            if self._plan.on != "slurm":  # the local process only follows the Slurm job
                self._samples.append(sampler.take())
            self._orphan_killed |= _reap_orphans(
                {sampler.gate_pid, *(self._hook.pids() if self._hook else ())}
            )
            worker_reports.keep_newest(self._folder.log, self._plan.log_mib, self._record.intake.log_read)
        if now >= self._next_commit and (self._record.intake.has_news() or now >= self._next_write):
            self._next_commit, self._next_write = now + COMMIT_EVERY_S, now + SAMPLES_WRITTEN_EVERY_S
            if self._write_reports(self._samples):
                self._samples = []
        if now >= self._next_alerts:
            self._next_alerts = now + ALERTS_EVERY_S
            self._check_alerts(sampler)

    def _check_alerts(self, sampler: Sampler) -> None:
        if self._hook is None:
            if not Home(Path()).hooks.exists():
                return
            from kgops.supervisor.alert_hook import (
                AlertHook,
            )  # only supervisors of homes with hooks pay for it

            self._hook = AlertHook(home_here(), self._plan.number)
        try:
            self._hook.check(self._record.conn, sampler.own_gpus((self._gpu or "").split(",")))
        except StorageError as error:
            self._record.note_failure(error)

    def _ask_to_stop(self) -> None:
        # The mark comes first: an exit after it answers the stop and is not a success.
        try:
            put_right(self._folder)
            self._folder.attempt(self._number).mark_asked_to_stop()
        except OSError as error:
            log(f"cannot mark that a stop was sent: {error}")
        self._tree.ask_to_stop(whole_tree=self._plan.is_command)

    def _has_members(self) -> bool:
        """Whether processes outlive the worker during a stop: they get the rest of the grace."""
        if not self._tree.members():
            return False
        time.sleep(TICK_S)
        return True

    def _write_reports(self, samples: list[Sample]) -> bool:
        """Records the worker's reports and our samples; False if it has to be retried."""
        record = self._record
        try:
            if self._must_reload:
                record.intake.reload_state()
                self._must_reload = False
            with transaction(record.conn):
                points = _curve(samples)
                deadline = time.monotonic() + MAX_INTAKE_S
                for _ in range(MAX_CHUNKS_PER_COMMIT):
                    if not record.intake.take(self._number, points) or time.monotonic() > deadline:
                        break
                    points = []
                self._note_gpu_method(samples)
                if (context := self._context(samples)) is not None:
                    series.append(record.conn, self._plan.number, [context])
                if samples:
                    attempts.note_peaks(
                        record.conn,
                        self._plan.number,
                        self._number,
                        gpu_mib=max((s.gpu_mib for s in samples if s.gpu_mib is not None), default=None),
                        host_mib=max((s.host_mib for s in samples if s.host_mib is not None), default=None),
                        cpu_s=samples[-1].cpu_s,
                    )
        except (StorageError, OSError) as error:
            # The transaction was rolled back, so the intake must reload its state. Nothing here may wait for the
            # database: a stop has to be seen.
            self._must_reload = True
            if isinstance(error, OSError):
                raise
            record.note_failure(error)
            return False
        if context is not None and context.value is not None:
            self._context_mib = context.value
        self._gpu_method = next((s.gpu_method for s in reversed(samples) if s.gpu_method), self._gpu_method)
        return True

    def _note_gpu_method(self, samples: list[Sample]) -> None:
        """Records the method of measuring GPU memory whenever it changes."""
        method = self._gpu_method
        for sample in samples:
            if sample.gpu_method is not None and sample.gpu_method != method:
                method = sample.gpu_method
                reports.add_event(
                    self._record.conn,
                    self._plan.number,
                    self._number,
                    sample.at,
                    reports.GPU_MEMORY_BY,
                    {"way": method},
                )

    def _context(self, samples: list[Sample]) -> Point | None:
        """The CUDA context where a sample shows it larger than before: libraries load more and more of themselves."""
        reserved = self._record.intake.reserved
        if reserved is None or self._gpu is None or "," in self._gpu:
            return None
        found = [
            Point("context_mib", sample.at, sample.gpu_mib - (reserved.value or 0.0), sample.at)
            for sample in samples
            if sample.gpu_method == "processes" and sample.gpu_mib and sample.at - reserved.at >= SETTLED_S
        ]
        largest = max(found, key=lambda point: point.value or 0.0, default=None)
        return largest if largest is not None and (largest.value or 0.0) > self._context_mib else None


class KernelKills:
    """Detects recent OOM kills by the kernel; older kills do not explain this end.

    The counter of the worker's control group counts this run's kills. The machine's counter counts all: it is used
    if the worker has no counting group, or may have moved to another.
    """

    def __init__(self, gate_pid: int) -> None:
        self._gate_pid = gate_pid
        self._group = _Counter(processes.oom_kill_counter(gate_pid))
        self._machine = _Counter(processes.MACHINE_OOM_KILLS)
        self._worker_stays = False

    def update(self) -> None:
        self._group.update()
        self._machine.update()
        groups = [processes.groups_of(pid) for pid in processes.children(self._gate_pid)]
        if any(groups):
            self._worker_stays = set(groups) == {processes.groups_of(self._gate_pid)}

    def killed_recently(self) -> bool:
        self.update()
        group_is_reliable = self._group.exists and self._worker_stays
        return self._group.rose_recently() or (self._machine.rose_recently() and not group_is_reliable)


class _Counter:
    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._counted = processes.oom_kills(file)
        self._rose_at: float | None = None

    @property
    def exists(self) -> bool:
        return self._counted is not None

    def update(self) -> None:
        counted = processes.oom_kills(self._file)
        if counted is not None and self._counted is not None and counted > self._counted:
            self._rose_at = time.monotonic()
        self._counted = counted

    def rose_recently(self) -> bool:
        return self._rose_at is not None and time.monotonic() - self._rose_at < KILLED_RECENTLY_S


def reap() -> None:
    """Waits for all ended children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _reap_orphans(leave: Collection[int]) -> bool:
    """Waits for all ended children but these; whether SIGKILL ended one of them."""
    killed = False
    for pid in processes.children(os.getpid()):
        if pid not in leave:
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
            killed |= ended != 0 and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return killed


def _status_of_child(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # adopted, or taken by reap
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def _curve(samples: list[Sample]) -> list[Point]:
    return [
        Point(name, sample.at, value, sample.at)
        for sample in samples
        for name, value in (("host_memory_mib", sample.host_mib), ("gpu_memory_mib", sample.gpu_mib))
        if value is not None
    ]
