"""How much work something is, counted rather than timed: the same number on any machine, however busy."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from types import FrameType

_EVERY = 100  # instructions of SQLite's machine between two looks


def calls_of(work: Callable[[], object]) -> int:
    """Python functions called by `work`, in this thread; a CPU of 2.5 GHz does some five million in a second."""
    made = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


def instructions_of(conn: sqlite3.Connection, work: Callable[[], object]) -> int:
    """Instructions that SQLite's machine did for `work`, in hundreds; some fifty million are a second."""
    made = 0

    def count() -> int:
        nonlocal made
        made += _EVERY
        return 0

    conn.set_progress_handler(count, _EVERY)
    try:
        work()
    finally:
        conn.set_progress_handler(None, 0)
    return made
