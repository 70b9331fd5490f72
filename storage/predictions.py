"""Predictions of runs beside their measured memory and time, used to judge and correct the planner.

On a CPU, runs predict the whole process: `plan.process` has the model of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any, NamedTuple

from storage.rows import json_value, made
from storage.schema import SPEC, fitting

_NEWEST = 300  # runs; older ones used older formulas
_QUERY = """
    SELECT run.id, run.workload, run.label, json_extract(run_spec.plan, '$.forecast'),
        run.peak_gpu_mib, run.peak_host_mib,
        (SELECT max(last_value) FROM series WHERE series.run = run.id AND series.name = 'libraries_mib'),
        (SELECT sum(rollup.sum) / sum(rollup.n) FROM series JOIN rollup ON rollup.series = series.id
            WHERE series.run = run.id AND series.name = 'epoch_seconds' AND rollup.width = 4096),
        (SELECT value FROM metric WHERE metric.run = run.id AND metric.name = run.workload || '_s'),
        run.predicted_mib, json_extract(run_spec.plan, '$.process'),
        (SELECT max(last_value) FROM series WHERE series.run = run.id AND series.name = 'process_peak_mib'),
        (SELECT last_value FROM series WHERE series.run = run.id AND series.name = 'context_mib'),
        json_extract(run_spec.environment, '$.driver')
    FROM run JOIN run_spec ON run_spec.run = run.id
    WHERE json_valid(run_spec.plan) AND json_valid(run_spec.environment)
        AND run.predicted_mib IS NOT NULL AND run.state = 'succeeded' AND run.attempts = 1
    ORDER BY run.id DESC LIMIT ?
"""


class Forecast(NamedTuple):
    """A run's prediction and measurements; None is unknown. `on` is the GPU model, or the machine's CPU.

    `predicted_mib` is the uncorrected formula on a GPU; on a CPU, the process's growth above its start, or None where
    only counted tensors were predicted."""

    run: int
    workload: str
    label: str
    on: str
    on_gpu: bool
    predicted_mib: float | None
    modelled_s: float | None
    peak_gpu_mib: float | None
    peak_host_mib: float | None
    libraries_mib: float | None  # host memory at the start, before the worker read any data
    measured_s: float | None  # mean of the epochs, or of all that is traced, predicted or explained
    counted_mib: float | None = None  # predicted tensors
    process: dict[str, Any] | None = None  # on a CPU: the plan's model of the worker process
    process_peak_mib: float | None = None  # of the worker process, by the kernel
    context_mib: float | None = None  # of CUDA, with this driver
    driver: str | None = None
    time_kind: str | None = None  # what was computed: times are compared with their like

    @property
    def peak_mib(self) -> float | None:
        """Peak of the process; in older records, of the run."""
        return self.peak_host_mib if self.process_peak_mib is None else self.process_peak_mib

    @property
    def measured_mib(self) -> float | None:
        """GPU memory at the peak; on a CPU, the process's growth above its start."""
        if self.on_gpu:
            return self.peak_gpu_mib
        if self.peak_mib is None or self.libraries_mib is None:
            return None
        return self.peak_mib - self.libraries_mib


def newest(
    conn: sqlite3.Connection, *, by_epoch: Collection[str], on: str | None = None, limit: int = _NEWEST
) -> list[Forecast]:
    """Predictions of runs that succeeded at the first attempt, newest first; `on` restricts them to one device.
    `by_epoch`: the workloads whose time is that of an epoch."""
    rows = conn.execute(_QUERY, (limit,)).fetchall()
    predictions = []
    for row in made(_Row, rows):
        parts = {"forecast": json_value(row.forecast), "process": json_value(row.process)}
        parts = fitting(parts, SPEC["plan"])
        table, process = parts.get("forecast"), parts.get("process")
        if table is None or (on is not None and table["on"] != on):
            continue
        seconds = row.epoch_s if row.workload in by_epoch else row.whole_s
        predicted, counted = table["predicted_mib"], None
        if not table["on_gpu"]:
            counted, predicted = table["estimate"].get("live_mib", predicted), None
            if process is not None and row.predicted_mib is not None:
                predicted = row.predicted_mib - process["start_mib"]
        memory = (predicted, table.get("modelled_s"), row.peak_gpu_mib, row.peak_host_mib, row.libraries_mib)
        one = Forecast(row.run, row.workload, row.label, table["on"], table["on_gpu"], *memory, seconds)
        one = one._replace(context_mib=row.context_mib, driver=row.driver, time_kind=table.get("time_kind"))
        one = one._replace(counted_mib=counted, process=process, process_peak_mib=row.process_peak_mib)
        predictions.append(one)
    return predictions


class _Row(NamedTuple):
    """Of _QUERY."""

    run: int
    workload: str
    label: str
    forecast: str | None
    peak_gpu_mib: float | None
    peak_host_mib: float | None
    libraries_mib: float | None
    epoch_s: float | None
    whole_s: float | None
    predicted_mib: float | None
    process: str | None
    process_peak_mib: float | None
    context_mib: float | None
    driver: str | None
