"""Options of a run that differ from their declared defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kgops.jobs.option import Option
from kgops.present.formats import value_text
from kgops.present.run_detail import OptionRow
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.registry import WORKLOADS

_STAGES = ("train", "predict", "tracin")  # of a pipeline
_CHOSEN = (None, "auto")  # defaults that leave the choice to kgops


class DifferingOption(NamedTuple):
    name: str
    value: str
    default: str
    by: str
    why: str


def differing_options(job: Mapping[str, Any], options: Sequence[OptionRow]) -> list[DifferingOption]:
    """Settings that the job names otherwise, then optimizations that were applied otherwise."""
    workload = job.get("workload")
    name = workload if isinstance(workload, str) else ""
    if name == "pipeline":
        stages = _table(job, name)
        settings = [one for stage in _STAGES for one in _settings(stage, _table(stages, stage), f"{stage}.")]
    else:
        settings = list(_settings(name, _table(job, name), ""))
    return [*settings, *_applied(name, options)]


def _table(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An imported job may have anything there."""
    table = of.get(name)
    return table if isinstance(table, Mapping) else {}


def _settings(workload: str, table: Mapping[str, Any], before: str) -> Iterator[DifferingOption]:
    known = WORKLOADS.get(workload)
    for option in known.settings if known is not None else ():
        value = table.get(option.name)
        if value is not None and option.as_read(value) != option.default:
            yield DifferingOption(before + option.name, value_text(value), _default(option), "the job", "")


def _applied(workload: str, options: Iterable[OptionRow]) -> Iterator[DifferingOption]:
    known = WORKLOADS.get(workload)
    declared = OPTIONS | (known.optimizations if known is not None else {})
    for row in options:
        option = declared.get(row.name)
        if option is not None and _differs(row, option):
            value = row.applied or f"{row.requested} requested, not reported"
            yield DifferingOption(row.name, value, _default(option), row.by, row.why)


def _differs(row: OptionRow, option: Option) -> bool:
    value = row.applied or row.requested
    if option.default in _CHOSEN:
        return row.requested not in _CHOSEN
    return value is not None and value not in ("auto", value_text(option.default))


def _default(option: Option) -> str:
    if option.shown_default:
        return option.shown_default
    if option.default is None:
        return "none" if option.effect is None else "chosen by kgops"
    return value_text(option.default)
