"""Standard input, output and error as commands may rely on them: there, and without a traceback where they are full,
closed or gone. Read before anything else, so it imports nothing that is not there already."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

__all__ = ["output_trouble", "prepare", "tolerate_output_trouble"]


class _Output(io.FileIO):
    """Raises once what a person can read; what is still waiting in buffers then goes nowhere."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)
        self.tolerant = False
        self.trouble: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        if (
            self.trouble is None and memoryview(data).nbytes
        ):  # click asks by nothing whether it is a stream of text
            try:
                return _written(super().write, data, self.fileno())
            except OSError as error:
                self.trouble = error
                if not self.tolerant:
                    raise _readable(error) from error
        return memoryview(data).nbytes


class _Messages(io.FileIO):
    """Standard error: nobody could be told of what goes wrong here."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)

    def write(self, data: Buffer, /) -> int:
        try:
            return _written(super().write, data, self.fileno())
        except OSError:
            return memoryview(data).nbytes


_output: _Output | None = None


def prepare() -> None:
    """Once, at the start of the process."""
    global _output
    for fd, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            # A database that became descriptor 1 would have a command's output written into it. Output that is closed
            # is one that cannot be written to: the command has to notice.
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    _output = _Output(1)
    sys.stdout = _text(_output, sys.stdout, "replace")
    sys.stderr = _text(_Messages(2), sys.stderr, "backslashreplace")


def tolerate_output_trouble() -> None:
    """From here on output that cannot be written ends nothing: what the command does matters more."""
    if _output is not None:
        _output.tolerant = True


def output_trouble() -> str | None:
    """Why output was lost while that was tolerated; that a reader had enough of it is none."""
    trouble = _output.trouble if _output is not None and _output.tolerant else None
    return None if trouble is None or trouble.errno == errno.EPIPE else _why(trouble)


def _text(raw: io.FileIO, like: TextIO | None, errors: str) -> io.TextIOWrapper:
    """Buffered as Python would have it."""
    at_once = isinstance(like, io.TextIOWrapper) and like.write_through
    return io.TextIOWrapper(
        raw if at_once else io.BufferedWriter(raw),
        encoding=like.encoding if like is not None else "utf-8",
        errors=errors,
        newline="\n",
        line_buffering=bool(like.line_buffering) if like is not None else errors == "backslashreplace",
        write_through=at_once,
    )


def _written(write: Callable[[Buffer], int | None], data: Buffer, fd: int) -> int:
    """Waits where a reader that is slow made the descriptor one that does not wait."""
    while (written := write(data)) is None:
        from select import select

        select([], [fd], [])
    return written


def _readable(error: OSError) -> Exception:
    if error.errno == errno.EPIPE:
        return error
    from kgops.errors import Unavailable

    return Unavailable(f"the output cannot be written: {_why(error)}")


def _why(error: OSError) -> str:
    return "it is closed" if error.errno == errno.EBADF else os.strerror(error.errno or 0).lower()
