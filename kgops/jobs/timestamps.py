"""Moments from outside: any number may come as one, and not all of them are in a calendar."""

from __future__ import annotations

import time

__all__ = ["LAST", "NO_MOMENT", "clock", "is_moment"]

LAST = 253402300799.0  # of the year 9999
NO_MOMENT = "out of range"


def is_moment(at: float) -> bool:
    return 0 <= at <= LAST


def clock(at: float, pattern: str) -> str:
    """Local time, as strftime writes it."""
    return time.strftime(pattern, time.localtime(at)) if is_moment(at) else NO_MOMENT
