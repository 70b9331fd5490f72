"""Mean, quartiles and count of a list of values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Spread:
    """Mean, quartiles and count of the finite values; None where there are none."""

    mean: float | None
    low: float | None
    median: float | None
    high: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        finite = torch.tensor([v for v in values if math.isfinite(v)], dtype=torch.float64)
        if not len(finite):
            return cls(None, None, None, None, 0)
        at = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
        low, median, high = finite.quantile(at).tolist()
        return cls(float(finite.mean()), low, median, high, len(finite))

    def measurement(self, name: str, subject: str, against: str | None, unit: str) -> list[dict[str, Any]]:
        """One measurement, with the quartiles as its range; empty without values."""
        if self.mean is None:
            return []
        what = {"name": name, "subject": subject, "against": against, "unit": unit}
        return [{**what, "value": self.mean, "low": self.low, "high": self.high, "n": self.n}]

    def to_dict(self) -> dict[str, float | int | None]:
        return asdict(self)
