"""Make stdin, stdout and stderr safe to use: always open, and no traceback if a disk is full or a reader is gone.

Imported before anything else, so it imports only modules that Python has loaded already."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


class _Stdout(io.FileIO):
    """stdout that raises one readable error when a write fails, and then discards what is still buffered."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)
        self.tolerant = False
        self.error: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        # click writes empty bytes to find out whether a stream is text
        if self.error is None and memoryview(data).nbytes:
            try:
                return _written(super().write, data, self.fileno())
            except OSError as error:
                self.error = error
                if not self.tolerant:
                    raise _readable(error) from error
        return memoryview(data).nbytes


class _Stderr(io.FileIO):
    """stderr that ignores failed writes: there is nowhere left to report them."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w", closefd=False)

    def write(self, data: Buffer, /) -> int:
        try:
            return _written(super().write, data, self.fileno())
        except OSError:
            return memoryview(data).nbytes


_output: _Stdout | None = None


def prepare() -> None:
    """Replace sys.stdin, stdout and stderr. Call once, at the start of the process."""
    global _output
    for fd, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            # If the database were opened as descriptor 1, a command would print into it. Read-only /dev/null as stdout
            # makes writes fail, so that the command notices that its output is closed.
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115  stays open
    _output = _Stdout(1)
    sys.stdout = _text(_output, sys.stdout, "replace")
    sys.stderr = _text(_Stderr(2), sys.stderr, "backslashreplace")


def tolerate_output_errors() -> None:
    """From now on a failed write to stdout does not end the command."""
    if _output is not None:
        _output.tolerant = True


def output_error() -> str | None:
    """Return why output was lost while errors were tolerated; None if the reader closed a pipe."""
    error = _output.error if _output is not None and _output.tolerant else None
    return None if error is None or error.errno == errno.EPIPE else _why(error)


def _text(raw: io.FileIO, like: TextIO | None, errors: str) -> io.TextIOWrapper:
    """Wrap `raw` in a text stream, buffered as Python buffers `like`."""
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
    """Write, and wait for a slow reader if the descriptor is non-blocking."""
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
