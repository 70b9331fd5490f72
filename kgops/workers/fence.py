"""Of two processes that were started for the same work, as after a node was taken for lost, only the later publishes.

Whoever starts one writes its mark into a file and tells it both. A process that finds another mark there has a
successor, and ends without a word.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["Fenced", "check", "check_lately", "is_elsewhere"]

_EVERY_S = 1.0
_checked = 0.0


class Fenced(Exception):
    """Another process does this work now."""


def is_elsewhere() -> bool:
    """Whether this process was started by a cluster, not by its supervisor."""
    return "KGOPS_FENCE" in os.environ


def check() -> None:
    """Raises Fenced where somebody came after us; at once before anything is published."""
    told = os.environ.get("KGOPS_FENCE")
    if told is None:
        return
    path, _, mark = told.rpartition(":")
    try:
        now = Path(path).read_text()
    except OSError:  # a file system that is away for a moment names no successor
        return
    if now != mark:
        raise Fenced(f"{mark} was succeeded by {now}")


def check_lately() -> None:
    """The same, for loops: a look at the file takes a network file system some time."""
    global _checked
    now = time.monotonic()
    if now - _checked > _EVERY_S:
        _checked = now
        check()
