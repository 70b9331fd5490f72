"""Text from outside made safe to show: no terminal escape, no direction trick, no broken encoding."""

from __future__ import annotations

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


def lines(text: str) -> str:
    """`text` of several harmless lines; line feeds stay."""
    return "\n".join(one_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def from_bytes(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
