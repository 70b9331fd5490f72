"""Fencing: of two processes started for one task, as after a node was taken for lost, only the later publishes.

The starter writes a mark to a file and passes path and mark to the process. A process that finds another mark there
has a successor, and exits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_EVERY_S = 1.0
_checked = 0.0


class Fenced(Exception):
    """Another process does this work now."""


def is_on_another_machine() -> bool:
    """Whether a cluster started this process, not its supervisor."""
    return "KGOPS_FENCE" in os.environ


def check() -> None:
    """Raises Fenced if this process has a successor; call it right before publishing."""
    fence = os.environ.get("KGOPS_FENCE")
    if fence is None:
        return
    path, _, mark = fence.rpartition(":")
    try:
        now = Path(path).read_text()
    except OSError:  # a file system outage does not mean a successor
        return
    if now != mark:
        raise Fenced(f"{mark} was succeeded by {now}")


def check_if_due() -> None:
    """`check`, at most once a second, for loops: reading the file is slow on network file systems."""
    global _checked
    now = time.monotonic()
    if now - _checked > _EVERY_S:
        _checked = now
        check()
