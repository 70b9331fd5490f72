"""Keeps a connection to every host, in one thread: reads what comes, tries again what broke, with growing pauses."""

from __future__ import annotations

import math
import os
import random
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kgops.errors import KgopsError
from kgops.hosts.connection import Connection, Flooded, Limits, forget_socket, meaning_of
from kgops.hosts.mirror import HostState, Mirror, Reach
from kgops.hosts.registry import Host
from kgops.jobs.text import one_line
from kgops.settings import Home

_ALIVE_S = 10
_SILENT_S = 25.0  # two lines are missing
_OPENING_S = 30.0  # from the start of ssh to the first picture, on a slow machine behind a slow line
_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
_STEADY_S = 60.0  # a connection that lived so long starts again with the shortest pause
_POST_EVERY_S = 1.0  # what many hosts say between is drawn together
_POST_REACH_EVERY_S = 0.3  # while hosts come and go
_LONGEST_WAIT_S = 60.0

States = tuple[HostState, ...]


@dataclass(slots=True)
class _Line:
    """What the thread knows of one host."""

    host: Host
    state: HostState
    connection: Connection | None = None
    mirror: Mirror = field(default_factory=Mirror)
    failures: int = 0
    started_at: float = 0.0  # by the monotonic clock, as the two below
    deadline: float = 0.0
    try_at: float = 0.0


class Watch:
    """Calls `post` from its thread with the states of all hosts, in their order, when one of them changed."""

    def __init__(
        self,
        home: Home,
        hosts: Sequence[Host],
        post: Callable[[States], None],
        fail: Callable[[BaseException], None],
        *,
        tries_again: bool = True,
        asks: Sequence[str] = (),
        mirror: Callable[[], Mirror] = Mirror,
        alive_s: int = _ALIVE_S,
        silent_s: float | None = None,
        pauses_s: Sequence[float] = _PAUSES_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`asks`: what the feed is asked for beside, which `mirror` reads."""
        self._home, self._post, self._fail = home, post, fail
        self._asks, self._mirror = asks, mirror
        self._tries_again, self._pauses_s, self._clock = tries_again, pauses_s, clock
        self._alive_s, self._silent_s = alive_s, _SILENT_S if silent_s is None else silent_s
        self._lines = [_Line(host, HostState(host.name, host.address)) for host in hosts]
        self._posted: States | None = None
        self._posted_at = 0.0
        self._stopping = False
        self._hurried = False
        self._selector = selectors.DefaultSelector()
        self._wake_out, wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        os.set_blocking(wake_in, False)
        self._wake_in = os.fdopen(
            wake_in, "wb", buffering=0
        )  # knows when it is closed, as a number would not
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="kgops-hosts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 0.0) -> None:
        """Again: to wait. The thread is a daemon and ends its clients itself; what fails from now on is dropped."""
        self._stopping = True
        self.wake()
        self._thread.join(timeout_s)

    @property
    def states(self) -> States:
        """As of now, with what is not worth a post: when a host was heard last."""
        return self._states()

    def try_now(self) -> None:
        """Ends the pauses."""
        self._hurried = True
        self.wake()

    def wake(self) -> None:
        """Has the thread look at its clock."""
        try:
            self._wake_in.write(b"x")
        except (OSError, ValueError):
            pass  # closed: the thread has ended

    # --- the thread ---

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._round()
        except BaseException as error:  # a bug: show it, do not end silently
            if not self._stopping:
                self._fail(error)
        finally:
            for line in self._lines:
                self._hang_up(line)
            self._selector.close()
            os.close(self._wake_out)
            self._wake_in.close()

    def _round(self) -> None:
        now = self._clock()
        for line in self._lines:
            if line.connection is None and (now >= line.try_at or self._hurried):
                self._open(line, now)
            elif line.connection is not None and now >= line.deadline:
                self._lose_silent(line)
        self._hurried = False
        post_at = self._post_changes(now)
        for key, _ in self._selector.select(self._until_next(now, post_at)):
            if key.data is None:
                self._take_wakes()
            elif key.fd in self._selector.get_map():  # an earlier one of this round may have ended it
                self._take(*key.data)

    def _until_next(self, now: float, post_at: float) -> float:
        times = [line.try_at if line.connection is None else line.deadline for line in self._lines]
        return max(min([*times, post_at, now + _LONGEST_WAIT_S]) - now, 0.0)

    def _take_wakes(self) -> None:
        try:
            os.read(self._wake_out, 4096)
        except BlockingIOError:
            pass

    def _open(self, line: _Line, now: float) -> None:
        words = ("feed", "--json", "--alive", str(self._alive_s), *self._asks)
        line.started_at, line.deadline, line.mirror = now, now + _OPENING_S, self._mirror()
        try:
            line.connection = Connection(self._home, line.host, words, Limits(), keeps_stdin=True)
        except (KgopsError, OSError) as error:
            self._lose(line, *_words_of(error))
            return
        self._selector.register(line.connection.stdout, selectors.EVENT_READ, (line, "out"))
        self._selector.register(line.connection.stderr, selectors.EVENT_READ, (line, "err"))

    def _take(self, line: _Line, stream: str) -> None:
        connection = line.connection
        assert connection is not None
        try:
            if stream == "err":
                if not connection.take_errors():
                    self._selector.unregister(connection.stderr)
                return
            texts, goes_on = connection.lines()
            changed = [line.mirror.read(text) for text in texts]
        except KgopsError as error:
            if isinstance(error, Flooded):
                line.failures = len(self._pauses_s)  # not again soon
            self._lose(line, error.message, error.hint)
            return
        if texts:
            self._hear(line, any(changed))
        if not goes_on:
            self._take_last_words(connection)
            code = self._hang_up(line, has_ended=True)
            self._lose(line, *meaning_of(code, connection.errors, line.host))

    def _hear(self, line: _Line, changed: bool) -> None:
        now = self._clock()
        if line.mirror.tables:  # until then it has the time of an opening
            line.deadline = now + self._silent_s
            if now - line.started_at >= _STEADY_S:
                line.failures = 0
        if not line.mirror.tables:
            line.state = replace(line.state, version=line.mirror.version)
        elif changed or line.state.reach != "live":
            line.state = HostState(
                line.host.name,
                line.host.address,
                "live",
                version=line.mirror.version,
                heard_at=time.time(),
                tables=line.mirror.tables,
                detail=line.mirror.detail,
            )
        else:
            # `alive` is no change to show: nothing is drawn for it.
            line.state = replace(line.state, heard_at=time.time())

    def _take_last_words(self, connection: Connection) -> None:
        try:
            connection.take_errors()
        except Flooded:
            pass  # it has ended anyway

    def _lose_silent(self, line: _Line) -> None:
        waited_s = self._clock() - line.started_at if not line.mirror.tables else self._silent_s
        connection = line.connection
        assert connection is not None
        words = connection.errors.strip().splitlines()
        forget_socket(self._home, line.host)
        last = f": {words[-1][:200]}" if words else ""
        self._lose(line, f"no answer for {waited_s:.0f} s{last}", None, "silent")

    def _lose(self, line: _Line, problem: str, hint: str | None, reach: Reach = "unreachable") -> None:
        self._hang_up(line)
        pause_s = self._pauses_s[min(line.failures, len(self._pauses_s) - 1)]
        line.failures += 1
        # Not all hosts behind one gateway at the same moment.
        pause_s *= random.uniform(0.8, 1.2)
        line.try_at = self._clock() + pause_s if self._tries_again else math.inf
        line.state = replace(
            line.state,
            reach=reach,
            problem=one_line(problem, 300),
            hint=hint,
            version=line.mirror.version or line.state.version,
            pause_s=pause_s if self._tries_again else None,
        )

    def _hang_up(self, line: _Line, *, has_ended: bool = False) -> int | None:
        connection, line.connection = line.connection, None
        if connection is None:
            return None
        for fd in (connection.stdout, connection.stderr):
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        return connection.close(has_ended=has_ended)

    # --- what is shown ---

    def _states(self) -> States:
        return tuple(line.state for line in self._lines)

    def _post_changes(self, now: float) -> float:
        """When to post what cannot be posted yet; infinity if nothing changed."""
        states = self._states()
        if self._posted is not None:
            heard = [pair for pair in zip(self._posted, states, strict=True) if pair[0] is not pair[1]]
            is_urgent = any(before.reach != after.reach for before, after in heard)
            post_at = self._posted_at + (_POST_REACH_EVERY_S if is_urgent else _POST_EVERY_S)
            if heard and now < post_at:
                return post_at
            if all(_looks_alike(*pair) for pair in heard):  # compared last: it is what costs
                return math.inf
        self._posted, self._posted_at = states, now
        self._post(states)
        return math.inf


def first_pictures(
    home: Home,
    hosts: Sequence[Host],
    patience_s: float = _OPENING_S,
    *,
    asks: Sequence[str] = (),
    mirror: Callable[[], Mirror] = Mirror,
) -> States:
    """One state of each host, all asked at once; one that does not answer in time says so."""
    known: list[States] = []
    errors: list[BaseException] = []
    is_done = threading.Event()

    def post(states: States) -> None:
        known[:] = [states]
        if all(state.has_picture or state.problem for state in states):
            is_done.set()

    def fail(error: BaseException) -> None:
        errors.append(error)
        is_done.set()

    watch = Watch(home, hosts, post, fail, tries_again=False, asks=asks, mirror=mirror)
    watch.start()
    try:
        is_done.wait(patience_s + 1.0)
    finally:
        watch.stop(timeout_s=5.0)
    if errors:
        raise errors[0]
    return known[0]


def _looks_alike(one: HostState, other: HostState) -> bool:
    return replace(one, heard_at=None) == replace(other, heard_at=None)


def _words_of(error: KgopsError | OSError) -> tuple[str, str | None]:
    if isinstance(error, KgopsError):
        return error.message, error.hint
    return f"ssh cannot be started: {error.strerror}", None
