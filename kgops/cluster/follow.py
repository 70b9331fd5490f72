"""`python -m kgops.cluster.follow job.toml`: submits a worker to Slurm and follows it.

It relays the worker's events and log, and ends with the worker's exit code. If it is killed, the Slurm job goes on
and the next attempt follows it again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from kgops.cluster import slurm_commands as commands
from kgops.cluster.script import Submission, script, submissions
from kgops.errors import KgopsError, Unavailable
from kgops.jobs import events, manifest
from kgops.jobs.files import open_regular, read_json, read_regular, write_json
from kgops.jobs.job import Job
from kgops.supervisor import worker_reports
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.job_files import read_job_file

_POLL_S = 0.5  # at files
_FIRST_QUERY_S, _LATER_QUERY_S = 1.0, 10.0  # queries of the controller: often at first, then rarely
_FREQUENT_FOR_S = 60.0
_SHARE_OF_GRACE = 0.7
_NETWORK_S = 15.0  # until a file is visible on another machine
_PASSED_VARIABLES = (
    *("KGOPS_HOME", "KGOPS_RUN", "KGOPS_RUN_FOLDER", "KGOPS_ATTEMPT", "KGOPS_SETTINGS", "KGOPS_FORCE"),
    "KGOPS_DATA_BEFORE",
    manifest.OWNER,
)


def main() -> int:
    job = read_job_file(Path(sys.argv[1]))
    folder = RunFolder(Path(os.environ["KGOPS_RUN_FOLDER"]))
    attempt = int(os.environ["KGOPS_ATTEMPT"])
    with Path(os.environ["KGOPS_EVENTS"]).open("ab", buffering=0) as file:
        follower = _Follower(job, folder, attempt, file)
        try:
            return follower.follow()
        except KgopsError as error:
            hint = f" Hint: {error.hint}" if error.hint else ""
            follower.report(events.FAILED, reason=error.message + hint)
            print(f"Error: {error.message}", file=sys.stderr)
            return error.exit_code


@dataclass
class _Log:
    """Reads a log that grows on another machine, in whole lines where possible."""

    path: Path
    at: int = 0

    def new(self, *, final: bool) -> bytes:
        """The next chunk; with `final` including an unfinished last line. Empty if there is nothing new."""
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            return b""
        try:
            text = os.pread(fd, worker_reports.CHUNK, self.at)
        finally:
            os.close(fd)
        # Progress bars write carriage returns alone, for hours.
        whole = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if whole == 0 and (final or len(text) == worker_reports.CHUNK):
            whole = len(text)
        self.at += whole
        return text[:whole]


@dataclass
class _Events:
    """Reads an events file that grows on another machine."""

    path: Path
    at: int = 0
    _omission_noted: bool = False  # that a part of the line we are in was left out

    def new(self, *, final: bool) -> list[bytes] | None:
        """About a chunk of lines, each with its line feed; None where there is no more yet."""
        lines, offset = worker_reports.read_lines(self.path, self.at, final=final)
        if offset == self.at:
            return None
        self.at = offset
        return [event for line in lines if (event := self._as_event(line))]

    def _as_event(self, line: bytes | None) -> bytes:
        if line is not None:
            self._omission_noted = False
            return line + b"\n" if line else b""
        was_noted, self._omission_noted = self._omission_noted, True
        text = "Part of an event longer than 1 MiB was omitted."
        return b"" if was_noted else events.write(events.NOTE, time.time(), text=text)


@dataclass
class _Follower:
    job: Job
    folder: RunFolder
    attempt: int
    run_events: BinaryIO  # the run's events file: relayed lines and our own
    _stop_requested_at: float = 0.0  # when; 0 is never
    _terminated: set[int] = field(default_factory=set)
    _cancelled: set[int] = field(default_factory=set)
    _last_note: str = ""
    _events: _Events = field(init=False)
    _log: _Log = field(init=False)
    _tasks: dict[Path, _Events] = field(default_factory=dict)

    def __post_init__(self) -> None:
        signal.signal(signal.SIGTERM, self._request_stop)
        self._dir = self.folder.attempt(self.attempt).path / "slurm"

    def report(self, kind: str, /, **fields: object) -> None:
        self.run_events.write(events.write(kind, time.time(), **fields))

    def follow(self) -> int:
        number, merge = self._earlier_job() or self._submit()
        self._events, self._log = _Events(self._dir / "events.all.jsonl"), _Log(self._dir / "log.all")
        started = time.monotonic()
        queried = 0.0
        followed = merge or number
        while True:
            self._relay()
            pause = _FIRST_QUERY_S if time.monotonic() - started < _FREQUENT_FOR_S else _LATER_QUERY_S
            if self._stop_requested_at:
                self._stop(number, merge)
            if time.monotonic() - queried > pause:
                queried = time.monotonic()
                try:
                    waiting = commands.queued(followed)
                except Unavailable as error:  # a controller's outage ends no job
                    self._note_change(f"Slurm does not answer: {error.message}")
                    continue
                if waiting is None:
                    code = self._ended(followed)
                    if code is not None:
                        return code
                    continue
                self._note_change(f"Slurm job {followed}: {waiting}" + self._of_array(number, merge))
                if merge is not None and (failure := self._failure_of_tasks()) is not None:
                    self.run_events.write(failure)
                    commands.cancel(merge)
                    commands.cancel(number)
                    return 1
            time.sleep(_POLL_S)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_requested_at = self._stop_requested_at or time.monotonic()

    def _stop(self, number: int, merge: int | None) -> None:
        """Sends TERM once to running jobs and cancels pending ones at once; late in the grace cancels all, since a job
        that nobody follows must not go on."""
        is_late = time.monotonic() - self._stop_requested_at > _SHARE_OF_GRACE * self.job.limits.grace_s
        for number_of_job in {number, merge} - {None} - self._cancelled:
            assert number_of_job is not None
            waiting = commands.queued(number_of_job)
            if waiting is not None and waiting.is_running and not is_late:
                if number_of_job not in self._terminated:
                    commands.cancel(number_of_job, "TERM")
                self._terminated.add(number_of_job)
            elif waiting is not None:
                commands.cancel(number_of_job)
                self._cancelled.add(number_of_job)

    def _earlier_job(self) -> tuple[int, int | None] | None:
        """The Slurm job of an earlier attempt, if it still runs with the same settings."""
        for number in range(self.attempt, 0, -1):
            folder = self.folder.attempt(number).path / "slurm"
            record = read_json(folder / "job.json")
            if record is None:
                continue
            job, merge = record["job"], record["merge"]
            if commands.queued(merge or job) is None:
                continue
            if record["settings"] == os.environ["KGOPS_SETTINGS"]:
                self._dir = folder
                self.report(
                    events.NOTE, text=f"Slurm job {merge or job} is still running: kgops follows it again."
                )
                return job, merge
            commands.cancel(job)  # it runs with other settings
            if merge is not None:
                commands.cancel(merge)
        return None

    def _submit(self) -> tuple[int, int | None]:
        self._dir.mkdir(parents=True, exist_ok=True)
        scripts = submissions(self.job)
        numbers: list[int] = []
        for submission in scripts:
            numbers.append(commands.submit(self._write_script(submission), submission.options(numbers)))
        number, merge = numbers[0], numbers[1] if len(numbers) > 1 else None
        write_json(
            self._dir / "job.json",
            {"job": number, "merge": merge, "settings": os.environ["KGOPS_SETTINGS"]},
        )
        array = (
            f", an array of {scripts[0].array} tasks, and job {merge}, which merges their results"
            if merge
            else ""
        )
        self.report(events.NOTE, text=f"submitted to Slurm as job {number}{array}.")
        return number, merge

    def _write_script(self, submission: Submission) -> Path:
        command = [sys.executable, "-P", "-m", submission.module, str(self.folder.job)]
        variables = {key: os.environ[key] for key in _PASSED_VARIABLES if key in os.environ}
        name = f"kgops-{os.environ.get('KGOPS_RUN', '0')}"
        path = self._dir / submission.file
        path.write_text(
            script(
                name,
                submission.place,
                self._dir,
                str(Path.cwd()),
                command,
                {**variables, **submission.environment},
            )
        )
        return path

    def _relay(self, *, final: bool = False) -> None:
        """Relays new events and log lines; `final` once the worker has ended."""
        while (lines := self._events.new(final=final)) is not None:
            self.run_events.write(b"".join(lines))
        while printed := self._log.new(final=final):
            sys.stdout.buffer.write(printed)
            sys.stdout.buffer.flush()

    def _note_change(self, text: str) -> None:
        """Writes a note if the text has changed."""
        if text != self._last_note:
            self._last_note = text
            self.report(events.NOTE, text=text[:1].upper() + text[1:] + ".")

    def _of_array(self, array: int, merge: int | None) -> str:
        if merge is None:
            return ""
        waiting = commands.queued(array)
        self._progress()
        return f"; array {array}: {waiting}" if waiting is not None else ""

    def _failure_of_tasks(self) -> bytes | None:
        """The failure event of a task: if one fails, all will."""
        for path in self._dir.glob("events.*.jsonl"):
            for line in self._tasks.setdefault(path, _Events(path)).new(final=False) or ():
                if events.read(line, 0.0).kind in (events.OUT_OF_MEMORY, events.FAILED):
                    return line
        return None

    def _progress(self) -> None:
        plans = list((self.folder.path / "shards").glob("*/plan.json"))
        plan = read_json(plans[0]) if len(plans) == 1 else None
        if plan is not None:
            done = sum(1 for _ in plans[0].parent.glob("*.pt"))
            total = plan["shares"] * len(plan["tiles"])
            self.report(events.PROGRESS, phase="shards", done=done, total=total, unit="shards")

    def _ended(self, job: int) -> int | None:
        """Exit code of the ended job; dies by the worker's signal. None if the job is only being requeued."""
        deadline = time.monotonic() + _NETWORK_S
        exit_file = self._dir / "exit.all"
        while (state := commands.end_of(job)) in commands.NOT_OVER or not exit_file.exists():
            if commands.queued(job) is not None:
                return None
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        self._relay(final=True)
        if exit_file.exists():
            code = int(read_regular(exit_file))
            if code > 128:
                _die_by_signal(code - 128)
            return code
        if state == "OUT_OF_MEMORY":
            self.report(
                events.OUT_OF_MEMORY, detail="Slurm ended the job: it used more host memory than requested"
            )
            return 1
        if state == "CANCELLED":
            self.report(events.NOTE, text=f"Slurm job {job} was cancelled.")
            _die_by_signal(signal.SIGTERM)
        # Its node failed, or the time limit came before it could save: the attempt is lost.
        self.report(
            events.NOTE, text=f"Slurm job {job} ended without an exit code: {state or 'unknown to Slurm'}."
        )
        _die_by_signal(signal.SIGKILL)
        return 1


def _die_by_signal(number: int) -> None:
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
