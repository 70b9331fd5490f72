"""Text of logs and commands: lines without control characters, timestamps, placeholders."""

from __future__ import annotations

import re
import time
from typing import Any

# Controls (C0, DEL, C1), direction overrides and isolates, line and paragraph separators, and the
# surrogates that stand for bytes which were not UTF-8. All reach a terminal raw through rich and Textual.
_UNSAFE = {
    **dict.fromkeys((*range(32), 127, *range(128, 160)), "�"),
    **dict.fromkeys((1564, 8206, 8207, *range(8234, 8239), *range(8294, 8298)), "�"),
    **dict.fromkeys((8232, 8233, 9), " "),
    **dict.fromkeys(range(55296, 57344), "�"),
    0xFEFF: "�",
}


def one_line(text: str, at_most: int | None = None) -> str:
    """`text` as a single harmless line; cut with an ellipsis where it is longer than `at_most`."""
    if at_most is not None and len(text) > at_most:
        text = text[: max(at_most - 1, 0)] + "…"
    return text.replace("\r\n", " ").replace("\n", " ").translate(_UNSAFE)


def out_of_memory_reason(message: str) -> str:
    """What an out-of-memory error says of memory, cut at a word where it is very long. Torch's ends with advice about
    its allocator, which profiles follow already; kgops adds its own."""
    says = message.partition(" If reserved but unallocated")[0].strip()
    if len(says) <= _LONGEST_REASON:
        return says
    return says[:_LONGEST_REASON].rpartition(" ")[0] + "…"


_LONGEST_REASON = 1000


def lines(text: str) -> str:
    """`text` of several harmless lines; line feeds stay."""
    return "\n".join(one_line(line) for line in text.replace("\r\n", "\n").split("\n"))


_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")


def from_bytes(raw: bytes) -> str:
    """What a program wrote, without the colours that it may have written for a terminal."""
    if b"\x1b[" in raw:
        raw = _COLOURS.sub(b"", raw)
    return raw.decode("utf-8", "replace")


LAST = 253402300799.0  # of the year 9999
OUT_OF_RANGE = "out of range"


def is_timestamp(at: float) -> bool:
    return 0 <= at <= LAST


def on_or_off(value: Any) -> Any:
    """Booleans as on and off, as the record keeps them."""
    return ("on" if value else "off") if isinstance(value, bool) else value


def clock(at: float, pattern: str) -> str:
    """Local time, as strftime writes it."""
    return time.strftime(pattern, time.localtime(at)) if is_timestamp(at) else OUT_OF_RANGE


FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill_in(command: list[str], values: dict[str, Any]) -> list[str]:
    """`{name}` replaced where `values` has the name; every other brace stays as it is."""
    return [
        FIELD.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], part)
        for part in command
    ]


def attempt_settings(on_oom: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Settings for the first attempt and for each that follows an out-of-memory."""
    steps = max((len(values) for values in on_oom.values()), default=0)
    return [{name: values[min(i, len(values) - 1)] for name, values in on_oom.items()} for i in range(steps)]


def in_bytes(size: int) -> str:
    """`5,043 MiB`; two digits below 10 MiB."""
    mib = size / (1 << 20)
    return f"{mib:,.0f} MiB" if mib >= 10 else f"{mib:.2g} MiB"


def with_article(word: str) -> str:
    """`a train`, `an explain`."""
    return f"{'an' if word[:1] in tuple('aeiou') else 'a'} {word}"
