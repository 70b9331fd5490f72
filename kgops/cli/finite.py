"""Click type for finite floats: rejects `nan` and `inf`, which Python parses as floats."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["FiniteRange"]


class FiniteRange(click.FloatRange):
    """A finite float, at least `least` if that is given."""

    def __init__(self, least: float | None = None) -> None:
        super().__init__(least)
        if least is None:
            self.name = "float"

    def _describe_range(self) -> str:
        return super()._describe_range() if self.min is not None else ""  # click would print `x<=None`

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r:.60} is not a finite number.", param, ctx)
        return float(super().convert(number, param, ctx))
