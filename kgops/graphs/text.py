"""Text files of columns, plain or gzipped, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from kgops.errors import BadInput

__all__ = ["read_lines", "shown"]


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file without their line ends; `.gz` is recognised by content."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}.", hint="check the path and its permissions."
        ) from error
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(
                f"{path} is a damaged gzip file: {error}.",
                hint=f"copy it again and check it with `gzip -t {path.name}`.",
            ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8.",
            hint=f"convert it: `iconv -f LATIN1 -t UTF-8 {path.name}`.",
        ) from error
    # Not str.splitlines: labels may contain U+2028 and other signs it takes for line ends.
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def shown(label: str, most: int = 60) -> str:
    """A label as an error message may quote it: escapes made visible, length bounded."""
    quoted = ascii(label) if not label.isprintable() else f"'{label}'"
    return quoted if len(quoted) <= most else quoted[: most - 2] + "…'"
