"""A run at a glance, next to a list of runs: main curve, state, options unlike its profile, end of its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kgops.jobs.events import LIBRARIES, PROCESS_PEAK
from kgops.present.differing_options import DifferingOption, differing_options
from kgops.present.metric_order import curve_rank
from kgops.present.run_detail import LogTail, RunDetail, read_run_detail
from kgops.settings import Home
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
    """Rereads a run only after a change of the database, and of its log only new lines."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._version: int | None = None
        self._latest: Glance | None = None
        self._log: LogTail | None = None

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
            if before is None or self._log is None:
                self._log = LogTail(detail.path, _LOG_LINES, _LOG_BYTES)
            before = Glance(detail, tuple(_differing(detail)), ())
        self._latest = Glance(before.detail, before.options, self._end_of_log(before.detail.run.ended))
        return self._latest

    def _end_of_log(self, ended: bool) -> tuple[str, ...]:
        try:
            return self._log.look(final=ended) if self._log is not None else ()
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
