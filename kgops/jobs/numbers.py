"""Arithmetic on numbers from outside. Any float may come in, the largest and the least; nothing here raises,
and no sum or difference on the way becomes infinity or NaN that was not there before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_LARGEST = 1.7976931348623157e308
_SCALE = 16.0  # a power of two: dividing by it and multiplying again loses no digit of a large number


def bounded(value: float) -> float:
    """Infinity as the largest number there is."""
    return min(max(value, -_LARGEST), _LARGEST)


def share_between(value: float, low: float, high: float) -> float:
    """How far `value` is on the way from `low` to `high`: 0 to 1, also for what lies outside of them."""
    span = high - low
    if not span < math.inf:
        value, low, high = (bounded(one) / 2 for one in (value, low, high))
        span = high - low
    # NaN is neither above nor below anything: the comparison has to be one that it fails.
    return min((value - low) / span, 1.0) if span > 0 and value > low else 0.0


def line_between(left: float, right: float, share: float) -> float:
    """The value after `share` of the way, 0 to 1."""
    span = right - left
    return left + span * share if math.isfinite(span) else left * (1 - share) + right * share


def middle(one: float, other: float) -> float:
    total = one + other
    return total / 2 if math.isfinite(total) else one / 2 + other / 2


def mean(values: Sequence[float]) -> float:
    """Of one or more."""
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    average = sum(bounded(value) / len(values) for value in values)
    return min(max(average, min(values)), max(values))  # rounding may leave the range


def median(values: Sequence[float]) -> float:
    """Of one or more."""
    ordered = sorted(values)
    return middle(ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2])


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper, of two or more."""
    from statistics import quantiles  # half a dozen modules, for the few who ask

    scale = _SCALE if _are_large(values) else 1.0
    low, _, high = quantiles([bounded(value) / scale for value in values], n=4, method="inclusive")
    smallest, largest = min(values), max(values)  # rounding and scaling may leave the range
    return min(max(low * scale, smallest), largest), min(max(high * scale, smallest), largest)


def quotient(value: float, over: float) -> float | None:
    """The quotient; None where it is not finite."""
    ratio = value / over if over else math.nan
    return ratio if math.isfinite(ratio) else None


def finite_number(text: str) -> float:
    """Raises ValueError also for infinity and NaN, which `float` takes: no limit and no wait can be either."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no finite number")
    return number


def number_in_cell(text: str | None) -> float | None:
    """None where there is no finite number."""
    try:
        return finite_number(text) if text else None
    except ValueError:
        return None


def finite_json(value: Any) -> Any:
    """A value for JSON: infinity as the text `Infinity`, NaN as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: finite_json(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_json(inner) for inner in value]
    return value


def _are_large(values: Sequence[float]) -> bool:
    return max(map(abs, values)) > _LARGEST / _SCALE
