"""Progress and metrics read out of the log of a command that knows nothing of kgops."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 2000  # of a line that is searched: a person's pattern may be slow on long ones


@dataclass(frozen=True, slots=True)
class Progress:
    done: float
    total: float | None


class LogPatterns:
    """`progress` finds `done` and `total` by name, or takes the first and second group.
    `metric` names metrics by its groups (`(?P<loss>…)`), or finds groups `name` and `value`;
    a group `step` says where on the curve."""

    def __init__(self, progress: str | None, metric: str | None) -> None:
        self._progress = re.compile(progress) if progress else None
        self._metric = re.compile(metric) if metric else None

    def __bool__(self) -> bool:
        return bool(self._progress or self._metric)

    def progress(self, line: str) -> Progress | None:
        found = self._progress.search(line[:_LONGEST]) if self._progress else None
        if found is None:
            return None
        named = found.groupdict()
        groups = found.groups()
        done = _number(named.get("done") if "done" in named else groups[0] if groups else None)
        total = _number(named.get("total") if "total" in named else groups[1] if len(groups) > 1 else None)
        return None if done is None else Progress(done, total)

    def metrics(self, line: str) -> list[tuple[str, float, float | None]]:
        """(name, value, step) of every metric on the line; step None where the line does not say."""
        if self._metric is None:
            return []
        out = []
        for found in self._metric.finditer(line[:_LONGEST]):
            named = found.groupdict()
            step = _number(named.pop("step", None))
            if "name" in named and "value" in named:
                named = {str(named["name"]): named["value"]}
            elif not named:
                named = {"metric": found.group(1) if found.re.groups else found.group(0)}
            out += [
                (name, value, step) for name, text in named.items() if (value := _number(text)) is not None
            ]
        return out


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None  # NaN and infinity are no place on a curve
