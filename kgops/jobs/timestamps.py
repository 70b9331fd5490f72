"""Timestamps from outside, of which some lie beyond the calendar."""

from __future__ import annotations

import time

__all__ = ["LAST", "OUT_OF_RANGE", "clock", "is_timestamp"]

LAST = 253402300799.0  # of the year 9999
OUT_OF_RANGE = "out of range"


def is_timestamp(at: float) -> bool:
    return 0 <= at <= LAST


def clock(at: float, pattern: str) -> str:
    """Local time, as strftime writes it."""
    return time.strftime(pattern, time.localtime(at)) if is_timestamp(at) else OUT_OF_RANGE
