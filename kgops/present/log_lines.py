"""Lines of a log as people see them: cleaned and filtered."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kgops.jobs.files import ABSENT, open_regular
from kgops.jobs.text import from_bytes, one_line
from kgops.supervisor.worker_reports import first_kept

LONGEST = 1 << 16  # bytes of a line that are shown and searched, half from its end

Level = Literal["error", "warning", "info"]
ERROR: Level = "error"
WARNING: Level = "warning"
INFO: Level = "info"
LEVELS = (ERROR, WARNING, INFO)

_ERROR = (
    r"error|exception|traceback|fatal|critical|failed|failure|panic|segfault|core dumped|out of memory|killed"
)
_WARNING = r"warn|deprecat"
# A count of zero: `failed_tests 0`, `errors=0, `. Not a message that begins with one: `Error: 0 GPUs found`.
# Every part is bounded, since a line of a log may repeat a word thousands of times.
_COUNT_OF_ZERO = (
    r"""\w{0,40}["']?\s?[=:]?\s{0,3}0(?:\.0{1,9})?(?=\s{0,3}(?:$|[^\w\s.:+-])|\s{1,3}\w{3,40}\s?[=:]?\s?\d)"""
)
_IS_ERROR, _IS_WARNING = (
    re.compile(rf"(?<!\bno )(?<!\b0 )(?:{words})(?!{_COUNT_OF_ZERO})", re.IGNORECASE | re.ASCII)
    for words in (_ERROR, _WARNING)
)
_MAY_BE = {
    ERROR: tuple(_ERROR.encode().split(b"|")),
    WARNING: tuple(_WARNING.encode().split(b"|")),
}
# Display replaces other characters with these, so a search text that contains one may differ in the file.
_UNSURE = re.compile("[\\s\ufffd…]+")


def shown(raw: bytes) -> str:
    """A line without control characters; text overwritten after a carriage return is dropped, as on a terminal."""
    if len(raw) > LONGEST:
        half = LONGEST // 2
        raw = raw[:half] + " … ".encode() + raw[-half:]
    if b"\r" in raw:
        raw = next((part for part in reversed(raw.split(b"\r")) if part), b"")
    return one_line(from_bytes(raw))


def level_of(text: str) -> Level:
    if _IS_ERROR.search(text):
        return ERROR
    return WARNING if _IS_WARNING.search(text) else INFO


@contextmanager
def reading(path: Path) -> Iterator[int | None]:
    """An open regular file, or None where there is none. Links and pipes, which a worker may have put there, are
    refused: a pipe would block."""
    try:
        fd = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def newest_lines(path: Path, count: int, at_most: int = 1 << 18) -> tuple[str, ...]:
    """The last lines of a log, as shown, within its last `at_most` bytes; none where it is no file."""
    try:
        with reading(path) as fd:
            end = 0 if fd is None else os.fstat(fd).st_size
            if fd is None or not end:
                return ()
            first = first_kept(fd)
            start = max(first, end - at_most)
            lines = os.pread(fd, end - start, start).split(b"\n")
    except ABSENT:
        return ()
    if not lines[-1]:
        lines.pop()
    if start > first and len(lines) > 1:
        del lines[0]  # most likely the rest of a line
    return tuple(map(shown, lines[max(len(lines) - count, 0) :]))


@dataclass(frozen=True, slots=True)
class LineFilter:
    """A filter of log lines by text or regular expression, and by level. Raises re.error for an invalid expression."""

    text: str = ""
    regex: bool = False
    ignore_case: bool = True
    levels: frozenset[Level] = frozenset(LEVELS)

    def test(self) -> Callable[[str], object]:
        """A predicate on lines as displayed."""
        tests: list[Callable[[str], object]] = []
        if self.regex:
            tests.append(re.compile(self.text, re.IGNORECASE if self.ignore_case else 0).search)
        elif self.text and self.ignore_case:
            needle = self.text.encode("utf-8", "replace").lower()  # bytes.lower: only a to z
            tests.append(lambda line: needle in line.encode("utf-8", "replace").lower())
        elif self.text:
            tests.append(lambda line: self.text in line)
        if self.levels != frozenset(LEVELS):
            tests.append(lambda line: level_of(line) in self.levels)
        return tests[0] if len(tests) == 1 else lambda line: all(test(line) for test in tests)

    def needles(self) -> tuple[bytes, ...] | None:
        """Every match holds one of these, in lower case where `folds`; None: test every line.

        Searching a hundred megabytes for a word is ten times as fast as testing a million lines.
        """
        sure = _required(self.text) if self.regex else max(_UNSURE.split(self.text), key=len)
        if sure:
            raw = sure.encode("utf-8", "replace")
            return (raw.lower() if self.folds else raw,)
        if self.text or INFO in self.levels:
            return None
        return tuple(word for level in LEVELS if level in self.levels for word in _MAY_BE[level])

    @property
    def folds(self) -> bool:
        return self.ignore_case or not self.text


def _required(pattern: str) -> str:
    """The longest literal text that every match of the pattern contains; empty where unknown."""
    if not pattern.isascii() or any(sign in pattern for sign in "|()[") or _SIGN_BY_NUMBER.search(pattern):
        return ""
    runs = [""]
    for token in _REGEX_TOKEN.findall(pattern):
        sign = token[-1]
        if token[0] in "*?{":  # the preceding character is optional
            runs[-1:] = [runs[-1][:-1], ""]
        elif (len(token) == 1 and token in ".^$+") or (len(token) == 2 and sign.isalnum()) or sign.isspace():
            runs.append("")
        else:
            runs[-1] += sign
    return max(runs, key=len)


_SIGN_BY_NUMBER = re.compile(r"\\[xuUN0-9]")
_REGEX_TOKEN = re.compile(r"\\.|\{[^}]*\}|.", re.DOTALL)
