"""The supervisor: one small process per run that brings it to its one true end, whatever state it finds it in.

It does not die with its console, its worker does not die with it, and all it knows it can find again on
disk: killed at any moment, its successor continues where it was.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kgops.jobs.files import read_json, sync_folder, write_json
from kgops.runs import gate, locks, logs, processes, slot
from kgops.runs.conclude import (
    Seen,
    commit_decided,
    conclude,
    end_without_attempt,
    lost_and_stepped_down,
    new_intake,
)
from kgops.runs.folder import RunFolder
from kgops.runs.plan_file import Plan, read_plan, read_private
from kgops.runs.processes import Identity
from kgops.runs.samples import Sample, Sampler
from kgops.runs.stopping import read_stop
from kgops.runs.trees import Tree
from kgops.runs.worker_environment import worker_environment
from kgops.settings import Home
from storage import attempts, reports, runs
from storage.database import Connection, open_writer, transaction
from storage.errors import DatabaseBusy, DatabaseFull, DatabaseReadOnly
from storage.series import Point

TICK_S = 0.5  # at 0.25 an idle supervisor took 0.23 % of a core; a stop is seen within this time
# To give back the memory of a killed process takes the kernel a second for some ten GB.
KILLED_LATELY_S = 10.0
COMMIT_EVERY_S = 0.5
CHUNKS_AT_ONCE = 16  # MiB taken in by one commit: a talkative worker is not shown late, nor a stop
SAMPLE_EVERY_S = 2.0
SAMPLES_WRITTEN_EVERY_S = 6.0
LEFTOVERS_GRACE_S = 5.0  # for what a worker left running when it ended
PASSING = (DatabaseBusy, DatabaseFull, DatabaseReadOnly)  # troubles that may be gone in a second

T = TypeVar("T")


def main() -> None:
    """`argv`: the home, the run's number, and the open file that holds its supervisor lock."""
    home, number, lock = Home(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    os.umask(0o077)
    os.set_inheritable(lock, False)
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        # A console's hang-up is not ours. At a shutdown the worker gets its own SIGTERM, and somebody
        # has to be there to write down what came of it.
        signal.signal(ignored, signal.SIG_IGN)
    conn = insistently(lambda: open_writer(home.database, busy_timeout_s=5.0))
    run = runs.get(conn, number)
    if run is not None and not run.ended:
        folder = RunFolder(home.runs / run.folder)
        Supervisor(home, conn, folder, read_plan(folder, number), run.card).bring_to_its_end()
    from kgops.runs import queue  # only now: what idles for days should be small

    insistently(lambda: queue.dispatch(home, conn))


def insistently(write: Callable[[], T]) -> T:
    """A database that is busy or full only delays us: the record is on disk, the worker waits for nobody."""
    while True:
        try:
            return write()
        except PASSING as error:
            _say(f"will try again: {error}")
            time.sleep(1.0)


class Supervisor:
    def __init__(self, home: Home, conn: Connection, folder: RunFolder, plan: Plan, card: str | None) -> None:
        self._home = home
        self._conn = conn
        self._folder = folder
        self._plan = plan
        self._card = card
        self._intake = new_intake(conn, folder, plan)
        self._kernel_kills: int | None = None
        self._kernel_killed_at: float | None = None
        self._card_way: str | None = None

    def bring_to_its_end(self) -> None:
        ending = slot.read_ending(self._folder.outcome)
        if ending is not None:  # decided, but a supervisor died before the database knew
            decided = ending
            insistently(lambda: commit_decided(self._conn, self._folder, self._plan, decided, self._intake))
            return
        number = self._folder.last_attempt()
        again = True
        if number and not self._is_closed(number):
            again = self._take_over(number)
        while again:
            if read_stop(self._folder) is not None:
                self._end("cancelled", "stopped before it started")
                return
            again = self._one_attempt(self._folder.last_attempt() + 1)

    def _take_over(self, number: int) -> bool:
        """Continues with an attempt that a supervisor before us began; True if another one should follow."""
        tree = Tree(self._folder, number)
        attempt = self._folder.attempt(number)
        if not _has_begun(tree):
            # None of the worker's code has run, and none will: its gate saw the supervisor die.
            attempt.path.rename(attempt.path.with_name(f"{number}-never-begun-{time.time_ns()}"))
            return True
        identity = tree.gate()
        if identity is None:
            raise RuntimeError(f"attempt {number} has begun but has no identity on disk")
        self._record_beginning(number, identity)
        if tree.is_alive():
            insistently(lambda: attempts.adopt(self._conn, self._plan.number, number, os.getpid()))
        return self._watch_and_conclude(number, tree, identity)

    def _one_attempt(self, number: int) -> bool:
        """A new worker, from before its birth to after its end; True if another one should follow."""
        private = read_private(self._folder)
        if private is None:
            self._end("failed", "private.json, which holds the worker's environment, is gone")
            return False
        tree = Tree(self._folder, number)
        attempt = self._folder.attempt(number)
        settings = self._plan.settings(lost_and_stepped_down(self._conn, self._plan.number)[1])
        command, environment = worker_environment(
            self._home, self._folder, self._plan, private, number, settings, tree.tag, self._card
        )
        start = gate.Start(
            attempt,
            command,
            Path(self._plan.cwd),
            environment,
            private.umask,
            self._folder.log,
            # Our workers limit themselves once their libraries are loaded: those fail in every way but the honest one.
            self._plan.memory_limit_mib if self._plan.is_command else None,
        )
        lock = self._worker_lock(number)
        opening, opener = os.pipe()
        try:
            attempt.path.mkdir(parents=True)
            slot.reserve(attempt.exit)
            sync_folder(self._folder.attempts)
            log_from = self._folder.log.stat().st_size if self._folder.log.exists() else 0
            pid = os.fork()
            if pid == 0:
                os.close(opener)
                gate.stand(start, opening, lock)
            os.close(lock)  # from here on the worker's tree alone holds it
            identity = processes.identify(pid)
            if identity is None:
                raise RuntimeError("the gate ended before it was opened")
            noted = {"settings": settings, "at": time.time(), "log_from": log_from}
            write_json(attempt.identity, {**identity.as_table(), **noted})
        except OSError as error:
            os.close(opener)  # a gate that waits goes away
            self._end("failed", f"cannot start a worker: {os.strerror(error.errno or 0)}")
            return False
        finally:
            os.close(opening)
        self._record_beginning(number, identity)
        try:
            os.write(opener, gate.OPENED)
        except BrokenPipeError:
            pass  # somebody killed the gate: the watch will see it
        os.close(opener)
        return self._watch_and_conclude(number, tree, identity)

    def _worker_lock(self, number: int) -> int:
        """The lock, once nobody of an earlier attempt is left."""
        while (lock := locks.take(self._folder.worker_lock)) is None:
            for earlier in range(1, number):
                Tree(self._folder, earlier).end(grace_s=0, reap=_reap)
        return lock

    def _watch_and_conclude(self, number: int, tree: Tree, identity: Identity) -> bool:
        gate_signal, stop_sent = self._watch(number, tree, identity)
        tree.end(grace_s=0 if stop_sent else LEFTOVERS_GRACE_S, reap=_reap)
        seen = Seen(
            gate_signal=gate_signal, kernel_oom_kill=self._kernel_killed_just_now(), stop_sent=stop_sent
        )
        verdict = insistently(
            lambda: conclude(self._conn, self._folder, self._plan, number, self._intake, seen)
        )
        if verdict.next == "end":
            return False
        insistently(lambda: self._go_on(number, verdict.next, verdict.outcome, verdict.reason))
        return True

    def _kernel_killed_just_now(self) -> bool:
        """A kill for memory hours ago, of somebody else, says nothing."""
        self._look_for_kernel_kills()
        at = self._kernel_killed_at
        return at is not None and time.monotonic() - at < KILLED_LATELY_S

    def _look_for_kernel_kills(self) -> None:
        kills = processes.kernel_oom_kills()
        if kills is not None and self._kernel_kills is not None and kills > self._kernel_kills:
            self._kernel_killed_at = time.monotonic()
        self._kernel_kills = kills

    def _go_on(self, number: int, how: str, outcome: str, reason: str | None) -> None:
        """Another attempt follows, and never silently."""
        body: dict[str, object] = {"after": outcome, "reason": reason}
        if how == "step_down":
            steps = lost_and_stepped_down(self._conn, self._plan.number)[1]
            body["settings"] = self._plan.settings(steps)
            if 0 < steps <= len(self._plan.ladder):
                body["rung"] = self._plan.ladder[steps - 1]
        reports.add_event(self._conn, self._plan.number, number, time.time(), how, body)
        runs.set_state(self._conn, self._plan.number, "starting", reason)

    def _watch(self, number: int, tree: Tree, identity: Identity) -> tuple[int | None, bool]:
        """Returns when the gate has gone: the signal that ended it, if that can be known, and whether we
        had asked for a stop."""
        try:
            pidfd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return None, False
        alone = self._plan.exclusive or self._plan.reserved_mib is None
        sampler = Sampler(identity.pid, card=self._card, alone=alone, interval_s=SAMPLE_EVERY_S)
        try:
            # Only now that the descriptor pins the process does its identity say anything.
            stop_sent = identity.is_alive() and self._watch_open(number, tree, sampler, pidfd)
            return _signal_of_child(identity.pid), stop_sent
        finally:
            sampler.close()
            os.close(pidfd)

    def _watch_open(self, number: int, tree: Tree, sampler: Sampler, pidfd: int) -> bool:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        samples: list[Sample] = []
        next_sample = next_commit = next_write = 0.0
        kill_at: float | None = None
        asked_at: float | None = None
        self._kernel_kills, self._kernel_killed_at = processes.kernel_oom_kills(), None
        while not poll.poll(TICK_S * 1000) or (kill_at is not None and _somebody_is_left(tree)):
            now = time.monotonic()
            self._look_for_kernel_kills()
            stop = read_stop(self._folder)
            if stop is not None and stop.at != asked_at:
                if kill_at is None:
                    self._ask_to_stop(number, tree)
                kill_at, asked_at = now + stop.grace_s, stop.at  # asking again changes the grace
            if kill_at is not None and now >= kill_at:
                tree.end(grace_s=0, reap=_reap)
                break
            if now >= next_sample:
                next_sample = now + SAMPLE_EVERY_S
                if self._plan.on != "slurm":  # who stands here for a worker elsewhere is not what is measured
                    samples.append(sampler.take())
                logs.keep_newest(self._folder.log, self._plan.log_mib)
                _reap_orphans(leave=sampler.gate_pid)
            if now >= next_commit and (self._intake.has_news() or now >= next_write):
                next_commit, next_write = now + COMMIT_EVERY_S, now + SAMPLES_WRITTEN_EVERY_S
                if self._take_in(number, samples):
                    samples = []
        return kill_at is not None

    def _ask_to_stop(self, number: int, tree: Tree) -> None:
        # The mark comes first: an exit after it is an answer to us, not a success of its own.
        try:
            self._folder.attempt(number).asked_to_stop.touch()
        except OSError as error:
            _say(f"cannot mark that a stop was sent: {error}")
        tree.ask_to_stop(everybody=self._plan.is_command)

    def _take_in(self, number: int, samples: list[Sample]) -> bool:
        """What the worker reported, and our samples with it; False if it has to be tried again."""
        try:
            with transaction(self._conn):
                own = _curve(samples)
                for _ in range(CHUNKS_AT_ONCE):
                    if not self._intake.take(number, own):
                        break
                    own = []
                self._note_way(number, samples)
                if samples:
                    attempts.note_peaks(
                        self._conn,
                        self._plan.number,
                        number,
                        card_mib=max((s.card_mib for s in samples if s.card_mib is not None), default=None),
                        host_mib=max((s.host_mib for s in samples if s.host_mib is not None), default=None),
                        cpu_s=samples[-1].cpu_s,
                    )
        except PASSING as error:
            _say(f"will try again: {error}")
            self._intake.start_again_from_the_record()
            return False
        self._card_way = next((s.card_way for s in reversed(samples) if s.card_way), self._card_way)
        return True

    def _note_way(self, number: int, samples: list[Sample]) -> None:
        """How card memory was found is part of the figure: the record says it whenever it changes."""
        way = self._card_way
        for sample in samples:
            if sample.card_way is not None and sample.card_way != way:
                way = sample.card_way
                body = {"way": way}
                reports.add_event(
                    self._conn, self._plan.number, number, sample.at, reports.CARD_MEMORY_BY, body
                )

    def _record_beginning(self, number: int, identity: Identity) -> None:
        noted = read_json(self._folder.attempt(number).identity) or {}
        insistently(
            lambda: attempts.begin(
                self._conn,
                self._plan.number,
                number,
                settings=noted.get("settings", {}),
                card=self._card,
                boot_id=identity.boot,
                worker_pid=identity.pid,
                worker_started=identity.started,
                supervisor_pid=os.getpid(),
                started_at=noted.get("at", time.time()),
            )
        )

    def _is_closed(self, number: int) -> bool:
        return any(
            a.number == number and a.outcome is not None
            for a in attempts.of_run(self._conn, self._plan.number)
        )

    def _end(self, state: str, reason: str) -> None:
        insistently(lambda: end_without_attempt(self._conn, self._folder, self._plan.number, state, reason))


def _curve(samples: list[Sample]) -> list[Point]:
    return [
        Point(name, sample.at, value, sample.at)
        for sample in samples
        for name, value in (("host_memory_mib", sample.host_mib), ("card_memory_mib", sample.card_mib))
        if value is not None
    ]


def _has_begun(tree: Tree) -> bool:
    """Whether the worker's own code may have run; waits for a gate that is just making up its mind."""
    begun = tree.folder.attempt(tree.number).begun
    while not begun.exists():
        lock = locks.take(tree.folder.worker_lock)
        if lock is not None:
            os.close(lock)
            return begun.exists()
    return True


def _somebody_is_left(tree: Tree) -> bool:
    """During a stop the worker has left; whoever it started has the rest of the grace too."""
    if not tree.members():
        return False
    time.sleep(TICK_S)
    return True


def _signal_of_child(pid: int) -> int | None:
    try:
        _, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # adopted, or taken by _reap
        return None
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def _reap() -> None:
    """Takes the exits of all children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _reap_orphans(leave: int) -> None:
    """The same, but for the gate: how it ended is still wanted."""
    for pid in processes.children(os.getpid()):
        if pid != leave:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def _say(text: str) -> None:
    try:
        os.write(2, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # the disk it writes to may be the one that is full: no reason to die
