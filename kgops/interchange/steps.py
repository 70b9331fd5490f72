"""Integer steps of curves, for formats that allow no others."""

from __future__ import annotations

from collections.abc import Sequence

from storage.transfer import Curve

__all__ = ["whole_steps"]

_LARGEST = 1 << 53


def whole_steps(curve: Curve) -> Sequence[int]:
    """The curve's steps where all are integers; else (memory over time) the points counted from 0."""
    if all(abs(step) < _LARGEST and step == int(step) for step in curve.steps):
        return [int(step) for step in curve.steps]
    return range(len(curve.steps))
