"""Read curves and metrics from JSON of training scripts: a list with a table per epoch, or a table of lists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.transfer import Curve

__all__ = ["Read", "history_in", "is_number", "metrics_in"]

_EPOCH = ("epoch", "epochs", "step", "steps")
_WHOLE = "both"  # of head and tail ranks: the usual meaning of `mrr`


@dataclass(slots=True)
class Read:
    curves: list[Curve] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number that fits a column; booleans are not numbers."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def metrics_in(table: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number, named by its path: `test` and `{"both": {"mrr": …}}` give `test_mrr`."""
    return {name: float(value) for name, value in _flat(table, prefix) if is_number(value)}


def history_in(body: Any, at: float) -> Read:
    """Raises ValueError where `body` is not a history. All values get the time `at`: a history has none."""
    if isinstance(body, list):
        return _of_epochs(body, at)
    if isinstance(body, dict):
        return _of_lists(body, at)
    raise ValueError("neither a list of epochs nor a table of lists")


def _of_epochs(body: Sequence[Any], at: float) -> Read:
    points: dict[str, list[tuple[float, float | None]]] = {}
    for n, entry in enumerate(body, 1):
        if not isinstance(entry, dict):
            raise ValueError(f"entry {n} is not a table")
        step = next((entry[name] for name in _EPOCH if is_number(entry.get(name))), n)
        for name, value in _flat({k: v for k, v in entry.items() if k not in _EPOCH}, ""):
            if value is None or is_number(value):
                points.setdefault(name, []).append((float(step), None if value is None else float(value)))
    known = {name: pairs for name, pairs in points.items() if any(value is not None for _, value in pairs)}
    return Read([_curve(name, pairs, at) for name, pairs in known.items()])


def _of_lists(body: Mapping[str, Any], at: float) -> Read:
    history = Read(metrics=metrics_in(body))
    lists = dict(_lists(body, ""))
    epochs = next((lists.pop(name) for name in _EPOCH if _counts(lists.get(name))), None)
    longest = max(map(len, lists.values()), default=0)
    for name, values in lists.items():
        steps = epochs if epochs is not None and len(epochs) == len(values) else range(1, len(values) + 1)
        if len(values) < longest and steps is not epochs:
            history.troubles.append(
                f"{name} has {len(values)} values for {longest} epochs and names no epochs: numbered from 1"
            )
        entries = [{"epoch": step, name: value} for step, value in zip(steps, values, strict=True)]
        history.curves += _of_epochs(entries, at).curves
    return history


def _lists(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    for name, value in table.items():
        if isinstance(value, list) and value:
            yield prefix + name, value
        elif isinstance(value, dict):
            yield from _lists(value, f"{prefix}{name}_")


def _counts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(map(is_number, values))


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        path = prefix if name == _WHOLE else f"{prefix}_{name}".strip("_") if prefix else name
        if isinstance(value, dict):
            yield from _flat(value, path)
        else:
            yield path or name, value


def _curve(name: str, points: Sequence[tuple[float, float | None]], at: float) -> Curve:
    return Curve(name, [step for step, _ in points], [value for _, value in points], [at] * len(points))
