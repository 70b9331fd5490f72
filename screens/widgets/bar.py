"""Bars of GPU memory (used, reserved by runs, total) and of progress."""

from __future__ import annotations

from kgops.jobs.numbers import share_between
from screens.rows import Piece

__all__ = ["memory_bar", "share_bar"]

_TIGHT = 0.92  # share of GPU memory from which the bar warns


def memory_bar(used: float | None, reserved: float, total: float | None, width: int) -> list[Piece]:
    """`width` columns: ▇ used, ░ reserved but unused, ▏ end of the reservation, │ end of the GPU."""
    if used is None or not total or width < 1:
        return [Piece(" " * width, "dim")]
    full = _columns(used, total, width)
    mark = _columns(reserved, total, width)
    held = max(mark - full, 0)
    tone = "warn" if max(used, reserved) > _TIGHT * total else "accent"
    rest = width - full - held
    mark_sign = "▏" if reserved and rest > 1 else ""
    end = "│" if rest else ""
    return [
        Piece("▇" * full, tone),
        Piece("░" * held + mark_sign, tone),
        Piece(f"{end:>{rest - len(mark_sign)}}", "dim"),
    ]


def share_bar(done: float, total: float, width: int) -> list[Piece]:
    """Progress bar."""
    full = _columns(done, total, width)
    return [Piece("▇" * full, "accent"), Piece("░" * (width - full), "dim")]


def _columns(part: float, whole: float, width: int) -> int:
    return min(max(round(share_between(part, 0.0, whole) * width), 1 if part > 0 else 0), width)
