"""The supervisor: one small process per run, which starts, watches and ends its attempts.

It survives its console, and its worker survives it. All its state is on disk: if it is killed, the next
supervisor continues.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from kgops.jobs.files import read_table
from kgops.settings import Home, home_here
from kgops.supervisor import gate, locks, run_folder
from kgops.supervisor.attempt_end import (
    Observations,
    commit_decided,
    conclude,
    count_lost_and_oom,
    end_without_attempt,
)
from kgops.supervisor.attempt_start import Beginning
from kgops.supervisor.durable_writes import Record, log
from kgops.supervisor.plan_file import Plan, read_private, recorded_plan, write_as_given
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder, put_right, read_stop
from kgops.supervisor.watch import LEFTOVERS_GRACE_S, Watch, reap
from storage import attempts, reports, runs
from storage.attempts import Attempt
from storage.database import Connection
from storage.errors import DatabaseNewer

_DISK_RETRIES = 60  # after disk errors, one a second; then the user's next command reports the error


def main() -> None:
    """`argv`: the home, the run's number, and the open file that holds its supervisor lock."""
    number, lock = int(sys.argv[2]), int(sys.argv[3])
    # Paths are relative to the home, our working folder: the home may be moved meanwhile.
    os.chdir(sys.argv[1])
    home = Home(Path())
    os.umask(0o077)
    os.set_inheritable(lock, False)
    for ignored in (*gate.SURVIVED, signal.SIGPIPE):
        # The supervisor must survive its console, and a shutdown's SIGTERM long enough to record the worker's
        # exit.
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # spawn.py blocked them
    record = Record(home.database)
    try:
        _supervise(record, home, number)
    except DatabaseNewer as error:
        # The worker goes on, and the next command of the newer kgops adopts it.
        log(f"the supervisor leaves: {error.message}")
        if not record.was_opened:
            sys.exit(1)
        # kgops may have been upgraded in place. Then the same process continues with the newer code.
        os.set_inheritable(lock, True)
        os.execv(sys.executable, sys.orig_argv)


def _supervise(record: Record, home: Home, number: int) -> None:
    run = record.retry_until_written(lambda conn: runs.get(conn, number))
    if run is not None and not run.ended:
        folder = RunFolder(home.runs / run.folder)
        plan = record.retry_until_written(lambda conn: recorded_plan(conn, folder, number))
        record.fill_from(folder, plan)
        if not _run_to_end(Supervisor(record, folder, plan, run.gpu)):
            sys.exit(1)
        from kgops.supervisor.end_hook import run_end_hook

        ended = record.retry_until_written(lambda conn: runs.get(conn, number))
        if ended is not None and ended.ended:
            run_end_hook(home_here(), ended)
    from kgops.supervisor import gpu_room, queue  # imported late: an idle supervisor should be small

    limit_s = gpu_room.STARTS_WITHIN_S
    record.retry_until_written(lambda conn: queue.dispatch(home_here(), conn, gpus_within_s=limit_s))


def _run_to_end(supervisor: Supervisor) -> bool:
    """Runs the supervisor; after a disk error starts over, since all its state is on disk."""
    for _ in range(_DISK_RETRIES):
        try:
            supervisor.run_to_end()
            return True
        except OSError as error:
            log(f"will try again: {error}")
            time.sleep(1.0)
            supervisor.reload()
    return False


class Supervisor:
    def __init__(self, record: Record, folder: RunFolder, plan: Plan, gpu: str | None) -> None:
        self._record = record
        self._folder = folder
        self._plan = plan
        self._gpu = gpu

    def reload(self) -> None:
        """Reloads the intake's state after an error."""
        self._record.retry_until_written(lambda conn: self._record.intake.reload_state())

    def run_to_end(self) -> None:
        ending = run_folder.read_ending(self._folder.outcome)
        if ending is not None:  # decided, but a supervisor died before the commit
            decided = ending
            self._record.retry_until_written(
                lambda conn: commit_decided(conn, self._folder, self._plan, decided, self._record.intake)
            )
            return
        number = self._folder.last_attempt()
        again = True
        if number and not self._is_closed(number):
            again = self._adopt(number)
        while again:
            if read_stop(self._folder) is not None:
                self._end("cancelled", "stopped before it started")
                return
            again = self._run_attempt(self._folder.last_attempt() + 1)

    def _adopt(self, number: int) -> bool:
        """Continues an earlier supervisor's attempt; True if another attempt should follow."""
        tree = Tree(self._folder, number)
        attempt = self._folder.attempt(number)
        if not _has_begun(tree):
            # The worker's code has not run and will not: its gate saw the supervisor die.
            attempt.path.rename(attempt.path.with_name(f"{number}-never-begun-{time.time_ns()}"))
            return True
        identity = tree.gate()
        if identity is None:  # damaged file, or a copy of the home: no process can be watched
            tree.end(grace_s=LEFTOVERS_GRACE_S, reap=reap)
            return self._conclude(number, Observations())
        self._record_beginning(number, identity)
        if tree.is_alive():
            self._record.retry_until_written(
                lambda conn: attempts.adopt(conn, self._plan.number, number, os.getpid())
            )
        return self._watch_and_conclude(number, identity)

    def _run_attempt(self, number: int) -> bool:
        """Runs one attempt from start to end; True if another one should follow."""
        put_right(self._folder)
        private = read_private(self._folder)
        if not self._folder.path.is_dir():
            self._end("interrupted", f"its folder is gone: {self._folder.path}", self._open_attempt())
            return False
        if private is None:
            self._end("failed", "private.json, which holds the worker's environment, is missing")
            return False
        run_folder.keep_room(self._folder)
        self._record.retry_until_written(lambda conn: write_as_given(conn, self._folder, self._plan))
        settings = self._plan.settings(count_lost_and_oom(self._record.conn, self._plan.number)[1])
        beginning = Beginning(self._folder, self._plan, private, self._gpu, number, settings)
        try:
            identity, opener = beginning.begin(self._report_wait)
        except OSError as error:
            if read_stop(self._folder) is not None:
                self._end("cancelled", "stopped before it started")
            else:
                self._end("failed", f"cannot start a worker: {os.strerror(error.errno or 0)}")
            return False
        try:
            self._record_beginning(number, identity)
            os.write(opener, gate.OPENED)
        except BrokenPipeError:
            pass  # the gate ended: the watch detects it
        finally:
            os.close(opener)  # a gate that was not opened exits
        return self._watch_and_conclude(number, identity)

    def _report_wait(self, why: str) -> bool:
        """Records why there is no worker yet; False once a stop is requested."""
        self._record.retry_until_written(
            lambda conn: runs.set_state(conn, self._plan.number, "starting", why)
        )
        return read_stop(self._folder) is None

    def _watch_and_conclude(self, number: int, gate_identity: Identity) -> bool:
        watch = Watch(self._record, self._folder, self._plan, self._gpu, number)
        return self._conclude(number, watch.until_tree_ended(gate_identity))

    def _conclude(self, number: int, observed: Observations) -> bool:
        """Ends an attempt; True if another one should follow."""
        verdict = self._record.retry_until_written(
            lambda conn: conclude(conn, self._folder, self._plan, number, self._record.intake, observed)
        )
        if verdict.next == "end":
            return False
        self._record.retry_until_written(
            lambda conn: self._record_next_attempt(
                conn, number, verdict.next, verdict.outcome, verdict.reason
            )
        )
        return True

    def _record_next_attempt(
        self, conn: Connection, number: int, kind: str, outcome: str, reason: str | None
    ) -> None:
        """Records the reason and settings of the next attempt."""
        body: dict[str, object] = {"after": outcome, "reason": reason}
        if kind == "step_down":
            oom_count = count_lost_and_oom(conn, self._plan.number)[1]
            body["settings"] = self._plan.settings(oom_count)
            if 0 < oom_count <= len(self._plan.fallbacks):
                body["fallback"] = self._plan.fallbacks[oom_count - 1]
        reports.add_event(conn, self._plan.number, number, time.time(), kind, body)
        runs.set_state(conn, self._plan.number, "starting", reason)

    def _record_beginning(self, number: int, identity: Identity) -> None:
        table = read_table(self._folder.attempt(number).identity)
        settings, started_at = table.get("settings"), table.get("at")
        began = Attempt(
            self._plan.number,
            number,
            settings=settings if isinstance(settings, dict) else {},
            gpu=self._gpu,
            boot_id=identity.boot,
            worker_pid=identity.pid,
            worker_started=identity.started,
            supervisor_pid=os.getpid(),
            started_at=started_at if isinstance(started_at, float) else time.time(),
        )
        self._record.retry_until_written(lambda conn: attempts.begin(conn, began))

    def _is_closed(self, number: int) -> bool:
        return any(
            a.number == number and a.outcome is not None
            for a in attempts.of_run(self._record.conn, self._plan.number)
        )

    def _open_attempt(self) -> int:
        """The attempt that the database has as running; 0: none."""
        rows = attempts.of_run(self._record.conn, self._plan.number)
        return max((row.number for row in rows if row.outcome is None), default=0)

    def _end(self, state: str, reason: str, lost: int = 0) -> None:
        self._record.retry_until_written(
            lambda conn: end_without_attempt(conn, self._folder, self._plan.number, state, reason, lost)
        )


def _has_begun(tree: Tree) -> bool:
    """Whether the worker's code may have run; waits for a gate that is about to start it."""
    begun = tree.folder.attempt(tree.number).begun
    while not begun.exists():
        lock = locks.take(tree.folder.worker_lock)
        if lock is not None:
            os.close(lock)
            return begun.exists()
    return True
