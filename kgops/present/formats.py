"""How numbers, times and tables are written, on screens and in the output of commands."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from kgops.jobs.text import clock, on_or_off, one_line

UNKNOWN = "n/a"
NOT_FINITE = "nan/inf"  # a value that was reported; the record keeps no difference between the two
_LONGEST_DAYS = 9999
_GROUPED = 1e15  # larger numbers are printed without thousands separators
_LEAST_NAME = 6  # columns of a name that is cut in the middle
_MAX_RATIO = 1e4  # beyond it a percentage of the prediction is not printed


# Zero-width joiner, variation selectors and skin tones: terminals disagree on the width of what these make of emoji.
_JOINERS = dict.fromkeys((0x200D, *range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400)))


def drawn(text: str) -> str:
    """The text with joined emoji apart, so that it has the same width on every terminal."""
    return text if text.isascii() else text.translate(_JOINERS)


def width_of(text: str) -> int:
    """Return the number of terminal columns of the text as `drawn`."""
    return len(text) if text.isascii() else _width_of(text)


@lru_cache(4096)
def _width_of(text: str) -> int:
    from unicodedata import category, east_asian_width

    def columns(char: str) -> int:
        # Marks and vowels of Hangul stand over or within what precedes them.
        if category(char) in ("Mn", "Me", "Mc", "Cf") or "\u1160" <= char <= "\u11ff":
            return 0
        return 2 if east_asian_width(char) in "WF" else 1

    return sum(map(columns, drawn(text)))


def fitted(text: str, columns: int) -> str:
    """Cut the text to at most `columns` columns, with an ellipsis."""
    text = drawn(text)
    if width_of(text) <= columns:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > columns - 1:
            break
        kept += char
    return kept.rstrip() + "…"


def shortened(names: Sequence[str], columns: int) -> list[str]:
    """All names in so many columns together: the longest are cut in the middle, since endings tell them apart."""
    names = [drawn(name) for name in names]
    longest = min(max(map(width_of, names), default=0), columns)
    while longest > _LEAST_NAME and sum(min(width_of(name), longest) for name in names) > columns:
        longest -= 1
    return [name if width_of(name) <= longest else _without_middle(name, longest) for name in names]


def _without_middle(name: str, columns: int) -> str:
    first, last = "", ""
    for start, end in zip(name, reversed(name), strict=True):
        if width_of(first + start + last) >= columns:
            break
        first += start
        if width_of(first + end + last) >= columns:
            break
        last = end + last
    return f"{first}…{last}"


def padded(text: str, columns: int, *, right: bool = False) -> str:
    gap = " " * (columns - width_of(text))
    return gap + text if right else text + gap


def columns() -> int:
    """Return the width of the terminal, or 120 for a file or a pipe."""
    if not sys.stdout.isatty():
        return 120
    import shutil  # seldom needed

    return shutil.get_terminal_size().columns


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap the text into lines that start with `indent`."""
    import textwrap

    return textwrap.wrap(
        one_line(text, 4000),
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: frozenset[str] = frozenset(),
    whole: Collection[int] = (),
) -> list[str]:
    """Return aligned lines. The last column is cut to fit the terminal, or continues below in rows of `whole`."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max([width_of(head), *(width_of(row[i]) for row in cells)]) for i, head in enumerate(heads)]
    if sys.stdout.isatty():
        before = sum(widths[:-1]) + 2 * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], columns() - before), 8)
    out: list[str] = []
    for number, row in enumerate([list(heads), *cells], -1):
        fields = [
            padded(fitted(cell, w), w, right=head in right)
            for cell, w, head in zip(row, widths, heads, strict=True)
        ]
        more: list[str] = []
        if number in whole and width_of(row[-1]) > widths[-1]:
            indent = " " * (sum(widths[:-1]) + 2 * (len(widths) - 1))
            fields[-1], *more = wrapped(row[-1], widths[-1])
        out += ["  ".join(fields).rstrip(), *(indent + line for line in more)]
    return out


def duration(seconds: float | None) -> str:
    """`0:41`, `1:02:09`, `3d 4:05:06`; `>9999d` for longer times."""
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    if seconds >= (_LONGEST_DAYS + 1) * 86400:
        return f">{_LONGEST_DAYS}d"
    whole = int(max(seconds, 0))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour}:{minute:02d}:{second:02d}"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def age(since: float | None, now: float) -> str:
    """`45 s`, `12 min`, `5 h`, `3 d`: one unit, so that a screen changes seldom."""
    if since is None:
        return UNKNOWN
    seconds = max(now - since, 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{seconds // 10 * 10:.0f} s"


def seconds_text(value: float | None) -> str:
    """`0.681 ms`, `0.41 s`, `3:25:46`: at most nine columns, for any time that is measured."""
    if value is None or not 0 < value < 10_000:
        return UNKNOWN if value is None else duration(value)
    if value < 1e-4:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1000:.3g} ms" if value < 0.1 else f"{value:.4g} s"


def whole(value: float | None, unit: str = "") -> str:
    """`14,909`, `97%`; `n/a` if unknown."""
    return UNKNOWN if value is None else f"{value:,.0f}{unit}"


def ratio_text(ratio: float | None) -> str:
    """`1.25×`; empty if unknown."""
    if ratio is None:
        return ""
    if abs(ratio) >= 1e4:
        return f"{ratio:.0e}×"
    return f"{ratio:.2f}×" if ratio == 0 or abs(ratio) >= 0.01 else f"{ratio:.1g}×"


def local_time(at: float | None) -> str:
    """Format a time in the local time zone; without the date if it is today."""
    if at is None:
        return UNKNOWN
    day = "%Y-%m-%d"
    return clock(at, "%H:%M:%S" if clock(at, day) == clock(time.time(), day) else f"{day} %H:%M")


def amount(value: float | None, unit: str = "") -> str:
    """Four significant digits, thousands grouped; `n/a` if unknown."""
    if value is None:
        return UNKNOWN
    shown = f"{value:,.0f}" if 1000 <= abs(value) < _GROUPED else f"{value:.4g}"
    return f"{shown} {unit}".rstrip()


def reported(value: float | None) -> str:
    """A metric that was reported, as `amount`: one without a value was not a finite number."""
    return NOT_FINITE if value is None else amount(value)


def size_text(size: int) -> str:
    """`4.1 KiB`, `18.2 MiB`: a file's."""
    unit, name = (1 << 20, "MiB") if size >= 1 << 20 else (1 << 10, "KiB")
    return f"{size / unit:,.1f} {name}"


def small_duration(seconds: float) -> str:
    """A step's: `3.1 ms`, `1.5 s`."""
    return (
        amount(float(f"{seconds:.2g}"), "s") if seconds >= 1 else amount(float(f"{seconds * 1e3:.2g}"), "ms")
    )


def value_text(value: object) -> str:
    """A setting as a person would type it: booleans as on or off, words as a line for a shell; otherwise JSON."""
    if isinstance(value, bool):
        return str(on_or_off(value))
    if isinstance(value, str):
        return value
    if value and isinstance(value, list) and all(isinstance(one, str) for one in value):
        import shlex  # seldom needed

        return shlex.join(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def off_by(measured: float, predicted: float) -> str | None:
    """Return the relative error of a prediction, as in `+3.2%`; None if it is too large to be useful."""
    times = measured / predicted if predicted else math.inf
    return f"{times - 1:+.1%}" if abs(times) < _MAX_RATIO else None
