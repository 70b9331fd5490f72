"""`kgops logs`: print or follow a run's log, with control characters escaped without --raw."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click

from kgops.cli.output import tell
from kgops.cli.session import Session, existing, is_far
from kgops.errors import Unavailable, Usage
from kgops.jobs.files import NotAFile, open_regular
from kgops.jobs.text import from_bytes, one_line
from kgops.present.log_lines import LEVELS, Level, level_of
from kgops.supervisor import worker_reports
from kgops.supervisor.worker_reports import first_kept
from storage.runs import Run

_POLL_S = 0.2
_SETTLE_EVERY_S = 2.0
_BLOCK = 1 << 16
_PLAIN = re.compile(rb"[\x20-\x7e]*")  # most lines: nothing to escape


@click.command(epilog="\b\nExample:  kgops logs -f last --grep loss\n          kgops logs -n 50 lab2:17")
@click.argument("name", metavar="RUN")
@click.option("-f", "--follow", "following", is_flag=True, help="Print new lines until the run ends.")
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(0),
    help="Print only the last N lines; default: all, with -f 20.",
)
@click.option("--grep", metavar="REGEX", help="Print only lines that match; exit code 1 if none does.")
@click.option(
    "--level",
    "levels",
    multiple=True,
    type=click.Choice(LEVELS),
    help="Print only lines of this level, guessed from their text; may be repeated.",
)
@click.option("--raw", is_flag=True, help="Print the bytes unchanged, including terminal escapes.")
@click.option(
    "--attached",
    is_flag=True,
    hidden=True,
    help="With -f: end when standard input ends, as a connection does.",
)
@click.option(
    "--bytes", "span", hidden=True, metavar="FROM:TO", help="Print only these bytes of the log, with --raw."
)
def command(
    name: str,
    following: bool,
    count: int | None,
    grep: str | None,
    levels: tuple[Level, ...],
    raw: bool,
    attached: bool,
    span: str | None,
) -> None:
    """Print a run's log. Control characters are shown as �, so that a log cannot control your terminal.

    Files and pipes also get �, since they may end on a terminal. --raw prints the bytes unchanged.

    lab2:17 is run 17 of host lab2.
    """
    if is_far(name):
        from kgops.cli.on_hosts import logs_there

        flags = [*(["--follow", "--attached"] if following else []), *(["--raw"] if raw else [])]
        for flag, value in (("lines", count), ("grep", grep), ("bytes", span)):
            flags += [f"--{flag}={value}"] if value is not None else []
        logs_there(name, [*flags, *(f"--level={level}" for level in levels)], raw=raw)
        return
    try:
        pattern = re.compile(grep) if grep is not None else None
    except re.error as error:
        raise Usage(f"--grep {grep!r:.60} is not a regular expression: {error}") from error
    if span is not None and (not raw or following or count is not None or grep is not None or levels):
        raise Usage("--bytes needs --raw", f"kgops logs {name:.40} --raw --bytes {span:.40}")
    begin, end = (0, 0) if span is None else _ends_of(span)
    session = existing()
    run = session.run(name)
    folder = session.folder(run)
    log = folder.log
    if not log.exists():
        has_none = f"Run {run.id} has no log" + ("." if run.ended else " yet.")
        tell(has_none if folder.path.is_dir() else f"The folder of run {run.id} is gone.")
    if span is not None:
        _copy(log, begin, end, sys.stdout.buffer)
        return
    offset = _beginning(log, 20 if count is None and following else count)
    matches = None if pattern is None and not levels else _matcher(pattern, levels)
    printed = _print_from(session, run, log, offset, matches, following, raw, attached)
    if matches is not None and not printed:
        raise click.exceptions.Exit(1)  # as grep does


def _matcher(pattern: re.Pattern[str] | None, levels: tuple[Level, ...]) -> Callable[[str], bool]:
    def matches(line: str) -> bool:
        return (pattern is None or pattern.search(line) is not None) and (
            not levels or level_of(line) in levels
        )

    return matches


def _print_from(
    session: Session,
    run: Run,
    log: Path,
    offset: int,
    matches: Callable[[str], bool] | None,
    following: bool,
    raw: bool,
    attached: bool,
) -> int:
    """Print the log from `offset` on, and return the number of lines that matched."""
    out = sys.stdout.buffer
    printed = 0
    next_settle = time.monotonic() + _SETTLE_EVERY_S
    cut = False
    while True:
        ended = run.ended or not following
        if raw and matches is None:
            offset = _copy(log, offset, None, out)
        while True:
            lines, next_offset = worker_reports.read_lines(log, offset, final=ended)
            if next_offset == offset:
                break
            offset = next_offset
            for i, line in enumerate(lines):
                if line is None and i == 0 and cut:
                    continue  # the rest of that line
                cut = line is None
                shown = b"(part of a line left out)" if line is None else line
                if matches is not None and not matches(from_bytes(shown)):
                    continue
                printed += 1
                out.write(
                    (shown if raw or _PLAIN.fullmatch(shown) else one_line(from_bytes(shown)).encode())
                    + b"\n"
                )
        out.flush()
        if ended or (attached and _input_has_ended()):
            return printed
        time.sleep(_POLL_S)
        if time.monotonic() >= next_settle:  # its supervisor may have been killed
            session = existing()
            next_settle = time.monotonic() + _SETTLE_EVERY_S
        run = session.run(str(run.id))


def _input_has_ended() -> bool:
    waiting = select.poll()
    waiting.register(sys.stdin.fileno(), select.POLLIN)
    return any(not what & select.POLLIN or not os.read(fd, 4096) for fd, what in waiting.poll(0))


def _opened(log: Path) -> int:
    try:
        return open_regular(log)
    except NotAFile as error:
        raise Unavailable(
            f"{log}: {error.strerror}",
            "the worker replaced its log; `kgops show` still shows the run",
        ) from error


def _ends_of(span: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", span)
    if found is None:
        raise Usage(f"--bytes {span!r:.60} is not FROM:TO", "for instance --bytes 0:65536")
    return int(found[1]), int(found[2])


def _copy(log: Path, offset: int, upto: int | None, out: BinaryIO) -> int:
    """Copy the log from `offset` on unchanged, and return the new offset."""
    try:
        fd = _opened(log)
    except FileNotFoundError:
        return offset
    try:
        while block := os.pread(fd, _BLOCK if upto is None else max(min(_BLOCK, upto - offset), 0), offset):
            out.write(block)
            offset += len(block)
    finally:
        os.close(fd)
    return offset


def _beginning(log: Path, count: int | None) -> int:
    """Return the offset of the last `count` lines, read backwards so that a huge log is fast."""
    try:
        fd = _opened(log)
    except FileNotFoundError:
        return 0
    try:
        first = first_kept(fd)
        if count is None:
            return first
        end = os.fstat(fd).st_size
        at, missing = end, count + (os.pread(fd, 1, end - 1) == b"\n" if end else 0)
        while at > first and missing > 0:
            start = max(first, at - _BLOCK)
            block = os.pread(fd, at - start, start)
            while missing > 0 and (newline := block.rfind(b"\n")) >= 0:
                missing -= 1
                block = block[:newline]
            if missing == 0:
                return start + len(block) + 1
            at = start
        return first if missing > 0 else at
    finally:
        os.close(fd)
