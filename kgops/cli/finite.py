"""Numbers as flags: `nan` and `inf` are words that Python reads, and no seconds or megabytes."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["FiniteRange"]


class FiniteRange(click.FloatRange):
    """From `least` on, where that is given."""

    def __init__(self, least: float | None = None) -> None:
        super().__init__(least)
        if least is None:
            self.name = "float"  # in a help page: no range is shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r:.60} is no finite number.", param, ctx)
        return float(super().convert(found, param, ctx))
