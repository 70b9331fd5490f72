"""Files with holes, as a log that is kept short has them: their zeros take no room on the disk."""

from __future__ import annotations

import os
from typing import BinaryIO

_BLOCK = 1 << 16


def write_with_holes(file: BinaryIO, data: bytes) -> int:
    """Adds the data at the end of the file, its zeros as holes; the number of bytes that take room."""
    written = 0
    for begin in range(0, len(data), _BLOCK):
        block = data[begin : begin + _BLOCK]
        if block == bytes(len(block)):
            file.truncate(file.seek(0, os.SEEK_END) + len(block))
            file.seek(0, os.SEEK_END)
        else:
            written += file.write(block)
    return written
