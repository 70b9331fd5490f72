"""What was predicted of runs, beside what they took: from these, predictions are judged and corrected.

On a CPU two things were predicted in the course of time: the tensors that are counted, and since `plan.process` is
kept the memory of the whole process. Runs of before teach what a process takes, and count for no accuracy.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from storage.database import explained

_NEWEST = 300  # runs; older ones were predicted by older formulas
_QUERY = """
    SELECT run.id, run.workload, run.label, json_extract(run_spec.plan, '$.forecast'),
        run.peak_gpu_mib, run.peak_host_mib,
        (SELECT max(last_value) FROM series WHERE series.run = run.id AND series.name = 'libraries_mib'),
        (SELECT last_value FROM series WHERE series.run = run.id AND series.name = 'epoch_seconds'),
        (SELECT value FROM metric WHERE metric.run = run.id AND metric.name = 'tracin_s'),
        run.predicted_mib, json_extract(run_spec.plan, '$.process'),
        (SELECT max(last_value) FROM series WHERE series.run = run.id AND series.name = 'process_peak_mib'),
        (SELECT json_extract(body, '$.mib') FROM event WHERE event.run = run.id AND event.kind = 'predicted'
            ORDER BY event.id DESC LIMIT 1)
    FROM run JOIN run_spec ON run_spec.run = run.id
    WHERE run.predicted_mib IS NOT NULL AND run.state = 'succeeded' AND run.attempts = 1
    ORDER BY run.id DESC LIMIT ?
"""


_WRITTEN = """
    SELECT mib.value, s.value
    FROM run JOIN run_spec ON run_spec.run = run.id
        JOIN metric AS mib ON mib.run = run.id AND mib.name = 'written_mib'
        JOIN metric AS s ON s.run = run.id AND s.name = 'writing_s'
    WHERE run.state = 'succeeded' AND mib.value >= ? AND s.value > 0
        AND json_extract(run_spec.environment, '$.machine.host') = ?
    ORDER BY run.id DESC LIMIT ?
"""
_NEWEST_WRITTEN = 20  # a disk fills up, and is replaced


class Forecast(NamedTuple):
    """`on` names what it was made for: a GPU, or the CPU of a machine. On a GPU `predicted_mib` is what
    formulas said, before anything learned; on a CPU it is what was shown of the process above its start, or None where
    counted tensors alone were predicted. None is unknown."""

    run: int
    workload: str
    label: str
    on: str
    on_gpu: bool
    predicted_mib: float | None
    modelled_s: float | None
    peak_gpu_mib: float | None
    peak_host_mib: float | None
    libraries_mib: float | None  # that the process held at its start, before the worker read any data
    measured_s: float | None  # of an epoch, or of a TracIn run
    counted_mib: float | None = None  # tensors that were predicted
    process: dict[str, Any] | None = None  # on a CPU: what the plan kept of its kind of worker
    process_peak_mib: float | None = None  # of the worker's own process, by the kernel

    @property
    def peak_mib(self) -> float | None:
        """Of a process; before workers told it, of the run."""
        return self.peak_host_mib if self.process_peak_mib is None else self.process_peak_mib

    @property
    def measured_mib(self) -> float | None:
        """On a GPU all that it took there; on a CPU the process's peak above its start."""
        if self.on_gpu:
            return self.peak_gpu_mib
        if self.peak_mib is None or self.libraries_mib is None:
            return None
        return self.peak_mib - self.libraries_mib


def writing_rates(conn: sqlite3.Connection, host: str, *, least_mib: float) -> list[float]:
    """MiB a second that TracIn runs on this machine have written, of at least so much each; the newest first."""
    with explained(None):
        rows = conn.execute(_WRITTEN, (least_mib, host, _NEWEST_WRITTEN)).fetchall()
    return [mib / seconds for mib, seconds in rows]


def newest(conn: sqlite3.Connection, *, on: str | None = None, limit: int = _NEWEST) -> list[Forecast]:
    """Of runs that succeeded at the first attempt, newest first; `on`: made for that alone."""
    with explained(None):
        rows = conn.execute(_QUERY, (limit,)).fetchall()
    found = []
    for (
        run,
        workload,
        label,
        told,
        gpu,
        host,
        libraries,
        epoch_s,
        tracin_s,
        shown,
        of,
        peak,
        counted,
    ) in rows:
        process = json.loads(of) if of else None
        table = json.loads(told) if told else _told_by_worker(process)
        if table is None or (on is not None and table["on"] != on):
            continue
        seconds = {"train": epoch_s, "tracin": tracin_s}.get(workload)
        predicted = table["predicted_mib"]
        if not table["on_gpu"]:
            counted = table["estimate"].get("live_mib", predicted) if told else counted
            predicted = None if process is None else shown - process["start_mib"]
        memory = (predicted, table["modelled_s"], gpu, host, libraries)
        one = Forecast(run, workload, label, table["on"], table["on_gpu"], *memory, seconds)
        found.append(one._replace(counted_mib=counted, process=process, process_peak_mib=peak))
    return found


def _told_by_worker(process: dict[str, Any] | None) -> dict[str, Any] | None:
    """Of a run whose tensors only its worker could count."""
    if process is None:
        return None
    return {"on": process["on"], "on_gpu": False, "predicted_mib": None, "modelled_s": None}
