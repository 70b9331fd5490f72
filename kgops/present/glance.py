"""A run at a glance, next to a list of runs: main curve, state, options unlike its profile, end of its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgops.jobs.events import LIBRARIES, PROCESS_PEAK
from kgops.jobs.option import Option
from kgops.jobs.text import one_line
from kgops.present.formats import value_text
from kgops.present.log_lines import newest_lines
from kgops.present.run_detail import OptionRow, RunDetail, read_run_detail
from kgops.present.wording import curve_rank
from kgops.settings import Home
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.registry import WORKLOADS
from storage import series
from storage.database import Connection, changed_since

_LOG_LINES, _LOG_BYTES = 60, 1 << 13
_PROFILE = "profile"  # whose choice it was begins so


@dataclass(frozen=True, slots=True)
class Glance:
    detail: RunDetail  # with the main curve alone
    options: tuple[DifferingOption, ...]
    log: tuple[str, ...]


class GlanceReader:
    """Rereads a run only after a change of the database, and the end of its log each time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._version: int | None = None
        self._latest: Glance | None = None

    def read(self, conn: Connection, number: int) -> Glance | None:
        """None where there is no such run."""
        before = self._latest
        if before is not None and before.detail.run.id != number:
            before = self._version = None
        changed, self._version = changed_since(conn, self._version)
        if before is None or changed:
            detail = _read(self._home, conn, number)
            if detail is None:
                return None
            before = Glance(detail, tuple(_differing(detail)), ())
        self._latest = Glance(before.detail, before.options, _end_of_log(before.detail))
        return self._latest


def _end_of_log(detail: RunDetail) -> tuple[str, ...]:
    try:
        return newest_lines(RunFolder(detail.path).log, _LOG_LINES, _LOG_BYTES)
    except OSError as error:
        return (f"the log cannot be read: {error.strerror}",)


def _read(home: Home, conn: Connection, number: int) -> RunDetail | None:
    names = sorted((one.name for one in series.of_run(conn, number) if one.n > 1), key=curve_rank)
    return read_run_detail(home, conn, number, only=(*names[:1], LIBRARIES, PROCESS_PEAK))


def _differing(detail: RunDetail) -> Iterator[DifferingOption]:
    """What others than its profile set, and what was not applied as the profile has it; without one, what differs
    from the defaults."""
    for one in differing_options(detail.job, detail.options):
        if not one.by.startswith(_PROFILE):
            yield one
    for row in detail.options:
        chosen = row.by.startswith(_PROFILE) and row.requested not in (None, "auto")
        if chosen and row.applied not in (None, row.requested):
            yield DifferingOption(row.name, f"{row.applied}, not {row.requested}", "", row.by, row.why)


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


def settings_text(job: Mapping[str, Any]) -> str:
    """What a job sets otherwise than the defaults, in one line."""
    return one_line(" · ".join(f"{one.name} {one.value}" for one in differing_options(job, ())), 4000)


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
