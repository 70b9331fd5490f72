"""kgops with one planted fault: what the kill tests must notice.

`python tests/mutants.py FAULT runs --json` is the `kgops` command with the fault, and so is every
supervisor it starts.
"""

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from gaps import GAP, wait_to_be_killed

from kgops.supervisor import (
    attempt_end,
    locks,
    outcome,
    process_tree,
    processes,
    run_folder,
    settle,
    spawn,
)
from storage import attempts, database, reports, runs, series

# Who waits to be killed where the fault shows: itself in the fault's own gap, or a worker after its first unit.
WAITS = {
    "folder_is_no_record": "launcher",
    "result_outside_the_transaction": "supervisor",
    "offset_outside_the_transaction": "supervisor",
}


def claim_without_lock() -> None:
    """Everybody gets the lock, nobody is ever seen holding one, and the list of processes is not asked either."""

    def take(path: Path, *, patience_s: float = 0.0) -> int:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    locks.take = take
    locks.is_held = lambda path: False
    vars(settle)["must_be_orphaned"] = lambda *given: None


def no_supervisor_means_dead_worker() -> None:
    """A run whose supervisor is gone is taken for dead, without a look at its worker."""
    process_tree.Tree.is_alive = lambda self: False  # type: ignore[method-assign]


def state_guessed_from_the_pid() -> None:
    """A process of that number is that process: neither its start time nor the boot is compared."""

    def is_alive(self: processes.Identity) -> bool:
        return Path(f"/proc/{self.pid}").exists()

    def send(who: processes.Identity, number: int) -> bool:
        try:
            os.kill(who.pid, number)
        except ProcessLookupError:
            return False
        return True

    processes.Identity.is_alive = is_alive  # type: ignore[method-assign]
    processes.send = send


def result_outside_the_transaction() -> None:
    """The end of a run is committed first, the end of its attempt some time later."""

    def commit(
        conn: sqlite3.Connection,
        run: int,
        ending: run_folder.Ending,
        signal: int | None,
        result: object,
        *,
        is_end: bool,
    ) -> None:
        if is_end:
            runs.end(
                conn,
                run,
                state=ending.state,
                reason=ending.reason,
                exit_code=ending.exit_code,
                ended_at=ending.ended_at,
            )
        if conn.in_transaction:
            conn.execute("COMMIT")
        _supervisor_waits()
        attempts.close(
            conn,
            run,
            ending.attempt,
            outcome=ending.state,
            reason=ending.reason,
            exit_code=ending.exit_code,
            signal=signal,
            ended_at=ending.ended_at,
        )
        conn.execute("BEGIN IMMEDIATE")

    attempt_end._commit = commit


def offset_outside_the_transaction() -> None:
    """Points are committed first, how far the file was read some time later."""

    def write_batch(
        conn: sqlite3.Connection, run: int, attempt: int, batch: attempts.Batch, upto: attempts.Offsets
    ) -> None:
        if conn.in_transaction:
            conn.execute("COMMIT")
        with database.transaction(conn):
            series.append(conn, run, batch.points)
            reports.write_artifacts(conn, run, batch.artifacts)
        if batch.points:
            _supervisor_waits()
        with database.transaction(conn):
            conn.execute("UPDATE intake SET events_offset = ? WHERE run = ?", (upto.events, run))
        conn.execute("BEGIN IMMEDIATE")

    attempts.write_batch = write_batch


def tree_is_not_reaped() -> None:
    """The worker's end is the end: what it started is left alone."""

    def end(self: process_tree.Tree, *, grace_s: float, reap: Callable[[], None] = lambda: None) -> None:
        reap()

    process_tree.Tree.end = end  # type: ignore[method-assign]


def success_by_guess() -> None:
    """A worker that vanished is taken to have finished."""
    real = outcome.decide

    def guess(facts: outcome.Facts) -> outcome.Verdict:
        verdict = real(facts)
        lost = verdict.outcome == "interrupted"
        return outcome.Verdict("succeeded", None, "end") if lost else verdict

    vars(attempt_end)["decide"] = guess


def folder_is_no_record() -> None:
    """A job whose row never committed is forgotten."""
    settle._finish_pending = lambda home, conn, done: None
    real = runs.add

    def add(*args: object, **kwargs: object) -> None:
        wait_to_be_killed(os.environ.get(GAP))
        real(*args, **kwargs)  # type: ignore[arg-type]

    runs.add = add


def _supervisor_waits() -> None:
    """A command that settles goes on: nobody looks for it in the gap."""
    if processes.SUPERVISOR in os.environ:
        wait_to_be_killed(os.environ.get(GAP))


MUTANTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        claim_without_lock,
        no_supervisor_means_dead_worker,
        state_guessed_from_the_pid,
        result_outside_the_transaction,
        offset_outside_the_transaction,
        tree_is_not_reaped,
        success_by_guess,
        folder_is_no_record,
    )
}


def plant(name: str) -> None:
    MUTANTS[name]()
    here = str(Path(__file__).parent)
    spawn.ENTRY = (
        f"sys.path.insert(0, {here!r}); import mutants; mutants.plant({name!r}); "
        "from kgops.supervisor.supervise import main; main()"
    )


if __name__ == "__main__":
    from kgops.cli import main

    plant(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
