"""Chart axis: maps values to coordinates, linear or logarithmic, and chooses ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Axis"]


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    start: float
    end: float
    title: str
    logarithmic: bool
    marked: tuple[float, ...] = ()  # the only ticks, if given

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, title: str, marked: tuple[float, ...] = ()
    ) -> Axis:
        """Logarithmic if all values are positive and the largest is at least four times the smallest."""
        low, high = min(values), max(values)
        if low > 0 and high / low >= 4:
            room = max(1.15, (high / low) ** 0.04)
            return cls(low / room, high * room, start, end, f"{title} (log)", True, marked)
        room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
        low = low - room if low - room > 0 or low < 0 else 0.0
        return cls(low, high + room, start, end, title, False, marked)

    def __call__(self, value: float) -> float:
        f: Callable[[float], float] = math.log if self.logarithmic else float
        share = (f(value) - f(self.low)) / (f(self.high) - f(self.low))
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Position and label of each tick, with enough digits that every label is exact."""
        values = list(self.marked) or self._chosen()
        digits = 3
        while digits < 12 and any(float(f"{value:.{digits}g}") != value for value in map(_clean, values)):
            digits += 1
        return [(value, _number(_clean(value), digits)) for value in values]

    def _chosen(self) -> list[float]:
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            ticks = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
            whole = [t for t in ticks if math.log10(t).is_integer()]
            return whole if len(ticks) > 9 and len(whole) > 1 else ticks
        raw = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def _clean(value: float) -> float:
    """Rounds off binary floating-point error."""
    return float(f"{value:.12g}")


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == round(value) else f"{value:.{digits}g}"
