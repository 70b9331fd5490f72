"""Text files of columns, plain or gzipped, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from kgops.errors import BadInput

__all__ = ["is_id", "read_lines", "shown"]

_LONGEST = 64 << 20  # bytes of a line: what is packed may be a thousand times as large as its file


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file without their line ends; `.gz` is recognised by content."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                # Bytes are split at line feeds only: labels may hold signs that text mode breaks at.
                lines = iter(lambda: file.readline(_LONGEST + 1), b"") if packed else file
                for number, line in enumerate(lines, 1):
                    if len(line) > _LONGEST:
                        raise BadInput(
                            f"{path}, line {number}: longer than {_LONGEST >> 20} MiB.",
                            hint="this is no file of lines.",
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
    """Whether it is a whole number, 0 or more, that fits into 64 bits."""
    return text.isascii() and text.isdigit() and len(text) < 19


def shown(label: str, most: int = 60) -> str:
    """A label as an error message may quote it: escapes made visible, length bounded."""
    quoted = ascii(label) if not label.isprintable() else f"'{label}'"
    return quoted if len(quoted) <= most else quoted[: most - 2] + "…'"
