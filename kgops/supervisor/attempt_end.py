"""The end of an attempt: what is on disk is read, decided, and written down in one transaction."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kgops.jobs import events, manifest
from kgops.jobs.files import read_table, write_json
from kgops.supervisor import gate, line_reader, oom_detection, preallocated_record, processes
from kgops.supervisor.intake import Intake
from kgops.supervisor.log_patterns import LogPatterns
from kgops.supervisor.outcome import Facts, Verdict, decide
from kgops.supervisor.plan_file import Plan
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.stop_request import read_stop
from storage import attempts, reports, runs
from storage.database import Connection, transaction

_TAIL = 256 << 10  # of the log, where an out-of-memory is looked for


@dataclass(frozen=True, slots=True)
class Seen:
    """What only whoever watched the worker can know; a newcomer knows nothing."""

    gate_signal: int | None = None
    kernel_oom_kill: bool = False  # of somebody in the worker's control group, or on the machine
    orphan_killed: bool = (
        False  # somebody of the tree whose parent had gone was ended by a SIGKILL that was not ours
    )
    stop_sent: bool = False


def new_intake(conn: Connection, folder: RunFolder, plan: Plan, *, reads_log: bool) -> Intake:
    """`reads_log`: with the person's patterns, which may take seconds. Supervisors have those, consoles do not."""
    patterns = LogPatterns(plan.progress_regex, plan.metric_regex) if reads_log else LogPatterns(None, None)
    return Intake(conn, plan.number, folder, patterns)


def conclude(
    conn: Connection, folder: RunFolder, plan: Plan, number: int, intake: Intake, seen: Seen = Seen()
) -> Verdict:
    """Call under the supervisor's lock, when nobody of the attempt's tree is left. May be repeated."""
    intake.take_all(number, final=True)
    left = gate.read_exit(folder.attempt(number))
    facts, result = _gather(conn, folder, plan, number, left, seen)
    verdict = decide(facts)
    ending = preallocated_record.Ending(
        state=verdict.outcome,
        reason=verdict.reason,
        exit_code=left.code if left else None,
        attempt=number,
        ended_at=left.at if left else _found_at(folder, number),
    )
    if verdict.next == "end":
        write_end(folder, ending)
    with _as_far_as_possible():
        closed = {"outcome": verdict.outcome, "reason": verdict.reason, "at": ending.ended_at}
        write_json(folder.attempt(number).closed, closed)
    with transaction(conn):
        if left is not None:
            attempts.note_peaks(
                conn,
                plan.number,
                number,
                gpu_mib=None,
                host_mib=left.peak_mib if plan.on != "slurm" else None,
                cpu_s=None,
            )
        ended_by = left.signal if left else seen.gate_signal
        _commit(conn, plan.number, ending, ended_by, result, is_end=verdict.next == "end")
    return verdict


def commit_decided(
    conn: Connection, folder: RunFolder, plan: Plan, ending: preallocated_record.Ending, intake: Intake
) -> None:
    """The slot holds the end already; whoever wrote it died, or the disk was full, before the database knew."""
    if ending.attempt:
        intake.take_all(ending.attempt, final=True)
    result = manifest.read(folder.manifest)[0] if ending.state == "succeeded" else None
    left = gate.read_exit(folder.attempt(ending.attempt)) if ending.attempt else None
    _forget_private(folder)
    _commit(conn, plan.number, ending, left.signal if left else None, result, is_end=True)


def end_without_attempt(conn: Connection, folder: RunFolder, number: int, state: str, reason: str) -> None:
    """The end of a run of which nothing runs and nothing will."""
    ending = preallocated_record.Ending(state, reason, None, 0, time.time())
    write_end(folder, ending)
    _commit(conn, number, ending, None, None, is_end=True)


def write_end(folder: RunFolder, ending: preallocated_record.Ending) -> None:
    """Into the folder before the database, which may be full. Where the folder cannot take it the database must, and
    `kgops doctor` mends the folder."""
    _as_hard_as_possible(lambda: preallocated_record.write_ending(folder.outcome, ending))
    _forget_private(folder)


def ending_of(run: runs.Run, last_attempt: int) -> preallocated_record.Ending:
    """What an ended run's row says, as its folder should."""
    return preallocated_record.Ending(
        run.state, run.reason, run.exit_code, last_attempt, run.ended_at or time.time()
    )


def _forget_private(folder: RunFolder) -> None:
    _as_hard_as_possible(lambda: folder.private.unlink(missing_ok=True))
    sweep(folder)


def _as_hard_as_possible(write: Callable[[], None]) -> None:
    for pause_s in (0.1, 0.5, 0.0):
        try:
            write()
            return
        except OSError:
            time.sleep(pause_s)  # a disk that fails once may not fail twice


def sweep(folder: RunFolder) -> None:
    """Half-written files of processes that were killed. Under the supervisor's lock nobody else writes these."""
    with _as_far_as_possible():
        for pattern in (".*.tmp", "attempts/*/.*.tmp", "results/.manifest.json.*.tmp"):
            for half in folder.path.glob(pattern):
                half.unlink(missing_ok=True)


def _commit(
    conn: Connection,
    run: int,
    ending: preallocated_record.Ending,
    signal: int | None,
    result: manifest.Manifest | None,
    *,
    is_end: bool,
) -> None:
    """All of it or nothing: an ended run whose result is missing would be a lie."""
    with transaction(conn):
        if ending.attempt:
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
        if result is not None:
            files = [
                reports.Artifact(f.path, f.kind, f.sha256, f.bytes, ending.ended_at) for f in result.files
            ]
            reports.record_result(conn, run, files, result.metrics)
        if is_end:
            runs.end(
                conn,
                run,
                state=ending.state,
                reason=ending.reason,
                exit_code=ending.exit_code,
                ended_at=ending.ended_at,
            )


def lost_and_stepped_down(conn: Connection, number: int) -> tuple[int, int]:
    """How many attempts of the run were lost, and how many ran out of memory."""
    outcomes = [attempt.outcome for attempt in attempts.of_run(conn, number)]
    return outcomes.count("interrupted"), outcomes.count("out_of_memory")


@contextmanager
def _as_far_as_possible() -> Iterator[None]:
    """For what stands elsewhere too: a full, broken or read-only disk must not keep a run from ending."""
    try:
        yield
    except OSError:
        pass


def _said(conn: Connection, run: int, number: int) -> tuple[str | None, str | None]:
    """The attempt's own word on running out of memory and on why it failed, as the record has it: the
    supervisor that took it in may be dead by now."""
    memory = failure = None
    for event in reports.events(conn, run, kinds=(events.OUT_OF_MEMORY, events.FAILED)):
        if event.attempt == number and event.kind == events.FAILED:
            failure = event.body["reason"]
        elif event.attempt == number:
            memory = event.body.get("detail") or "the worker ran out of memory"
    return memory, failure


def _gather(
    conn: Connection,
    folder: RunFolder,
    plan: Plan,
    number: int,
    left: gate.Exit | None,
    seen: Seen,
) -> tuple[Facts, manifest.Manifest | None]:
    attempt = folder.attempt(number)
    code = left.code if left else None
    asked = left.asked_to_stop if left else attempt.asked_to_stop.exists()
    asked = asked or seen.stop_sent
    is_done = plan.is_command and code == 0 and not asked
    if is_done:
        # For a command its exit code is its result; from here on the manifest says so.
        with _as_far_as_possible():
            manifest.write(folder.manifest, [], {}, written_by=_owner(plan, number))
    result, trouble = (None, None) if plan.is_command else _result(folder, plan, number)
    noted = read_table(attempt.identity)
    # Attempts share the log: what an earlier one wrote says nothing of this one.
    log_from = noted.get("log_from", 0)
    tail = line_reader.last_bytes(folder.log, _TAIL, since=log_from if isinstance(log_from, int) else 0)
    number_of_signal = left.signal if left else seen.gate_signal
    memory, failure = _said(conn, plan.number, number)
    if memory is None and code != 0 and left is not None:
        memory = oom_detection.sign_of_out_of_memory(tail)
    if memory is None and seen.kernel_oom_kill and _was_killed(left, seen, tail):
        memory = "the kernel killed the worker: host memory ran out"
    # Without memory for its libraries alone a worker has none on any fallback.
    has_started = any(e.attempt == number for e in reports.events(conn, plan.number, kinds=(events.STARTED,)))
    if memory is not None and not has_started and not plan.is_command:
        memory = f"too little memory to load the worker's libraries; {memory.removeprefix('Out of memory: ')}"
    lost, stepped = lost_and_stepped_down(conn, plan.number)
    identity = processes.identity_from(noted)
    facts = Facts(
        has_result=result is not None or is_done,
        result_trouble=trouble,
        exit_code=code,
        exit_signal=number_of_signal,
        stop_requested=read_stop(folder) is not None,
        stop_sent=asked,
        out_of_memory=memory,
        failure=failure or (left.could_not_start if left else None),
        disk_full=code not in (0, None) and oom_detection.says_disk_full(tail),
        rebooted=left is None and identity is not None and identity.boot != processes.boot_id(),
        fallbacks_left=plan.fallbacks_left(stepped) if plan.is_command or has_started else 0,
        last_resort=plan.last_resort if has_started else None,
        attempts_left=max(plan.attempts - lost - 1, 0),
    )
    return facts, result


def _found_at(folder: RunFolder, number: int) -> float:
    """Of an end that nobody saw: now, and not before it began, whatever the clock says."""
    began = read_table(folder.attempt(number).identity).get("at")
    return max(time.time(), began) if isinstance(began, float) else time.time()


def _owner(plan: Plan, attempt: int) -> str | None:
    return None if plan.key is None else manifest.owner(plan.key, attempt)


def _result(folder: RunFolder, plan: Plan, number: int) -> tuple[manifest.Manifest | None, str | None]:
    """The manifest that this attempt wrote. A worker on a cluster outlives the attempt that gave it away, and an
    attempt after that may follow it."""
    if plan.key is None:  # of a run that an older kgops accepted
        return manifest.read(folder.manifest)
    attempts_of_it = range(1, number + 1) if plan.on is not None else (number,)
    return manifest.read(
        folder.manifest, owners=frozenset(manifest.owner(plan.key, n) for n in attempts_of_it)
    )


def _was_killed(left: gate.Exit | None, seen: Seen, tail: bytes) -> bool:
    """Whether somebody of the attempt's tree died by a SIGKILL that we did not send."""
    if left is not None and left.code == 0:
        return False
    signals = (left.signal if left else None, seen.gate_signal)
    return (
        signal.SIGKILL in signals
        or (left is not None and left.code == 128 + signal.SIGKILL)  # as shells tell it
        or seen.orphan_killed
        or oom_detection.says_killed(tail)
    )
