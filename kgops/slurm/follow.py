"""`python -m kgops.slurm.follow job.toml`: stands for a worker that Slurm runs elsewhere.

It submits the worker, hands on what that says as if it were here, and ends as the worker ended. Killed, it leaves
the Slurm job alone: the next attempt finds it by its mark and follows it again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from kgops.errors import KgopsError, Unavailable
from kgops.jobs import events, manifest
from kgops.jobs.files import open_regular, read_json, read_regular, write_json
from kgops.jobs.job import Job, read_job_file
from kgops.slurm import commands
from kgops.slurm.script import script
from kgops.slurm.submission import Submission, submissions
from kgops.supervisor import line_reader
from kgops.supervisor.run_folder import RunFolder

__all__ = ["main"]

_LOOK_S = 0.5  # at files
_FIRST_ASKS_S, _LATER_ASKS_S = 1.0, 10.0  # of the controller: often at first, then as sites like it
_OFTEN_FOR_S = 60.0
_SHARE_OF_GRACE = 0.7
_NETWORK_S = 15.0  # that a file may take to be seen from another machine
_GIVEN = (
    *("KGOPS_HOME", "KGOPS_RUN", "KGOPS_RUN_FOLDER", "KGOPS_ATTEMPT", "KGOPS_SETTINGS"),
    manifest.OWNER,
)


def main() -> int:
    job = read_job_file(Path(sys.argv[1]))
    folder = RunFolder(Path(os.environ["KGOPS_RUN_FOLDER"]))
    attempt = int(os.environ["KGOPS_ATTEMPT"])
    with Voice() as voice:
        try:
            return _Following(job, folder, attempt, voice).to_its_end()
        except KgopsError as error:
            voice.say(events.FAILED, reason=error.message + (f" Hint: {error.hint}" if error.hint else ""))
            print(f"Error: {error.message}", file=sys.stderr)
            return error.exit_code


class Voice:
    """The run's events file and log, for lines from elsewhere and for our own."""

    def __enter__(self) -> Voice:
        self._file = Path(os.environ["KGOPS_EVENTS"]).open("ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def say(self, kind: str, /, **fields: object) -> None:
        self._file.write(events.write(kind, time.time(), **fields))

    def hand_on(self, lines: bytes) -> None:
        self._file.write(lines)


@dataclass
class _Log:
    """A log that grows somewhere else, from where we were: its bytes as they are, in whole lines where it has any."""

    path: Path
    at: int = 0

    def new(self, *, final: bool) -> bytes:
        """A chunk of it; with `final` an unfinished last line counts, too. Nothing: there is no more yet."""
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            return b""
        try:
            text = os.pread(fd, line_reader.CHUNK, self.at)
        finally:
            os.close(fd)
        # Progress bars write carriage returns alone, for hours.
        whole = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if whole == 0 and (final or len(text) == line_reader.CHUNK):
            whole = len(text)
        self.at += whole
        return text[:whole]


@dataclass
class _Events:
    """Lines of an events file that grows somewhere else, from where we were."""

    path: Path
    at: int = 0
    _told: bool = False  # that a part of the line we are in was left out

    def new(self, *, final: bool) -> list[bytes] | None:
        """About a chunk of lines, each with its line feed; None where there is no more yet."""
        lines, behind = line_reader.read_lines(self.path, self.at, final=final)
        if behind == self.at:
            return None
        self.at = behind
        return [one for line in lines if (one := self._handed_on(line))]

    def _handed_on(self, line: bytes | None) -> bytes:
        if line is not None:
            self._told = False
            return line + b"\n" if line else b""
        told, self._told = self._told, True
        text = "Part of an event longer than 1 MiB was omitted."
        return b"" if told else events.write(events.NOTE, time.time(), text=text)


@dataclass
class _Following:
    job: Job
    folder: RunFolder
    attempt: int
    voice: Voice
    _stop_asked: float = 0.0  # when; 0 is never
    _asked: set[int] = field(default_factory=set)
    _gone: set[int] = field(default_factory=set)
    _shown: str = ""
    _events: _Events = field(init=False)
    _log: _Log = field(init=False)
    _tasks: dict[Path, _Events] = field(default_factory=dict)

    def __post_init__(self) -> None:
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        self._dir = self.folder.attempt(self.attempt).path / "slurm"

    def to_its_end(self) -> int:
        number, merge = self._earlier() or self._submit()
        self._events, self._log = _Events(self._dir / "events.all.jsonl"), _Log(self._dir / "log.all")
        begun = time.monotonic()
        asked = 0.0
        followed = merge or number
        while True:
            self._relay()
            pause = _FIRST_ASKS_S if time.monotonic() - begun < _OFTEN_FOR_S else _LATER_ASKS_S
            if self._stop_asked:
                self._stop(number, merge)
            if time.monotonic() - asked > pause:
                asked = time.monotonic()
                try:
                    waiting = commands.queued(followed)
                except Unavailable as error:  # a controller that is away for a while ends no job
                    self._tell(f"Slurm does not answer: {error.message}")
                    continue
                if waiting is None:
                    code = self._ended(followed)
                    if code is not None:
                        return code
                    continue
                self._tell(f"Slurm job {followed}: {waiting}" + self._of_array(number, merge))
                if merge is not None and (trouble := self._trouble_of_tasks()) is not None:
                    self.voice.hand_on(trouble)
                    commands.cancel(merge)
                    commands.cancel(number)
                    return 1
            time.sleep(_LOOK_S)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_asked = self._stop_asked or time.monotonic()

    def _stop(self, number: int, merge: int | None) -> None:
        """Whoever runs is asked, once; whoever waits goes at once, and everybody before our own time is over: a job
        that nobody follows must not go on."""
        late = time.monotonic() - self._stop_asked > _SHARE_OF_GRACE * self.job.limits.grace_s
        for one in {number, merge} - {None} - self._gone:
            assert one is not None
            waiting = commands.queued(one)
            if waiting is not None and waiting.is_running and not late:
                if one not in self._asked:
                    commands.cancel(one, "TERM")
                self._asked.add(one)
            elif waiting is not None:
                commands.cancel(one)
                self._gone.add(one)

    def _earlier(self) -> tuple[int, int | None] | None:
        """The job of an attempt before this one, where it is still going, with the same settings."""
        for number in range(self.attempt, 0, -1):
            where = self.folder.attempt(number).path / "slurm"
            told = read_json(where / "job.json")
            if told is None:
                continue
            job, merge = told["job"], told["merge"]
            if commands.queued(merge or job) is None:
                continue
            if told["settings"] == os.environ["KGOPS_SETTINGS"]:
                self._dir = where
                self.voice.say(
                    events.NOTE, text=f"Slurm job {merge or job} is still running: kgops follows it again."
                )
                return job, merge
            commands.cancel(job)  # what it would find is not what is asked for now
            if merge is not None:
                commands.cancel(merge)
        return None

    def _submit(self) -> tuple[int, int | None]:
        self._dir.mkdir(parents=True, exist_ok=True)
        asked = submissions(self.job)
        numbers: list[int] = []
        for one in asked:
            numbers.append(commands.submit(self._written(one), one.options(numbers)))
        number, merge = numbers[0], numbers[1] if len(numbers) > 1 else None
        write_json(
            self._dir / "job.json",
            {"job": number, "merge": merge, "settings": os.environ["KGOPS_SETTINGS"]},
        )
        array = f", an array of {asked[0].array} tasks, and job {merge}, which merges their results" if merge else ""
        self.voice.say(events.NOTE, text=f"submitted to Slurm as job {number}{array}.")
        return number, merge

    def _written(self, one: Submission) -> Path:
        command = [sys.executable, "-P", "-m", one.module, str(self.folder.job)]
        given = {key: os.environ[key] for key in _GIVEN if key in os.environ}
        name = f"kgops-{os.environ.get('KGOPS_RUN', '0')}"
        path = self._dir / one.file
        path.write_text(
            script(name, one.place, self._dir, str(Path.cwd()), command, {**given, **one.environment})
        )
        return path

    def _relay(self, *, final: bool = False) -> None:
        """What the worker has said since, and what it printed; `final` once nobody writes any more."""
        while (lines := self._events.new(final=final)) is not None:
            self.voice.hand_on(b"".join(lines))
        while printed := self._log.new(final=final):
            sys.stdout.buffer.write(printed)
            sys.stdout.buffer.flush()

    def _tell(self, text: str) -> None:
        """Once, whenever it changes."""
        if text != self._shown:
            self._shown = text
            self.voice.say(events.NOTE, text=text[:1].upper() + text[1:] + ".")

    def _of_array(self, array: int, merge: int | None) -> str:
        if merge is None:
            return ""
        waiting = commands.queued(array)
        self._progress()
        return f"; array {array}: {waiting}" if waiting is not None else ""

    def _trouble_of_tasks(self) -> bytes | None:
        """What one task cannot do, no other can: its last words, as it said them."""
        for path in self._dir.glob("events.*.jsonl"):
            for line in self._tasks.setdefault(path, _Events(path)).new(final=False) or ():
                if events.read(line, 0.0).kind in (events.OUT_OF_MEMORY, events.FAILED):
                    return line
        return None

    def _progress(self) -> None:
        plans = list((self.folder.path / "pieces").glob("*/plan.json"))
        plan = read_json(plans[0]) if len(plans) == 1 else None
        if plan is not None:
            done = sum(1 for _ in plans[0].parent.glob("*.pt"))
            total = plan["shares"] * len(plan["tiles"])
            self.voice.say(events.PROGRESS, phase="pieces", done=done, total=total, unit="pieces")

    def _ended(self, job: int) -> int | None:
        """As the worker did: with its code, or by the signal that ended it. None: it only went out of sight for a
        moment, on its way back into the queue."""
        deadline = time.monotonic() + _NETWORK_S
        left = self._dir / "exit.all"
        while (state := commands.end_of(job)) in commands.NOT_OVER or not left.exists():
            if commands.queued(job) is not None:
                return None
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        self._relay(final=True)
        if left.exists():
            code = int(read_regular(left))
            if code > 128:
                _die_of(code - 128)
            return code
        if state == "OUT_OF_MEMORY":
            self.voice.say(
                events.OUT_OF_MEMORY, detail="Slurm ended the job: it used more host memory than requested"
            )
            return 1
        if state == "CANCELLED":
            self.voice.say(events.NOTE, text=f"Slurm job {job} was cancelled.")
            _die_of(signal.SIGTERM)
        # Its node failed, or its time was over before it could save: lost, as a worker here can be.
        self.voice.say(
            events.NOTE, text=f"Slurm job {job} ended without an exit code: {state or 'unknown to Slurm'}."
        )
        _die_of(signal.SIGKILL)
        return 1


def _die_of(number: int) -> None:
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main())
