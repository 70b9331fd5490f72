"""Steps for programs that know whole ones alone."""

from __future__ import annotations

from collections.abc import Sequence

from storage.transfer import Curve

__all__ = ["whole_steps"]

_LARGEST = 1 << 53


def whole_steps(curve: Curve) -> Sequence[int]:
    """The curve's own where all are whole; else (memory over time) its points are counted from 0."""
    if all(abs(step) < _LARGEST and step == int(step) for step in curve.steps):
        return [int(step) for step in curve.steps]
    return range(len(curve.steps))
