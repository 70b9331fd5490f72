"""Follow a run in the terminal: print its log and one progress line until it ends. Detaching leaves it running."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from kgops.cli.output import say, tell
from kgops.cli.session import Session
from kgops.errors import Unavailable
from kgops.jobs.events import NOTE
from kgops.jobs.text import from_bytes, one_line
from kgops.planning.oom_fallbacks import fallback_line, fallbacks_taken
from kgops.present.formats import amount, duration, fitted, reported
from kgops.present.wording import going, metric_of, speed_of
from kgops.streams import tolerate_output_errors
from kgops.supervisor import worker_reports
from kgops.supervisor.control import FolderEnd, settle_and_check, stop_run
from kgops.workloads.results import is_command
from storage import attempts, reports, runs
from storage.database import explained, wait_for_locks
from storage.errors import DatabaseBusy, DatabaseDamaged, DatabaseNewer, StorageError
from storage.runs import Run

if TYPE_CHECKING:
    from rich.status import Status

T = TypeVar("T")
EXIT_CODES = {"succeeded": 0, "failed": 1, "out_of_memory": 4, "interrupted": 5, "cancelled": 130}
_POLL_S = 0.2
_SETTLE_EVERY_S = 2.0
_BUSY_S = 1.0
_MOST_NOTES = 5


class _Detached(Exception):
    pass


def follow(session: Session, number: int, *, quiet: bool = False, log_from: int = 0) -> int:
    """Follow a run from log offset `log_from` on. Return the exit code for its end, or 0 if the user detached."""
    tolerate_output_errors()  # the exit code matters more than lost output
    line = _progress_line() if not quiet else None
    begun = _get(session, number)
    first_attempt = begun.attempts + (begun.state in ("queued", "starting"))
    try:
        with line or nullcontext(), _Interrupts() as interrupts:
            run = _follow(session, number, line, interrupts, quiet, log_from)
    except (DatabaseDamaged, DatabaseNewer) as error:
        raise Unavailable(f"run {number} is no longer followed: {error.message}", error.hint) from error
    except _Detached:
        say(f"run {number} goes on; `kgops logs -f {number}` follows it, `kgops stop {number}` stops it")
        return 0
    if not quiet:
        try:
            with explained(session.home.database):
                _show_notes(session, run, first_attempt)
                say(summary(session, run))
        except StorageError:  # said before
            say(f"run {run.id} {run.state}" + (f" · {one_line(run.reason)}" if run.reason else ""))
    return EXIT_CODES[run.state]


def _follow(
    session: Session, number: int, line: Status | None, interrupts: _Interrupts, quiet: bool, offset: int
) -> Run:
    run = _get(session, number)
    log = session.folder(run).log
    record = _Record(session, number)
    # A lock on the database must not delay the log, or the answer to Ctrl-C.
    wait_for_locks(session.conn, _BUSY_S)
    while True:
        try:
            run = record.look(run)
            while not quiet:
                lines, offset_now = worker_reports.read_lines(log, offset, final=run.ended)
                if offset_now == offset:
                    break
                offset = offset_now
                for raw in lines:
                    _show_log_line(raw, line)
            for step in record.new_attempts() if not quiet else ():
                _show_log_line(step, line)
            if run.ended:
                return run
            if line is not None:
                line.update(_describe(run))
            time.sleep(_POLL_S)
        except KeyboardInterrupt:
            if _wants_to_detach(line, interrupts):
                raise _Detached from None
            tell(f"stopping run {number} …")
            stop_run(session.home, session.conn, run, None)
            interrupts.allow()


class _Record:
    """The record of a run that is followed. If the database is locked or out of reach, following goes on, and the
    run's folder tells the end."""

    def __init__(self, session: Session, number: int) -> None:
        self._session, self._number = session, number
        self._folder_end = FolderEnd(session.home, tell)
        self._problem: str | None = None
        self._next_settle = time.monotonic() + _SETTLE_EVERY_S
        self._announced = len(_retries(session, number))

    def look(self, before: Run) -> Run:
        """The run now."""
        run = self._try(lambda: _get(self._session, self._number)) or before
        if not run.ended and time.monotonic() >= self._next_settle:  # its supervisor may have been killed
            self._problem = None
            self._try(lambda: settle_and_check(self._session.home, self._session.conn, self._number))
            self._next_settle = time.monotonic() + _SETTLE_EVERY_S
        return run if run.ended else self._folder_end.look(run, self._problem) or run

    def new_attempts(self) -> list[bytes]:
        """Why new attempts started: an OOM fallback is never silent. Several may have come since the last look."""
        retries = self._try(lambda: _retries(self._session, self._number)) or []
        new = retries[self._announced :]
        self._announced += len(new)
        return [f"kgops: attempt {one.attempt + 1} {_step(one.body)}".encode() for one in new]

    def _try(self, read: Callable[[], T]) -> T | None:
        try:
            with explained(self._session.home.database):
                return read()
        except (DatabaseDamaged, DatabaseNewer):
            raise  # no wait helps
        except DatabaseBusy:
            return None  # the writer will be done soon
        except StorageError as error:
            self._problem = error.message
            return None


def _retries(session: Session, number: int) -> list[reports.Event]:
    return reports.events(session.conn, number, kinds=("step_down", "again"))


def _show_notes(session: Session, run: Run, first_attempt: int) -> None:
    """Print what was noted of a command. kgops' own workers write their notes into their log as well."""
    if not is_command(run.workload):
        return
    noted = [
        event
        for event in reports.events(session.conn, run.id, kinds=(NOTE,))
        if event.attempt >= first_attempt
    ]
    for event in noted[:_MOST_NOTES]:
        tell(f"kgops: {one_line(str(event.body.get('text')))}")
    if len(noted) > _MOST_NOTES:
        tell(f"kgops: and {len(noted) - _MOST_NOTES:,} more notes: `kgops show {run.id}`")


def summary(session: Session, run: Run) -> str:
    """Return one line: state, duration, reason, metric, peak memory, attempts."""
    took = UNSTARTED if run.took_s is None else duration(run.took_s)
    parts = [f"run {run.id} {run.state}", took]
    if run.reason:
        parts.append(fitted(one_line(run.reason), 640))
    if run.metric:
        parts.append(f"{one_line(run.metric, 40)} {reported(run.metric_value)}")
    if run.peak_host_mib is not None:
        parts.append(f"peak host memory {amount(run.peak_host_mib, 'MiB')}")
    if run.peak_gpu_mib is not None:
        parts.append(f"peak GPU memory {amount(run.peak_gpu_mib, 'MiB')}")
    retries = [event.body for event in _retries(session, run.id)]
    made = len(attempts.of_run(session.conn, run.id))
    if retries:
        parts.append(f"{made} attempts")
        fallbacks = _fallbacks_taken(session, run)
        if fallbacks is not None:
            parts.append(fallbacks)
            retries = [body for body in retries if "fallback" not in body]
        parts += [_step(body) for body in retries]
    return " · ".join(parts)


def _fallbacks_taken(session: Session, run: Run) -> str | None:
    """Return the changes that OOM fallbacks made; None for fallbacks of `--on-oom`, whose events name the values."""
    fallbacks = runs.spec(session.conn, run.id).plan.get("fallbacks") or []
    settings = [attempt.settings for attempt in attempts.of_run(session.conn, run.id)]
    text = fallbacks_taken(settings, fallbacks) if fallbacks else None
    return None if text is None else one_line(text, 200)


UNSTARTED = "never started"


def _step(body: dict[str, object]) -> str:
    settings, fallback = body.get("settings"), body.get("fallback")
    what = str(body.get("after")).replace("_", " ")
    if isinstance(fallback, dict):
        return one_line(f"after {what}: {fallback_line(fallback)}", 200)
    if isinstance(settings, dict) and settings:
        return one_line(
            f"after {what} " + ", ".join(f"{name}={value}" for name, value in settings.items()), 120
        )
    return f"again after {what}"


def _describe(run: Run) -> str:
    took = duration(run.took_until(time.time())) if run.started_at else ""
    parts = [f"run {run.id}", going(run), speed_of(run), metric_of(run), took]
    from rich.markup import escape

    return escape(" · ".join(filter(None, parts)))


def _progress_line() -> Status | None:
    """Return a live progress line, or None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True, highlight=False).status("starting")


def _show_log_line(raw: bytes | None, line: Status | None) -> None:
    text = "(part of a line left out)" if raw is None else one_line(from_bytes(raw))
    if line is None:
        tell(text)
    else:
        line.console.print(text, markup=False, emoji=False, soft_wrap=True)


def _wants_to_detach(line: Status | None, interrupts: _Interrupts) -> bool:
    """Ask whether to detach. Without a terminal, Ctrl-C means stop."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if line is not None:
        line.stop()
    try:
        tell("")
        sys.stderr.write("Detach from the run (d), or stop it (s)? [d] ")
        sys.stderr.flush()
        interrupts.allow()
        answer = sys.stdin.readline().strip().lower()
        interrupts.hold()
    except KeyboardInterrupt:
        return True  # a second Ctrl-C: detaching loses nothing
    finally:
        if line is not None:
            line.start()
    return not answer.startswith("s")


def _get(session: Session, number: int) -> Run:
    return session.run(str(number))


class _Interrupts:
    """Raises KeyboardInterrupt for the first Ctrl-C, and ignores others until that one is handled."""

    def __init__(self) -> None:
        self._held = False

    def allow(self) -> None:
        self._held = False

    def hold(self) -> None:
        self._held = True

    def __enter__(self) -> _Interrupts:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is signal.default_int_handler:  # the parent process may ignore SIGINT
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._held:
            self._held = True
            raise KeyboardInterrupt
