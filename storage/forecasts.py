"""What was predicted of runs, beside what they took: from these, predictions are judged and corrected."""

from __future__ import annotations

import json
import sqlite3
from typing import NamedTuple

from storage.database import explained

_NEWEST = 300  # runs; older ones were predicted by older formulas
_QUERY = """
    SELECT run.id, run.workload, run.label, json_extract(run_spec.plan, '$.forecast'),
        run.peak_card_mib, run.peak_host_mib,
        (SELECT max(last_value) FROM series WHERE series.run = run.id AND series.name = 'libraries_mib'),
        (SELECT last_value FROM series WHERE series.run = run.id AND series.name = 'epoch_seconds'),
        (SELECT value FROM figure WHERE figure.run = run.id AND figure.name = 'tracin_s')
    FROM run JOIN run_spec ON run_spec.run = run.id
    WHERE run.predicted_mib IS NOT NULL AND run.state = 'succeeded' AND run.attempts = 1
    ORDER BY run.id DESC LIMIT ?
"""


_WRITTEN = """
    SELECT mib.value, s.value
    FROM run JOIN run_spec ON run_spec.run = run.id
        JOIN figure AS mib ON mib.run = run.id AND mib.name = 'written_mib'
        JOIN figure AS s ON s.run = run.id AND s.name = 'writing_s'
    WHERE run.state = 'succeeded' AND mib.value >= ? AND s.value > 0
        AND json_extract(run_spec.environment, '$.machine.host') = ?
    ORDER BY run.id DESC LIMIT ?
"""
_NEWEST_WRITTEN = 20  # a disk fills up, and is replaced


class Forecast(NamedTuple):
    """`on` names what it was made for: a card, or the processor of a machine. The prediction is what formulas
    said, before anything learned. None is unknown."""

    run: int
    workload: str
    label: str
    on: str
    on_card: bool
    predicted_mib: float
    modelled_s: float | None
    peak_card_mib: float | None
    peak_host_mib: float | None
    libraries_mib: float | None  # of host memory, before the worker read any data
    measured_s: float | None  # of an epoch, or of a tracing

    @property
    def measured_mib(self) -> float | None:
        """On a card all that it took there; on a processor what came on top of the libraries."""
        if self.on_card:
            return self.peak_card_mib
        if self.peak_host_mib is None or self.libraries_mib is None:
            return None
        return self.peak_host_mib - self.libraries_mib


def writing_rates(conn: sqlite3.Connection, host: str, *, least_mib: float) -> list[float]:
    """MiB a second that tracings on this machine have written, of at least so much each; the newest first."""
    with explained(None):
        rows = conn.execute(_WRITTEN, (least_mib, host, _NEWEST_WRITTEN)).fetchall()
    return [mib / seconds for mib, seconds in rows]


def newest(conn: sqlite3.Connection, *, on: str | None = None, limit: int = _NEWEST) -> list[Forecast]:
    """Of runs that succeeded at the first attempt, newest first; `on`: made for that alone."""
    with explained(None):
        rows = conn.execute(_QUERY, (limit,)).fetchall()
    found = []
    for run, workload, label, told, card, host, libraries, epoch_s, tracin_s in rows:
        table = json.loads(told) if told else None
        if table is None or (on is not None and table["on"] != on):
            continue
        seconds = {"train": epoch_s, "tracin": tracin_s}.get(workload)
        memory = (table["predicted_mib"], table["modelled_s"], card, host, libraries)
        found.append(Forecast(run, workload, label, table["on"], table["on_card"], *memory, seconds))
    return found
