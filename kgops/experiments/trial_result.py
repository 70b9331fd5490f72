"""Results of trials, and the paired values of two variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kgops.jobs import events
from kgops.jobs.numbers import median, quartiles, quotient
from kgops.workloads.registry import WORKLOADS
from storage import reports, series
from storage.benches import Pair
from storage.database import Connection
from storage.runs import Run

SECONDS = "bench_s"  # metric with which a command reports its own time
PEAK = "bench_peak_mib"  # metric with which a command reports its own memory
WHOLE_RUN = "the whole run"
PEAK_OF = "live bytes of torch's CPU allocator, at their peak"


def read_run(conn: Connection, run: Run) -> dict[str, Any]:
    """JSON data as a pair stores it. `trouble` is the reason why a run cannot be compared."""
    metrics = {**_command_metrics(conn, run.id), **reports.metrics(conn, run.id)}
    options = {
        option.name: {"requested": option.requested, "applied": option.applied, "why": option.reason}
        for option in reports.options(conn, run.id)
    }
    took = run.took_s
    seconds, of = _seconds(conn, run, metrics, took)
    mib, memory_of = _memory(conn, run, metrics)
    return {
        "state": run.state,
        "trouble": _trouble(run),
        "seconds": seconds,
        "seconds_of": of,
        "took_s": took,
        "memory_mib": mib,
        "memory_of": memory_of,
        "metrics": {**_last_points(conn, run.id), **metrics},
        "options": options,
    }


def _command_metrics(conn: Connection, run: int) -> dict[str, float]:
    """Metrics in the result events of an exec run, which the database does not store as metrics."""
    metrics: dict[str, float] = {}
    for event in reports.events(conn, run, kinds=(events.RESULT,)):
        values = event.body.get("metrics") or {}
        metrics |= {name: float(value) for name, value in values.items() if events.is_metric(value)}
    return metrics


def _trouble(run: Run) -> str | None:
    if run.state != "succeeded":
        return run.reason or run.state.replace("_", " ")
    if run.attempts > 1:
        return f"needed {run.attempts} attempts: it did not end with the requested options"
    return None


def _seconds(
    conn: Connection, run: Run, metrics: dict[str, float], took: float | None
) -> tuple[float | None, str]:
    """Seconds of the work itself if the run reports it, without Python's start."""
    if SECONDS in metrics:
        return metrics[SECONDS], "as the command measured itself"
    if (
        run.workload in WORKLOADS and WORKLOADS[run.workload].stages is not None
    ):  # what is varied may concern any of its stages
        return took, WHOLE_RUN
    epochs = [p.value for p in series.points(conn, run.id, "epoch_seconds") if p.value is not None]
    if len(epochs) > 1:
        return median(epochs[1:]), "an epoch"  # the first warms up
    if epochs:
        return epochs[0], "the first epoch, which warms up"
    if "tracin_s" in metrics:
        return metrics["tracin_s"], "a TracIn run"
    return took, WHOLE_RUN


def _memory(conn: Connection, run: Run, metrics: dict[str, float]) -> tuple[float | None, str]:
    if run.peak_gpu_mib is not None:
        return run.peak_gpu_mib, "GPU memory of the process tree, at its peak, by NVML"
    if PEAK in metrics:
        return metrics[PEAK], PEAK_OF
    libraries = [p.value for p in series.points(conn, run.id, events.LIBRARIES) if p.value is not None]
    if run.peak_host_mib is not None and libraries:
        return run.peak_host_mib - libraries[-1], "resident set at its peak, above loaded libraries"
    return run.peak_host_mib, "resident set at its peak"


def _last_points(conn: Connection, run: int) -> dict[str, float]:
    """Last value of each quality curve."""
    wanted = ("loss", "valid_mrr", "test_mrr")
    return {
        one.name: one.last_value
        for one in series.of_run(conn, run)
        if one.name in wanted and one.last_value is not None
    }


Quantity = Literal["speed", "memory"]
# Limits of a ratio, whose inverses and logarithms are finite.
_LEAST, _MOST = 1e-300, 1e300


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of ratios; above 1 the variant is faster or needs less memory."""

    median: float
    low: float
    high: float
    n: int


def spread_of(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    return Spread(median(values), *quartiles(values), len(values))


def alike(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with times of one thing: of whole runs, where some runs measured another part than others."""
    trials = [one for pair in pairs for one in (pair.baseline, pair.measured) if not one.get("trouble")]
    if len({one["seconds_of"] for one in trials}) <= 1:
        return list(pairs)
    return [
        replace(pair, baseline=_as_a_whole(pair.baseline), measured=_as_a_whole(pair.measured))
        for pair in pairs
    ]


def _as_a_whole(trial: dict[str, Any]) -> dict[str, Any]:
    return {**trial, "seconds": trial.get("took_s"), "seconds_of": WHOLE_RUN}


def ratios(pairs: Iterable[Pair], quantity: Quantity) -> list[float]:
    """Baseline / variant for each pair in which both have a comparable value."""
    values = []
    for pair in pairs:
        before, after = _metrics(pair, quantity)
        if before is not None and after is not None and before > 0 and after > 0:
            values.append(min(max(before / after, _LEAST), _MOST))
    return values


def metric_ratios(pairs: Iterable[Pair], name: str) -> list[float]:
    """Baseline / variant of a metric that runs report."""
    both = [
        ((pair.baseline.get("metrics") or {}).get(name), (pair.measured.get("metrics") or {}).get(name))
        for pair in pairs
    ]
    return [ratio for before, after in both if before and after and (ratio := quotient(before, after))]


def troubles(pairs: Iterable[Pair]) -> list[str]:
    """Distinct reasons why pairs have no ratio."""
    reasons = [
        f"{who}{one['trouble']}"
        for pair in pairs
        for who, one in (("the baseline: ", pair.baseline), ("", pair.measured))
        if one.get("trouble")
    ]
    return list(dict.fromkeys(reasons))


def _metrics(pair: Pair, quantity: Quantity) -> tuple[float | None, float | None]:
    a, b = pair.baseline, pair.measured
    if a.get("trouble") or b.get("trouble"):
        return None, None
    if quantity == "memory":
        return (a["memory_mib"], b["memory_mib"]) if a["memory_of"] == b["memory_of"] else (None, None)
    if a["seconds_of"] == b["seconds_of"]:
        return a["seconds"], b["seconds"]
    return a["took_s"], b["took_s"]
