"""Quality of a trained model by relation, direction and degree, from the run's test_results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.jobs.events import is_metric
from kgops.jobs.files import read_json
from kgops.present.formats import UNKNOWN

HEADS = ("BY", "GROUP", "RANKS", "MRR", "95 % INTERVAL", "HITS@1", "HITS@10")
NUMBERS = (2, 3, 4, 5, 6)  # columns of numbers
FILTERS = (
    "Validation ranks leave out answers known from training and validation. Test ranks leave out those of the test "
    "as well. So compare a validation MRR only with a validation MRR."
)
_BY = ("matrix", "direction", "degree", "relation")


@dataclass(frozen=True, slots=True)
class QualityGroup:
    """`by` is what groups: relation, direction or degree of the answer. Numbers that are not there are None."""

    by: str
    name: str
    count: int
    mrr: float | None
    mrr_interval: tuple[float, float] | None
    hits_at_1: float | None
    hits_at_10: float | None


def read_quality(results: Path) -> list[QualityGroup]:
    """In the order of the file; none where the run has no such file, or an older kgops wrote it."""
    try:
        table = read_json(results / "test_results.json")
    except OSError:
        return []
    groups = table.get("groups") if isinstance(table, dict) else None
    if not isinstance(groups, dict):
        return []
    return [
        _group(by, one)
        for by in _BY
        for one in (groups[by] if isinstance(groups.get(by), list) else ())
        if isinstance(one, dict) and is_metric(one.get("count"))
    ]


def quality_rows(results: Path, *, relations: int) -> list[tuple[str, ...]]:
    """Rows of a table with HEADS, with only the most frequent relations where there are more."""
    groups = read_quality(results)
    every = [one for one in groups if one.by == "relation"]
    shown = [one for one in groups if one.by != "relation"] + every[:relations]
    rows = [_row(one) for one in shown]
    if len(every) > relations:
        rows.append(
            ("relation", f"{len(every) - relations:,} more in test_results.json", *[""] * len(NUMBERS))
        )
    return rows


def compared_quality(
    qualities: Sequence[Sequence[QualityGroup]], *, relations: int | None
) -> tuple[list[tuple[str, ...]], int]:
    """A row for each group: its name, and each run's MRR with interval and number of ranks; and how many relations are
    left out of it, those beyond the first `relations`."""
    found = [{(one.by, one.name): one for one in groups} for groups in qualities]
    names = list(dict.fromkeys(name for groups in found for name in groups))
    every = [name for name in names if name[0] == "relation"]
    left_out = set() if relations is None else set(every[relations:])
    rows = [
        (" ".join(name), *(_mrr(groups.get(name)) for groups in found))
        for name in names
        if name not in left_out
    ]
    return rows, len(left_out)


def _mrr(group: QualityGroup | None) -> str:
    if group is None or group.mrr is None:
        return UNKNOWN
    interval = "" if group.mrr_interval is None else " {:.3f}–{:.3f}".format(*group.mrr_interval)
    return f"{group.mrr:.3f}{interval} ({group.count:,})"


def _row(one: QualityGroup) -> tuple[str, ...]:
    interval = UNKNOWN if one.mrr_interval is None else "{:.3f}–{:.3f}".format(*one.mrr_interval)
    numbers = [UNKNOWN if n is None else f"{n:.3f}" for n in (one.mrr, one.hits_at_1, one.hits_at_10)]
    return one.by, one.name, f"{one.count:,}", numbers[0], interval, *numbers[1:]


def _group(by: str, table: Mapping[str, Any]) -> QualityGroup:
    interval = table.get("mrr_interval")
    is_pair = isinstance(interval, list) and len(interval) == 2 and all(map(is_metric, interval))
    numbers = [table.get(name) for name in ("mrr", "hits_at_1", "hits_at_10")]
    mrr, first, tenth = (float(one) if one is not None and is_metric(one) else None for one in numbers)
    low_high = (float(interval[0]), float(interval[1])) if is_pair and interval else None
    return QualityGroup(by, str(table.get("name")), int(table["count"]), mrr, low_high, first, tenth)
