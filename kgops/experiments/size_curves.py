"""Curves of time against a numeric option that a benchmark varied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kgops.experiments.pairs import Spread
from kgops.experiments.summary import Row

__all__ = ["Curve", "curves_by_size"]


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[float, Spread], ...]


def curves_by_size(rows: Sequence[Row], plan: Mapping[str, Any]) -> dict[str, list[Curve]]:
    """Curves of seconds for each varied name; empty if its values are not numbers."""
    varied = {one["name"]: one.get("varied") or {} for one in plan["variants"]}
    axes = dict.fromkeys(name for setting in varied.values() for name in setting)
    return {axis: list(_curves(axis, rows, varied)) for axis in axes}


def _curves(axis: str, rows: Sequence[Row], varied: Mapping[str, Mapping[str, Any]]) -> Iterator[Curve]:
    """One curve over the axis for each combination of the other varied options."""
    groups: dict[str, list[tuple[float, Spread]]] = {}
    for row in rows:
        setting = varied.get(row.variant, {})
        size = setting.get(axis)
        if row.seconds is None or isinstance(size, bool) or not isinstance(size, (int, float)):
            continue
        rest = " ".join(f"{name}={_word(value)}" for name, value in setting.items() if name != axis)
        groups.setdefault(rest or "time", []).append((float(size), row.seconds))
    for name, points in groups.items():
        if len(points) > 1:
            yield Curve(name, tuple(points))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
