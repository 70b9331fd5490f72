"""Runs one command of kgops on several hosts at once, and takes what it prints within limits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from kgops.errors import KgopsError
from kgops.hosts.connection import NOT_FOUND, SSH_FAILED, TRY, ByteStream, Connection, Limits, meaning_of
from kgops.hosts.protocol import LONGEST_LINE
from kgops.hosts.registry import Host
from kgops.jobs.text import one_line
from kgops.settings import Home

_MOST_BYTES, _MOST_LINES, _MOST_AT_ONCE = 1 << 23, 200_000, 32
_MOST_VALUES = 500_000  # an empty list takes 2 bytes in JSON and 56 in memory


class Answer(NamedTuple):
    """What a host printed; `problem` says why there is nothing."""

    host: Host
    out: bytes = b""
    problem: str | None = None
    hint: str | None = None
    code: int | None = None  # the exit code of kgops there; None: there was none

    @property
    def is_of_kgops(self) -> bool:
        """Whether kgops there answered, if only with an error."""
        return self.problem is None or self.code not in (None, NOT_FOUND, SSH_FAILED)


def ask(
    home: Home,
    hosts: Sequence[Host],
    words: Sequence[str],
    patience_s: float = 60.0,
    *,
    said: bytes = b"",
) -> list[Answer]:
    """The answers in the order of `hosts`; none of them raises. `said`: the command's input."""
    if len(hosts) == 1:  # in this thread: a screen that closes waits for none of a pool's
        return [_ask(home, hosts[0], words, patience_s, said)]
    with ThreadPoolExecutor(min(len(hosts), _MOST_AT_ONCE)) as threads:
        return list(threads.map(lambda host: _ask(home, host, words, patience_s, said), hosts))


def bounded_json(text: bytes) -> Any:
    """The JSON value in the text; None where there is none, or one of more parts than any kgops sends."""
    if sum(map(text.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _flood_of(out: bytes) -> str | None:
    """What an answer has too much of."""
    if len(out) > _MOST_BYTES:
        return f"it sent more than {_MOST_BYTES:,} bytes"
    if out.count(b"\n") > _MOST_LINES:
        return f"it sent more than {_MOST_LINES:,} lines"
    if max(map(len, out.split(b"\n"))) > LONGEST_LINE:
        return f"it sent a line of more than {LONGEST_LINE:,} bytes"
    return None


def _ask(home: Home, host: Host, words: Sequence[str], patience_s: float, said: bytes) -> Answer:
    try:
        # A file, not a pipe: nobody has to write while the answer is read.
        with tempfile.TemporaryFile() as source:
            source.write(said)
            source.seek(0)
            connection = Connection(home, host, words, Limits(), source=source)
    except KgopsError as error:
        return Answer(host, problem=error.message, hint=error.hint)
    except OSError as error:
        return Answer(host, problem=f"ssh cannot be started: {error.strerror}")
    stream = ByteStream(connection, patience_s)
    try:
        out = stream.read(_MOST_BYTES + 1)
    except KgopsError as error:
        return Answer(host, problem=error.message, hint=error.hint)
    finally:
        stream.close()
        code = connection.close(has_ended=stream.has_ended)
    flood = _flood_of(out)
    if flood is not None:
        return Answer(host, problem=flood, hint=TRY)
    if code != 0:
        problem, hint = meaning_of(code, connection.errors, host)
        return Answer(host, problem=one_line(problem, 300), hint=hint, code=code)
    return Answer(host, out, code=code)
