"""What a line of a log says: as a terminal would have left it, made harmless, and how bad it sounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kgops.jobs.text import from_bytes, one_line

__all__ = ["ERROR", "INFO", "LEVELS", "LONGEST", "WARNING", "Level", "Wanted", "level_of", "shown"]

LONGEST = 1 << 16  # bytes of a line that are shown and searched: its beginning and its end

Level = Literal["error", "warning", "info"]
ERROR: Level = "error"
WARNING: Level = "warning"
INFO: Level = "info"
LEVELS = (ERROR, WARNING, INFO)

_ERROR = (
    r"error|exception|traceback|fatal|critical|failed|failure|panic|segfault|core dumped|out of memory|killed"
)
_WARNING = r"warn|deprecat"
_IS_ERROR = re.compile(rf"(?<!\bno )(?<!\b0 )(?:{_ERROR})", re.IGNORECASE | re.ASCII)
_IS_WARNING = re.compile(rf"(?<!\bno )(?<!\b0 )(?:{_WARNING})", re.IGNORECASE | re.ASCII)
_MAY_BE = {ERROR: re.compile(_ERROR.encode()), WARNING: re.compile(_WARNING.encode())}
# What a line shows for other signs too: a text with one of these may stand in the file as something else.
_UNSURE = re.compile("[\\s\ufffd…]+")


def shown(raw: bytes) -> str:
    """One harmless line. What a carriage return has overwritten is not there, as on a terminal."""
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lines that somebody looks for. Of a text without `regex`, capitals are told apart only on demand.

    Raises re.error where a regular expression is none."""

    text: str = ""
    regex: bool = False
    ignore_case: bool = True
    levels: frozenset[Level] = frozenset(LEVELS)

    def test(self) -> Callable[[str], bool]:
        """Says of a line as it is shown whether it is one of them."""
        tests: list[Callable[[str], bool]] = []
        if self.regex:
            pattern = re.compile(self.text, re.IGNORECASE if self.ignore_case else 0)
            tests.append(lambda line: pattern.search(line) is not None)
        elif self.text and self.ignore_case:
            needle = self.text.encode("utf-8", "replace").lower()  # of bytes: a to z alone
            tests.append(lambda line: needle in line.encode("utf-8", "replace").lower())
        elif self.text:
            tests.append(lambda line: self.text in line)
        if self.levels != frozenset(LEVELS):
            tests.append(lambda line: level_of(line) in self.levels)
        return lambda line: all(test(line) for test in tests)

    def places(self) -> Callable[[bytes], Iterator[int]] | None:
        """Where in a piece of the file a wanted line may stand, and nowhere else; None: anywhere.

        Reading a hundred megabytes for a word goes ten times as fast as looking at a million lines.
        """
        if self.text and not self.regex:
            sure = max(_UNSURE.split(self.text), key=len).encode("utf-8", "replace")
            if sure:
                return _finder(sure.lower() if self.ignore_case else sure, lowered=self.ignore_case)
        if self.regex and (required := _required(self.text)):
            return _finder_of_regex(required, ignore_case=self.ignore_case)
        if not self.regex and INFO not in self.levels:
            bad = b"|".join(_MAY_BE[level].pattern for level in LEVELS if level in self.levels)
            pattern = re.compile(bad) if bad else re.compile(b"(?!)")
            return lambda block: (found.start() for found in pattern.finditer(block.lower()))
        return None


def _required(pattern: str) -> bytes:
    """The longest plain text that whatever matches the pattern has in it; empty where that is hard to tell."""
    if not pattern.isascii() or any(sign in pattern for sign in "|()[") or _SIGN_BY_NUMBER.search(pattern):
        return b""
    runs, run = [], ""
    for token in _REGEX_TOKEN.findall(pattern):
        sign = token[-1]
        if token[0] in "*?{":  # what stands before may be missing
            runs.append(run[:-1])
            run = ""
        elif (len(token) == 1 and token in ".^$+") or (len(token) == 2 and sign.isalnum()) or sign.isspace():
            runs.append(run)
            run = ""
        else:
            run += sign
    return max([*runs, run], key=len).encode()


_SIGN_BY_NUMBER = re.compile(r"\\[xuUN0-9]")
_REGEX_TOKEN = re.compile(r"\\.|\{[^}]*\}|.", re.DOTALL)


def _finder_of_regex(required: bytes, *, ignore_case: bool) -> Callable[[bytes], Iterator[int]]:
    fast = _finder(required.lower() if ignore_case else required, lowered=ignore_case)

    def places(block: bytes) -> Iterator[int]:
        # Without regard to capitals an s is also a ſ, and a k the sign of kelvin.
        return fast(block) if not ignore_case or block.isascii() else _line_starts(block)

    return places


def _line_starts(block: bytes) -> Iterator[int]:
    at = 0
    while 0 <= at < len(block):
        yield at
        at = block.find(b"\n", at) + 1 or -1


def _finder(needle: bytes, *, lowered: bool) -> Callable[[bytes], Iterator[int]]:
    def places(block: bytes) -> Iterator[int]:
        block = block.lower() if lowered else block
        at = block.find(needle)
        while at >= 0:
            yield at
            line_end = block.find(b"\n", at)
            at = block.find(needle, line_end) if line_end >= 0 else -1

    return places
