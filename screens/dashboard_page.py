"""Rows of the dashboard: GPUs, alerts, running, waiting and recently ended runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgops.cli.output import duration, width_of
from kgops.jobs.text import one_line
from screens.rows import BLANK, Column, Columns, Piece, Row, text_row
from screens.widgets.bar import memory_bar
from screens.widgets.curve_panels import sparkline
from screens.wording import metric_of, progress_of, sign_of, since, speed_of, state_of, took

if TYPE_CHECKING:
    from kgops.views.overview import Alert, EndedRun, GpuUsage, Overview, RunningRun
    from screens.feed import FeedState
    from storage.runs import Run

__all__ = ["rows"]

_MOST_ALERTS = 4
_WIDEST = 140  # columns; longer bars are hard to follow
_NO_RUNS = (
    "No runs yet. Press n to choose a job and see its plan, or use a shell:",
    "",
    "  kgops run                          demo: train on Nations, then a TracIn run",
    "  kgops run train --dataset nations  train ConvE or any PyKEEN model",
    "  kgops run exec -- python train.py  supervise any command",
    "",
    "Runs appear here at once and go on when you close this screen.",
)
_PEAK = "peak or reason"
_WIDE = 110  # columns from which metrics are shown in full
_SPARK, _WIDE_SPARK = 8, 15  # columns, two points each
_METRIC, _WIDE_METRIC = 15, 16
_GPU = 16
_NUMBER, _LONGEST_NUMBER = 12, 16  # columns of run number and workload
_LABEL = 48  # at most


def rows(state: FeedState, width: int) -> list[Row]:
    if state.wanted is None:
        return [text_row("GPUS", width, "head"), text_row("reading GPUs …", width, "dim")]
    overview = state.overview
    sections = [_gpus(state, width)]
    if state.error_text is not None:
        sections.insert(0, [text_row(state.error_text, width, "bad")])
    if overview is not None and overview.count:
        first = _first_columns(overview, width)
        sections += [_alerts(overview.alerts, width), _running(overview.running, first, width)]
        sections += [_waiting(overview.waiting, first, width), _recent(overview.recent, first, width)]
    elif state.error_text is None:
        sections.append([text_row(line, width, "text") for line in _NO_RUNS])
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


# --- GPUs ---


def _gpus(state: FeedState, width: int) -> list[Row]:
    if state.gpus is None:
        return [text_row("GPUS", width, "head"), text_row("reading GPUs …", width, "dim")]
    if state.gpu_problem is not None:
        problem = state.gpu_problem
        if problem.kind == "no-library":
            return [
                text_row("GPUS", width, "head"),
                text_row("none: runs use the CPU", width, "dim"),
            ]
        return [
            text_row("GPUS", width, "head"),
            text_row(problem.message, width, "bad"),
            text_row(f"→ {problem.hint}", width),
        ]
    if not state.gpus:
        return [text_row("GPUS", width, "head"), text_row("the driver reports no GPU", width, "dim")]
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
    return [columns.heading(), *(_gpu(gpu, columns) for gpu in state.gpus)]


def _gpu(gpu: GpuUsage, columns: Columns) -> Row:
    reading = gpu.reading
    name = (reading.name or "n/a").removeprefix("NVIDIA ").removeprefix("GeForce ")
    named = Piece(f"{reading.index} {name}")
    if reading.problem is not None:
        return Row(
            (
                Piece(f"{one_line(named.text, _GPU):<{_GPU}}  "),
                Piece(one_line(reading.problem.message), "bad"),
            )
        )
    usable = (
        None
        if reading.memory_total_mib is None
        else reading.memory_total_mib - (reading.memory_reserved_mib or 0)
    )
    bar = memory_bar(reading.memory_used_mib, gpu.reserved_mib, usable, columns.width_of("used ▏reserved"))
    return columns.row(
        (
            named,
            bar,
            Piece(_whole(reading.memory_used_mib)),
            Piece(_whole(usable), "dim"),
            Piece(_whole(reading.utilization_percent)),
            Piece(_whole(reading.temperature_c), "warn" if (reading.temperature_c or 0) >= 85 else "text"),
            Piece(_whole(reading.power_w)),
            Piece(" ".join(map(str, gpu.runs)), "accent"),
        )
    )


def _whole(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"


# --- runs ---


def _alerts(alerts: tuple[Alert, ...], width: int) -> list[Row]:
    if not alerts:
        return []
    rows = [text_row("ALERTS", width, "head")]
    for alert in alerts[:_MOST_ALERTS]:
        tone = "bad" if alert.kind in ("out of memory", "disk") else "warn"
        about = "" if alert.run is None else f"run {alert.run}  "
        rows.append(Row((Piece("! ", tone), *text_row(f"{about}{alert.text}", width - 2).pieces)))
    more = len(alerts) - _MOST_ALERTS
    return [*rows, text_row(f"  and {more} more", width, "dim")] if more > 0 else rows


def _first_columns(overview: Overview, width: int) -> tuple[int, int]:
    """Widths of number and label, equal in all sections so that columns align."""
    shown = (*(one.run for one in overview.running), *overview.waiting, *(one.run for one in overview.recent))
    who = max((width_of(_who(run)) for run in shown), default=0)
    who = min(max(who, _NUMBER), _LONGEST_NUMBER)
    label = max(14 + (width - 80) // 4, 14) + max(width - 120, 0) // 4
    return who, min(label, _LABEL) - (who - _NUMBER)


def _who(run: Run) -> str:
    return f"{run.id} {run.workload}"


def _running(running: tuple[RunningRun, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not running:
        return [text_row("RUNNING", width, "head"), text_row("nothing", width, "dim")]
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
    return [columns.heading(), *(_running_row(one, columns, spark) for one in running)]


def _metric_width(width: int) -> int:
    return _METRIC if width < _WIDE else _WIDE_METRIC


def _running_row(one: RunningRun, columns: Columns, spark: int) -> Row:
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
            Piece(speed_of(run)),
        ),
        run.id,
    )


def _waiting(waiting: tuple[Run, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not waiting:
        return []
    columns = Columns(
        (Column("WAITING", first[0]), Column("", first[1]), Column("waits for", 20, grows=True)), width
    )
    rows = [
        columns.row(
            (
                Piece(_who(run), "accent"),
                Piece(run.label),
                Piece(run.reason or "its place in the queue", "dim"),
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
            Column("RECENT", first[0]),
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
    sign = sign_of(run, with_fallback=one.steps is not None)
    return columns.row(
        (
            Piece(_who(run), "dim"),
            Piece(run.label),
            sign,
            Piece(took(run)),
            Piece(metric_of(run, columns.width_of("metric"))),
            Piece(_outcome(one, columns.width_of(_PEAK)), "text" if run.state == "succeeded" else sign.tone),
        ),
        run.id,
    )


def _outcome(one: EndedRun, width: int) -> str:
    texts = _outcome_texts(one)
    return next((text for text in texts if width_of(text) <= width), texts[-1])


def _outcome_texts(one: EndedRun) -> list[str]:
    """Texts for the outcome of a run, longest first: the widest that fits is shown."""
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
        # Older records predict tensors on top of the libraries.
        above = f"{run.peak_host_mib - one.libraries_mib:,.0f} MiB above libraries"
        return [*_beside_predicted(above, run), host]
    return [host]


def _beside_predicted(peak: str, run: Run) -> list[str]:
    return [f"{peak} (predicted {run.predicted_mib:,.0f})", peak] if run.predicted_mib else [peak]
