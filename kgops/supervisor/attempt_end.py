"""Ends an attempt: reads what is on disk, decides the outcome and writes it in one transaction."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kgops.jobs import events, manifest
from kgops.jobs.files import read_table, write_json
from kgops.supervisor import gate, outcome, processes, run_folder, worker_reports
from kgops.supervisor.intake import Intake
from kgops.supervisor.outcome import Facts, Verdict, decide
from kgops.supervisor.plan_file import Plan
from kgops.supervisor.run_folder import RunFolder, put_right, read_stop
from kgops.supervisor.worker_reports import LogPatterns, keep_newest
from storage import attempts, reports, runs
from storage.database import Connection, transaction

_TAIL_BYTES = 256 << 10  # of the log, searched for out-of-memory errors


@dataclass(frozen=True, slots=True)
class Observations:
    """Facts that only the process that watched the worker knows; empty for any other process."""

    gate_signal: int | None = None
    gate_code: int | None = None  # its worker's, or 128 and the signal that ended it
    kernel_oom_kill: bool = False  # in the worker's control group, or on the machine
    orphan_killed: bool = False  # an orphan of the tree ended by a SIGKILL that kgops did not send
    stop_sent: bool = False


def new_intake(conn: Connection, folder: RunFolder, plan: Plan, *, reads_log: bool) -> Intake:
    """`reads_log`: match the log patterns, which may take seconds. For supervisors, not for consoles."""
    patterns = LogPatterns(plan.progress_regex, plan.metric_regex) if reads_log else LogPatterns(None, None)
    return Intake(conn, plan.number, folder, patterns)


def conclude(
    conn: Connection,
    folder: RunFolder,
    plan: Plan,
    number: int,
    intake: Intake,
    observed: Observations = Observations(),
) -> Verdict:
    """Ends an attempt. Call under the supervisor's lock, when no process of its tree is left. May be repeated."""
    put_right(folder)
    run_folder.give_room(folder)
    intake.take_all(number)
    with suppress(OSError):  # a log that stays too large is no reason not to end
        keep_newest(folder.log, plan.log_mib)  # written since the last look, or before the first
    exit_record = gate.read_exit(folder.attempt(number)) or _observed_exit(observed)
    facts, result = _gather_facts(conn, folder, plan, number, exit_record, observed)
    verdict = decide(facts)
    ending = run_folder.Ending(
        state=verdict.outcome,
        reason=verdict.reason,
        exit_code=exit_record.code if exit_record else None,
        attempt=number,
        ended_at=exit_record.at if exit_record else _detected_at(folder, number),
    )
    if verdict.next == "end":
        write_end(folder, ending)
    with suppress(OSError):  # it only repeats the database
        closing = {"outcome": verdict.outcome, "reason": verdict.reason, "at": ending.ended_at}
        write_json(folder.attempt(number).closed, closing)
    with transaction(conn):
        if exit_record is not None:
            attempts.note_peaks(
                conn,
                plan.number,
                number,
                gpu_mib=intake.most_reserved_mib,  # where a short run passed between two samples
                host_mib=exit_record.peak_mib if plan.on != "slurm" else None,
                cpu_s=exit_record.cpu_s if plan.on != "slurm" else None,
            )
        ended_by = exit_record.signal if exit_record else observed.gate_signal
        _commit(conn, plan.number, ending, ended_by, result, is_end=verdict.next == "end")
    return verdict


def commit_decided(
    conn: Connection, folder: RunFolder, plan: Plan, ending: run_folder.Ending, intake: Intake
) -> None:
    """Commits an end that the slot holds but the database does not: its writer died, or the disk was full."""
    put_right(folder)
    run_folder.give_room(folder)
    if ending.attempt:
        intake.take_all(ending.attempt)
    result = manifest.read(folder.manifest)[0] if ending.state == "succeeded" else None
    exit_record = gate.read_exit(folder.attempt(ending.attempt)) if ending.attempt else None
    _forget_private(folder)
    _commit(conn, plan.number, ending, exit_record.signal if exit_record else None, result, is_end=True)


def end_without_attempt(
    conn: Connection, folder: RunFolder, number: int, state: str, reason: str, lost: int = 0
) -> None:
    """Ends a run that has no running attempt. `lost`: the attempt of which no file is left."""
    ending = run_folder.Ending(state, reason, None, lost, time.time())
    put_right(folder)
    run_folder.give_room(folder)
    write_end(folder, ending)
    _commit(conn, number, ending, None, None, is_end=True)


def write_end(folder: RunFolder, ending: run_folder.Ending) -> None:
    """Writes the end to the folder before the database, whose disk may be full. If the folder cannot be written, the
    database has the end and `kgops doctor` repairs the folder."""
    _retry_write(lambda: run_folder.write_ending(folder.outcome, ending))
    _forget_private(folder)


def ending_of(run: runs.Run, last_attempt: int) -> run_folder.Ending:
    """The end as recorded in the run's row, for its folder."""
    return run_folder.Ending(run.state, run.reason, run.exit_code, last_attempt, run.ended_at or time.time())


def _forget_private(folder: RunFolder) -> None:
    _retry_write(lambda: folder.private.unlink(missing_ok=True))
    sweep(folder)


def _retry_write(write: Callable[[], None]) -> None:
    for pause_s in (0.1, 0.5, 0.0):
        try:
            write()
            return
        except OSError:
            time.sleep(pause_s)  # a disk that fails once may not fail twice


def sweep(folder: RunFolder) -> None:
    """Removes temporary files of killed processes. Call under the supervisor's lock: nobody else writes these."""
    with suppress(OSError):  # a disk that is full, broken or read-only
        patterns = [".*.tmp", "attempts/*/.*.tmp"]
        patterns += [] if folder.results.is_symlink() else ["results/.manifest.json.*.tmp"]
        for temporary in (path for pattern in patterns for path in folder.path.glob(pattern)):
            temporary.unlink(missing_ok=True)


def _commit(
    conn: Connection,
    run: int,
    ending: run_folder.Ending,
    signal: int | None,
    result: manifest.Manifest | None,
    *,
    is_end: bool,
) -> None:
    """Writes attempt, result and end in one transaction: an ended run never lacks its result."""
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


def count_lost_and_oom(conn: Connection, number: int) -> tuple[int, int]:
    """How many attempts of the run were lost, and how many ran out of memory."""
    outcomes = [attempt.outcome for attempt in attempts.of_run(conn, number)]
    return outcomes.count("interrupted"), outcomes.count("out_of_memory")


def _reported_causes(conn: Connection, run: int, number: int) -> tuple[str | None, str | None]:
    """Causes that the worker reported, out of memory and failure, from the database: the supervisor that recorded
    them may be dead."""
    oom_sign = failure = None
    for event in reports.events(conn, run, kinds=(events.OUT_OF_MEMORY, events.FAILED)):
        if event.attempt == number and event.kind == events.FAILED:
            failure = event.body["reason"]
        elif event.attempt == number:
            oom_sign = event.body.get("detail") or "the worker ran out of memory"
    return oom_sign, failure


def _gather_facts(
    conn: Connection,
    folder: RunFolder,
    plan: Plan,
    number: int,
    exit_record: gate.Exit | None,
    observed: Observations,
) -> tuple[Facts, manifest.Manifest | None]:
    attempt = folder.attempt(number)
    code = exit_record.code if exit_record else None
    was_asked_to_stop = exit_record.asked_to_stop if exit_record else attempt.asked_to_stop.exists()
    was_asked_to_stop = was_asked_to_stop or observed.stop_sent
    is_done = plan.is_command and code == 0 and not was_asked_to_stop
    if is_done and not folder.results.is_symlink():
        # A command's result is its exit code; the manifest records it.
        with suppress(OSError):  # it only repeats the database
            manifest.write(folder.manifest, [], {}, written_by=manifest.owner(plan.key, number))
    result, result_trouble = (None, None) if plan.is_command else _result(folder, plan, number)
    identity_file = read_table(attempt.identity)
    # Attempts share the log: skip lines of earlier ones.
    log_from = identity_file.get("log_from", 0)
    tail = worker_reports.last_bytes(
        folder.log, _TAIL_BYTES, since=log_from if isinstance(log_from, int) else 0
    )
    number_of_signal = exit_record.signal if exit_record else observed.gate_signal
    oom_sign, failure = _reported_causes(conn, plan.number, number)
    if oom_sign is None and code != 0 and exit_record is not None:
        oom_sign = outcome.sign_of_out_of_memory(tail)
    if oom_sign is None and observed.kernel_oom_kill and _was_killed(exit_record, observed, tail):
        oom_sign = "the kernel killed the worker: host memory ran out"
    # No fallback helps a worker that lacks memory for its libraries.
    has_started = any(e.attempt == number for e in reports.events(conn, plan.number, kinds=(events.STARTED,)))
    if oom_sign is not None and not has_started and not plan.is_command:
        oom_sign = (
            f"too little memory to load the worker's libraries; {oom_sign.removeprefix('Out of memory: ')}"
        )
    lost, oom_count = count_lost_and_oom(conn, plan.number)
    identity = processes.identity_from(identity_file)
    facts = Facts(
        has_result=result is not None or is_done,
        result_trouble=result_trouble,
        exit_code=code,
        exit_signal=number_of_signal,
        stop_requested=read_stop(folder) is not None,
        stop_sent=was_asked_to_stop,
        out_of_memory=oom_sign,
        failure=failure or (exit_record.could_not_start if exit_record else None),
        disk_full=code not in (0, None) and outcome.says_disk_full(tail),
        file_too_large=code not in (0, None) and outcome.says_file_too_large(tail),
        cpu_limit_reached=exit_record is not None and exit_record.cpu_limit_reached,
        rebooted=exit_record is None and identity is not None and identity.boot != processes.boot_id(),
        fallbacks_left=plan.fallbacks_left(oom_count) if plan.is_command or has_started else 0,
        last_resort=plan.last_resort if has_started else None,
        attempts_left=max(plan.attempts - lost - 1, 0),
    )
    return facts, result


def _observed_exit(observed: Observations) -> gate.Exit | None:
    """The exit of a worker whose record is lost with the run's folder."""
    code = observed.gate_code
    if code is None:
        return None
    ended_by = code - 128 if code > 128 else None
    return gate.Exit(None if ended_by else code, ended_by, time.time(), None, observed.stop_sent)


def _detected_at(folder: RunFolder, number: int) -> float:
    """End time of an unobserved end: now, but never before the start, even if the clock was set back."""
    began = read_table(folder.attempt(number).identity).get("at")
    return max(time.time(), began) if isinstance(began, float) else time.time()


def _result(folder: RunFolder, plan: Plan, number: int) -> tuple[manifest.Manifest | None, str | None]:
    """The manifest that this attempt wrote. A cluster worker may outlive the attempt that submitted it, and a later
    attempt may follow it."""
    own_attempts = range(1, number + 1) if plan.on is not None else (number,)
    return manifest.read(folder.manifest, owners=frozenset(manifest.owner(plan.key, n) for n in own_attempts))


def _was_killed(exit_record: gate.Exit | None, observed: Observations, tail: bytes) -> bool:
    """Whether a process of the attempt's tree died by a SIGKILL that kgops did not send."""
    if exit_record is not None and exit_record.code == 0:
        return False
    signals = (exit_record.signal if exit_record else None, observed.gate_signal)
    return (
        signal.SIGKILL in signals
        or (exit_record is not None and exit_record.code == 128 + signal.SIGKILL)  # as shells report it
        or observed.orphan_killed
        or outcome.says_killed(tail)
    )
