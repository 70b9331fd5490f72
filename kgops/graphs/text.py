"""Reads text files with columns, plain or gzipped, with errors that name file and line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from kgops.errors import BadInput

__all__ = ["is_id", "read_lines", "shown"]

_LONGEST = 64 << 20  # bytes per line: a gzipped file may expand a thousandfold


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file without their line ends; `.gz` is recognised by content."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                # Splits bytes at line feeds only: labels may contain characters at which text mode splits lines.
                lines = iter(lambda: file.readline(_LONGEST + 1), b"") if packed else file
                for number, line in enumerate(lines, 1):
                    if len(line) > _LONGEST:
                        raise BadInput(
                            f"{path}, line {number}: longer than {_LONGEST >> 20} MiB.",
                            hint="give a text file with one triple or label per line.",
                        )
                    yield _decoded(path, number, line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path} is a damaged gzip file: {error}.",
            hint=f"copy it again and check it with `gzip -t {path.name}`.",
        ) from error
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}.", hint="check the path and its permissions."
        ) from error


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        # A byte order mark can only stand at the very start.
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8.",
            hint=f"convert it: `iconv -f LATIN1 -t UTF-8 {path.name}`.",
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def is_id(text: str) -> bool:
    """Whether the text is an integer from 0 that fits into 64 bits."""
    return text.isascii() and text.isdigit() and len(text) < 19


def shown(label: str, most: int = 60) -> str:
    """A label for an error message: escaped and shortened."""
    quoted = ascii(label) if not label.isprintable() else f"'{label}'"
    return quoted if len(quoted) <= most else quoted[: most - 2] + "…'"
