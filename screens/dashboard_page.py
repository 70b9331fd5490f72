"""The dashboard's sections as rows: GPUs, alerts, what runs, what waits for what, what ended recently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgops.cli.output import duration, width_of
from kgops.jobs.text import one_line
from screens.rows import BLANK, Column, Columns, Piece, Row, said
from screens.widgets.bar import memory_bar
from screens.widgets.curve import sparkline
from screens.wording import metric_of, pace_of, progress_of, sign_of, since, state_of, took

if TYPE_CHECKING:
    from kgops.views.overview import Alert, EndedRun, GpuUsage, Overview, RunningRun
    from screens.feed import Moment
    from storage.runs import Run

__all__ = ["rows"]

_MOST_ALERTS = 4
_WIDEST = 140  # of a bar that the eye still follows to its metrics
_NO_RUNS = (
    "No runs yet. Press n to choose one and see its plan, or in any shell here:",
    "",
    "  kgops run                          the demo: trains on Nations, then traces it",
    "  kgops run train --dataset nations  train ConvE, or any model of PyKEEN's",
    "  kgops run exec -- python train.py  supervise a command of your own",
    "",
    "It shows up here at once, and goes on when you close this.",
)
_PEAK = "peak, or why"
_WIDE = 110  # columns from which metrics stand in full
_SPARK, _WIDE_SPARK = 8, 15  # columns; half of the points of a curve
_METRIC, _WIDE_METRIC = 15, 16
_GPU = 16
_NUMBER, _LONGEST_NUMBER = 12, 16  # of a run, with its workload
_LABEL = 48  # at most


def rows(moment: Moment, width: int) -> list[Row]:
    if moment.of is None:
        return [said("GPUS", width, "head"), said("asking the driver …", width, "dim")]
    seen = moment.overview
    sections = [_gpus(moment, width)]
    if moment.trouble is not None:
        sections.insert(0, [said(moment.trouble, width, "bad")])
    if seen is not None and seen.count:
        first = _first_columns(seen, width)
        sections += [_alerts(seen.alerts, width), _running(seen.running, first, width)]
        sections += [_waiting(seen.waiting, first, width), _recent(seen.recent, first, width)]
    elif moment.trouble is None:
        sections.append([said(line, width, "text") for line in _NO_RUNS])
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


# --- GPUs ---


def _gpus(moment: Moment, width: int) -> list[Row]:
    if moment.gpus is None:
        return [said("GPUS", width, "head"), said("asking the driver …", width, "dim")]
    if moment.no_gpus is not None:
        problem = moment.no_gpus
        if problem.kind == "no-library":
            return [
                said("GPUS", width, "head"),
                said("none: runs use the CPUs of this machine", width, "dim"),
            ]
        return [
            said("GPUS", width, "head"),
            said(problem.message, width, "bad"),
            said(f"→ {problem.hint}", width),
        ]
    if not moment.gpus:
        return [said("GPUS", width, "head"), said("the driver finds no GPU", width, "dim")]
    width = min(width, _WIDEST)
    columns = Columns(
        (
            Column("GPUS", _GPU),
            Column("used ▏reserved", 14, grows=True),
            Column("MiB", 7, right=True),
            Column("of", 7, right=True),
            Column("util %", 6, right=True),
            Column("°C", 3, right=True),
            Column("W", 4, right=True),
            Column("runs", 8),
        ),
        width,
    )
    return [columns.heading(), *(_gpu(gpu, columns) for gpu in moment.gpus)]


def _gpu(gpu: GpuUsage, columns: Columns) -> Row:
    now = gpu.reading
    name = (now.name or "n/a").removeprefix("NVIDIA ").removeprefix("GeForce ")
    named = Piece(f"{now.index} {name}")
    if now.problem is not None:
        return Row(
            (Piece(f"{one_line(named.text, _GPU):<{_GPU}}  "), Piece(one_line(now.problem.message), "bad"))
        )
    usable = None if now.memory_total_mib is None else now.memory_total_mib - (now.memory_reserved_mib or 0)
    bar = memory_bar(now.memory_used_mib, gpu.reserved_mib, usable, columns.width_of("used ▏reserved"))
    return columns.row(
        (
            named,
            bar,
            Piece(_whole(now.memory_used_mib)),
            Piece(_whole(usable), "dim"),
            Piece(_whole(now.utilization_percent)),
            Piece(_whole(now.temperature_c), "warn" if (now.temperature_c or 0) >= 85 else "text"),
            Piece(_whole(now.power_w)),
            Piece(" ".join(map(str, gpu.runs)), "accent"),
        )
    )


def _whole(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"


# --- runs ---


def _alerts(alerts: tuple[Alert, ...], width: int) -> list[Row]:
    if not alerts:
        return []
    rows = [said("ALERTS", width, "head")]
    for alert in alerts[:_MOST_ALERTS]:
        tone = "bad" if alert.kind in ("out of memory", "disk") else "warn"
        about = "" if alert.run is None else f"run {alert.run}  "
        rows.append(Row((Piece("! ", tone), *said(f"{about}{alert.text}", width - 2).pieces)))
    more = len(alerts) - _MOST_ALERTS
    return [*rows, said(f"  and {more} more", width, "dim")] if more > 0 else rows


def _first_columns(seen: Overview, width: int) -> tuple[int, int]:
    """How wide number and label are, the same in every section, so that they stand under each other."""
    shown = (*(one.run for one in seen.running), *seen.waiting, *(one.run for one in seen.recent))
    who = max((width_of(_who(run)) for run in shown), default=0)
    who = min(max(who, _NUMBER), _LONGEST_NUMBER)
    label = max(14 + (width - 80) // 4, 14) + max(width - 120, 0) // 4
    return who, min(label, _LABEL) - (who - _NUMBER)


def _who(run: Run) -> str:
    return f"{run.id} {run.workload}"


def _running(running: tuple[RunningRun, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not running:
        return [said("RUNNING", width, "head"), said("nothing", width, "dim")]
    spark = _SPARK if width < _WIDE else _WIDE_SPARK
    columns = Columns(
        (
            Column("RUNNING", first[0]),
            Column("", first[1]),
            Column("progress", 14 if width < _WIDE else 18),
            Column("ETA", 7, right=True),
            Column("metric", _metric_width(width)),
            Column("curve", spark),
            Column("rate", 16, right=True),
        ),
        width,
    )
    return [columns.heading(), *(_going(one, columns, spark) for one in running)]


def _metric_width(width: int) -> int:
    return _METRIC if width < _WIDE else _WIDE_METRIC


def _going(one: RunningRun, columns: Columns, spark: int) -> Row:
    run = one.run
    left = "" if one.eta_s is None else duration(one.eta_s)
    return columns.row(
        (
            Piece(_who(run), "accent"),
            Piece(run.label),
            Piece(progress_of(run, columns.width_of("progress")))
            if run.done is not None
            else Piece(since(run) or state_of(run), "dim"),
            Piece(left),
            Piece(metric_of(run, columns.width_of("metric")), "warn" if one.alerts else "text"),
            Piece(sparkline(one.curve, spark), "accent"),
            Piece(pace_of(run)),
        ),
        run.id,
    )


def _waiting(waiting: tuple[Run, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not waiting:
        return []
    columns = Columns(
        (Column("WAITING", first[0]), Column("", first[1]), Column("for", 20, grows=True)), width
    )
    rows = [
        columns.row(
            (
                Piece(_who(run), "accent"),
                Piece(run.label),
                Piece(run.reason or "its turn", "dim"),
            ),
            run.id,
        )
        for run in waiting
    ]
    return [columns.heading(), *rows]


def _recent(recent: tuple[EndedRun, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not recent:
        return []
    columns = Columns(
        (
            Column("LATELY", first[0]),
            Column("", first[1]),
            Column(" ", 1),
            Column("took", 7, right=True),
            Column("metric", _metric_width(width)),
            Column(_PEAK, 19, grows=True),
        ),
        width,
    )
    return [columns.heading(), *(_ended(one, columns) for one in recent)]


def _ended(one: EndedRun, columns: Columns) -> Row:
    run = one.run
    sign = sign_of(run, stepped_down=one.steps is not None)
    return columns.row(
        (
            Piece(_who(run), "dim"),
            Piece(run.label),
            sign,
            Piece(took(run)),
            Piece(metric_of(run, columns.width_of("metric"))),
            Piece(_end(one, columns.width_of(_PEAK)), "text" if run.state == "succeeded" else sign.tone),
        ),
        run.id,
    )


def _end(one: EndedRun, width: int) -> str:
    ways = _ways_to_say(one)
    return next((text for text in ways if width_of(text) <= width), ways[-1])


def _ways_to_say(one: EndedRun) -> list[str]:
    """What came of it, the most that can be said first: the sign beside says some of it, too."""
    run = one.run
    if run.state != "succeeded":
        state = state_of(run)
        return [f"{state}: {run.reason}", run.reason] if run.reason and run.state != "cancelled" else [state]
    if one.steps is not None:
        return [one.steps, one.steps.partition(": ")[2] or one.steps]
    if run.peak_gpu_mib:
        return _beside_predicted(f"{run.peak_gpu_mib:,.0f} MiB GPU", run)
    if run.peak_host_mib is None:
        return [""]
    host = f"{run.peak_host_mib:,.0f} MiB host"
    if one.process_mib is not None:
        return _beside_predicted(f"{one.process_mib:,.0f} MiB process", run)
    if run.predicted_mib and one.libraries_mib is not None:
        # In a record of before, tensors were predicted to come on top of libraries.
        above = f"{run.peak_host_mib - one.libraries_mib:,.0f} MiB above libraries"
        return [*_beside_predicted(above, run), host]
    return [host]


def _beside_predicted(peak: str, run: Run) -> list[str]:
    return [f"{peak} (predicted {run.predicted_mib:,.0f})", peak] if run.predicted_mib else [peak]
