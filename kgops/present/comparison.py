"""Compare runs: differences in job settings, applied options and environment, and their metrics side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kgops.jobs.data_digests import NAMES, TRIPLES, count_of, have_one_numbering, shown
from kgops.jobs.numbers import median, quartiles, quotient
from kgops.present.wording import lower_is_better, most_important
from kgops.supervisor.worker_reports import data_digests
from storage import reports, runs, series
from storage.database import Connection
from storage.runs import Run

MOST = 8
# The parts of an environment that results and times depend on; the working folder and most variables do not matter.
_ENVIRONMENT = ("python", "packages", "machine", "driver", "gpus", "git")
_VARIABLES = ("OMP_", "MKL_", "OPENBLAS_", "CUDA_", "PYTORCH_", "TORCH_")
_SAMPLED = ("_mib", "_per_s")  # curves of what kgops measures itself
_MACHINE = ("machine.host", "machine.processor", "machine.cores", "gpus", "driver")


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting's value for each run; None where a run does not have it."""

    name: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        return len({json.dumps(value, sort_keys=True, default=str) for value in self.values}) > 1


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured value for each run; `spread` holds the lower and upper quartile where there are 3 or more values."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    spread: tuple[tuple[float, float] | None, ...]

    @property
    def is_time(self) -> bool:
        """Whether the machine decides it: a time, or a rate."""
        return self.unit == "s" or self.name.endswith(("_s", "_seconds", "_ms", "per_s", "per_second"))

    def ratio(self, i: int) -> float | None:
        """The value relative to the first run's."""
        first, value = self.values[0], self.values[i]
        return None if first is None or value is None else quotient(value, first)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`settings`, `options` and `environment` hold all rows; `Difference.differs` marks those that differ. `tables`
    names the tables of settings that each run's workload has: its own, and its stages'."""

    runs: tuple[Run, ...]
    tables: tuple[frozenset[str], ...]
    settings: tuple[Difference, ...]
    options: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    metrics: tuple[Metric, ...]

    def is_of_one_workload(self, row: Difference) -> bool:
        """Whether only one workload has this setting, and all its runs agree on it."""
        table = row.name.partition(".")[0]
        values = [value for tables, value in zip(self.tables, row.values, strict=True) if table in tables]
        return 0 < len(values) < len(self.runs) and not Difference(row.name, tuple(values)).differs

    @property
    def shown(self) -> tuple[Metric, ...]:
        """The metrics that a run has, of thousands the most important ones."""
        known = [one for one in self.metrics if any(value is not None for value in one.values)]
        kept = set(most_important(one.name for one in known if not one.unit))
        return tuple(one for one in known if one.unit or one.name in kept)

    @property
    def left_out(self) -> int:
        """Metrics that a run has and that are not in `shown`."""
        return sum(any(value is not None for value in one.values) for one in self.metrics) - len(self.shown)

    @property
    def same_machine(self) -> bool:
        """Whether ratios of time are due to the settings. False where an imported run's machine is unknown."""
        is_known = any(row.name.startswith("machine.") for row in self.environment)
        return is_known and not any(row.differs and row.name.startswith(_MACHINE) for row in self.environment)

    @property
    def cautions(self) -> list[str]:
        """What to know before its numbers are compared."""
        cautions = []
        if not self.same_machine:
            cautions.append(
                "The machines or GPUs differ or are unknown: times have no ratios and no best,"
                " as settings may not explain them."
            )
        if any(run.state != "succeeded" for run in self.runs):
            cautions.append(
                "Not all runs succeeded: the metrics of the others cover what they completed, and are never best."
            )
        return cautions

    def ratio(self, metric: Metric, i: int) -> float | None:
        """The value relative to the first run's; None for a time that another machine took, or an unknown one."""
        return None if metric.is_time and not self.same_machine else metric.ratio(i)

    def best(self, metric: Metric) -> list[int]:
        """Places of the best value among runs that succeeded; none where times are of several machines, where nobody
        knows which direction is better, or where all are equal."""
        lower = lower_is_better(metric.name)
        values = {
            i: float(f"{value:.4g}")  # as it is shown
            for i, (run, value) in enumerate(zip(self.runs, metric.values, strict=True))
            if value is not None and run.state == "succeeded"
        }
        no_best = lower is None or (metric.is_time and not self.same_machine)
        if no_best or len(set(values.values())) < 2:
            return []
        best = min(values.values()) if lower else max(values.values())
        return [i for i, value in values.items() if value == best]


def compare(conn: Connection, chosen: Sequence[Run]) -> Comparison:
    """Compares the runs; the first is the baseline."""
    specs = [runs.spec(conn, run.id) for run in chosen]
    settings = [_job_settings(spec.job) for spec in specs]
    return Comparison(
        tuple(chosen),
        tuple(_tables(run, spec.job, own) for run, spec, own in zip(chosen, specs, settings, strict=True)),
        (*_differences([_flat(one) for one in settings]), *_data(conn, chosen)),
        _differences([_applied(conn, run) for run in chosen]),
        _differences([_environment_values(spec.environment) for spec in specs]),
        tuple(_metrics(conn, chosen)),
    )


def _data(conn: Connection, chosen: Sequence[Run]) -> Iterable[Difference]:
    """Of each part of the data its size and a mark of its content; n/a where no worker reported it."""
    tables = [data_digests(conn, run.id) for run in chosen]
    known = [table for table in tables if table]
    for name, title in NAMES.items():
        # Triples are compared by their ids, which mean the same in one numbering.
        write = shown if name not in TRIPLES or have_one_numbering(known) else count_of
        values = tuple(write(table[name]) if name in table else None for table in tables)
        if any(values):
            yield Difference(title, values)


def _job_settings(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job's settings without its label; a pipeline's two halves appear as train and tracin settings."""
    settings = {name: value for name, value in job.items() if name not in ("label", "pipeline")}
    if "pipeline" in job:
        # Here, as few comparisons need a workload's declaration.
        from kgops.workloads.pipeline.job import stage_settings

        settings |= stage_settings(job["pipeline"])
    return settings


def _tables(run: Run, job: Mapping[str, Any], settings: Mapping[str, Any]) -> frozenset[str]:
    return frozenset({run.workload, *(settings.keys() - job.keys())})


def _applied(conn: Connection, run: Run) -> dict[str, Any]:
    """The value of each option in the newest attempt."""
    return {option.name: option.applied for option in reports.options(conn, run.id)}


def _environment_values(environment: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: environment.get(name) for name in _ENVIRONMENT}
    variables = environment.get("variables") or {}
    kept["variables"] = {name: value for name, value in variables.items() if name.startswith(_VARIABLES)}
    return _flat(kept)


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            values |= _flat(value, key)
        elif value is not None:
            values[key] = value
    return values


def _differences(tables: Sequence[Mapping[str, Any]]) -> tuple[Difference, ...]:
    names = dict.fromkeys(name for table in tables for name in table)
    return tuple(Difference(name, tuple(table.get(name) for table in tables)) for name in names)


def _metrics(conn: Connection, chosen: Sequence[Run]) -> Iterable[Metric]:
    yield _single("took", "s", chosen, lambda run: run.took_s)
    yield _single("peak_host_mib", "MiB", chosen, lambda run: run.peak_host_mib)
    yield _single("peak_gpu_mib", "MiB", chosen, lambda run: run.peak_gpu_mib)
    yield _single("predicted_mib", "MiB", chosen, lambda run: run.predicted_mib)
    epochs = [_epoch_seconds(conn, run) for run in chosen]
    if any(len(one) > 1 for one in epochs):
        epochs = [one[1:] for one in epochs]  # the first warms up: a run of one epoch has none to compare
    if any(epochs):
        values = tuple(median(one) if one else None for one in epochs)
        yield Metric("epoch_seconds", "s", values, tuple(_quartiles(one) for one in epochs))
    ended = [reports.metrics(conn, run.id) for run in chosen]
    for name in dict.fromkeys(name for table in ended for name in table):
        values = tuple(table.get(name) for table in ended)
        yield Metric(name, "", values, (None,) * len(chosen))
    # A command reports no metrics at its end: the last points of its curves are what it reached.
    lasts = [_last_points(conn, run) for run in chosen]
    without = [last for last, table in zip(lasts, ended, strict=True) if not table]
    reported = {name for table in ended for name in table}
    for name in dict.fromkeys(name for table in without for name in table if name not in reported):
        yield Metric(name, "", tuple(table.get(name) for table in lasts), (None,) * len(chosen))


def _last_points(conn: Connection, run: Run) -> dict[str, float]:
    """Of curves that were reported, not sampled."""
    return {
        one.name: one.last_value
        for one in series.of_run(conn, run.id)
        if one.last_value is not None and not one.name.endswith(_SAMPLED) and one.name != "epoch_seconds"
    }


def _single(name: str, unit: str, chosen: Sequence[Run], value: Callable[[Run], float | None]) -> Metric:
    return Metric(name, unit, tuple(value(run) for run in chosen), (None,) * len(chosen))


def _epoch_seconds(conn: Connection, run: Run) -> list[float]:
    return [p.value for p in series.points(conn, run.id, "epoch_seconds") if p.value is not None]


def _quartiles(values: list[float]) -> tuple[float, float] | None:
    return quartiles(values) if len(values) >= 3 else None
