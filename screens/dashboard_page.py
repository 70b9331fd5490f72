"""Rows of the dashboard: GPUs, alerts, running, waiting and recently ended runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgops.jobs.on_device import CPU
from kgops.jobs.text import clock, one_line
from kgops.present.areas import small_area
from kgops.present.columns import LABEL, METRIC, NUMBER_AND_WORKLOAD, RATE, STATE, TOOK, RunTable, own
from kgops.present.formats import duration, fitted, width_of
from kgops.present.gpu_cells import host_line
from kgops.present.rows import BLANK, Piece, Row, stacked, text_row, text_rows
from kgops.present.wording import (
    alert_row,
    attempt_of,
    metric_of,
    outcome_of,
    progress_of,
    sign_of,
    since,
    state_of,
)
from screens.dashboard_gpus import chart_rows, expected_start_of, gpu_rows, process_rows
from screens.widgets.bar import filled

if TYPE_CHECKING:
    from kgops.present.gpus import ExpectedStart
    from kgops.present.overview import EndedRun, Overview, RunningRun
    from kgops.supervisor.alerts import Alert
    from screens.feed_state import FeedState
    from storage.runs import Run

_MOST_ALERTS, _FEW_ALERTS, _MOST_NOTES = 6, 3, 2
_TALL, _LEAST_RECENT = 30, 8  # lines
_NO_RUNS = "No runs yet. kgops trains models of knowledge graphs and keeps what was measured."
_STARTS = (
    ("demo", "Train on Nations", "about 30 seconds, then trace ten predictions"),
    ("tour", "Look around", "sample data in a separate home; yours stays empty"),
    ("own", "Use my own files", "choose data and see the plan before it starts"),
)
_IN_A_SHELL = (
    "kgops train --dataset nations  train ConvE or any PyKEEN model",
    "kgops exec -- python train.py  supervise any command",
)
_PEAK = "peak or reason"
_WIDE = 114  # columns from which metrics are shown in full
_SPARK, _WIDE_SPARK = 8, 10  # columns
_METRIC, _WIDE_METRIC = 15, 16
_NUMBER, _LONGEST_NUMBER = 12, 16  # columns of run number and workload
_LABEL = 48  # at most
_BESIDE_LABEL = 89  # columns that all else of a running run takes
_LABEL_AND_ATTEMPT = 20


def rows(state: FeedState, width: int, height: int, *, all_alerts: bool = False) -> list[Row]:
    """Runs that ended fill what the other sections leave of `height`; at least a few are there, to scroll to."""
    overview = state.overview
    gpus = gpu_rows(state, width)
    host = _host(state)
    if not gpus and host:
        host = [*host, text_row("no GPU: runs use the CPU", width, "dim")]
    sections = [[*gpus, *host]]
    if state.error_text is not None:
        sections.insert(0, text_rows(state.error_text, width, "bad"))
    most = _MOST_ALERTS if height >= _TALL else _FEW_ALERTS
    sections.append(_alerts(state, width, most, show_all=all_alerts))
    if overview is not None and overview.count:
        first = _first_columns(overview, width)
        sections += [_running(overview.running, first, width)]
        start = expected_start_of(state)
        sections.append(_waiting(overview.waiting, first, width, start))
        taken = sum(len(section) + 1 for section in sections if section) + 1
        recent = overview.recent[: max(height - taken, _LEAST_RECENT)]
        sections.append(_recent(recent, first, width))
        left = height - taken - len(recent) - 2
        processes = process_rows(state, width, left)
        sections += [processes, chart_rows(state, width, left - len(processes) - 1)]
    elif state.error_text is None:
        sections.append([*_welcome(width)])
    return stacked(sections)


# --- the host ---


def _host(state: FeedState) -> list[Row]:
    if state.host is None:
        return []
    has_gpus = state.gpus is None or (bool(state.gpus) and state.unusable is None)
    return [Row(tuple(host_line(state.host, None if has_gpus else CPU)))]


def _welcome(width: int) -> Iterator[Row]:
    """Each start is one click, or Enter under the cursor."""
    yield text_row("WELCOME", width, "head")
    yield from text_rows(_NO_RUNS, width)
    yield BLANK
    for name, words, what in _STARTS:
        act = f"screen.begin({name!r})"
        yield Row(
            (Piece(f"⏎ {words:<18}", "accent", act), *text_row(what, width - 20).pieces), ("start", name)
        )
    yield BLANK
    yield from (text_row(line, width, "dim") for line in ("In a shell:", *_IN_A_SHELL))


# --- runs ---


def _alerts(state: FeedState, width: int, most: int, *, show_all: bool) -> list[Row]:
    """Alerts, and notes of OOM fallbacks where alerts leave room."""
    notes = state.overview.notes if state.overview is not None else ()
    shown = state.alerts if show_all else state.alerts[:most]
    more = len(state.alerts) - most
    notes = notes[: max(most - len(shown), 0) if shown else _MOST_NOTES]
    if not shown and not notes and state.away is None:
        return []
    hint = "A acknowledges" + ("" if state.away else " the one under the cursor")
    hint = hint if shown and width >= 60 else ""
    beside = "  ".join(text for text in (state.away, hint) if text)
    rows = [Row((Piece("ALERTS", "head"), *text_row(f"  {beside}", width - 6, "dim").pieces))]
    for alert in shown:
        rows += [_alert(alert, width), *_detail(alert, width)]
    if more > 0:
        said = f"  Enter shows {most} again" if show_all else f"  and {more} more: Enter shows all"
        rows.append(text_row(said, width, "dim", key=("alerts", "more")))
    return rows + [_alert(note, width) for note in notes]


def _alert(alert: Alert, width: int) -> Row:
    about = "" if alert.run is None else f"run {alert.run.id}  "
    return alert_row(alert.kind, f"{about}{alert.text}", width, ("alert", alert.name))


def _detail(alert: Alert, width: int) -> list[Row]:
    lines = text_rows(alert.detail, width - 2) if alert.detail else []
    return [Row((Piece("  "), *line.pieces)) for line in lines]


def _first_columns(overview: Overview, width: int) -> tuple[int, int]:
    """Widths of number and label, equal in all sections so that columns align."""
    shown = (*(one.run for one in overview.running), *overview.waiting, *(one.run for one in overview.recent))
    who = max((width_of(_who(run)) for run in shown), default=0)
    who = min(max(who, _NUMBER), _LONGEST_NUMBER)
    label = width - _BESIDE_LABEL if width >= _WIDE else max(14 + (width - 80) // 4, 14)
    return who, min(label, _LABEL) - (who - _NUMBER)


def _who(run: Run) -> str:
    return f"{run.id} {run.workload}"


def _running(running: tuple[RunningRun, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not running:
        return [text_row("RUNNING", width, "head"), text_row("nothing", width, "dim")]
    spark = _SPARK if width < _WIDE else _WIDE_SPARK
    columns = RunTable(
        (
            NUMBER_AND_WORKLOAD.of(first[0], "RUNNING"),
            LABEL.of(first[1], "", grows=False),
            own("progress", "progress", 14 if width < _WIDE else 16),
            own("eta", "ETA", 7, right=True),
            METRIC.of(_metric_width(width)),
            own("curve", "curve", spark),
            RATE,
        ),
        width,
    )
    return [columns.heading(), *(_running_row(one, columns, spark) for one in running)]


def _metric_width(width: int) -> int:
    return _METRIC if width < _WIDE else _WIDE_METRIC


def _running_row(one: RunningRun, columns: RunTable, spark: int) -> Row:
    run = one.run
    room = columns.width_of("progress")
    progress: Piece | list[Piece] = filled(progress_of(run, room), run.done or 0.0, run.total or 0.0, room)
    if run.done is None:
        progress = Piece(attempt_of(run) or since(run) or state_of(run), "dim")
    cells = {
        "label": Piece(_label_and_attempt(run, columns.width_of(""))),
        "progress": progress,
        "eta": Piece("" if one.eta_s is None else duration(one.eta_s)),
        "curve": Piece(small_area(one.curve, spark), "data"),
    }
    if one.diverged:
        cells["metric_value"] = Piece(metric_of(run, columns.width_of("metric")), "warn")
    return columns.run_row(run, time.time(), run.id, **cells)


def _label_and_attempt(run: Run, width: int) -> str:
    """Where the label leaves no room for it, the attempt is said until the first report."""
    attempt = attempt_of(run)
    if not attempt or run.done is None or width < _LABEL_AND_ATTEMPT:
        return run.label
    return f"{fitted(one_line(run.label), width - len(attempt) - 3)} · {attempt}"


def _waiting(
    waiting: tuple[Run, ...], first: tuple[int, int], width: int, start: ExpectedStart | None
) -> list[Row]:
    if not waiting:
        return []
    who, label = NUMBER_AND_WORKLOAD.of(first[0], "WAITING"), LABEL.of(first[1], "", grows=False)
    columns = RunTable((who, label, own("reason", "waits for", 20, grows=True)), width)
    return [columns.heading(), *(_waiting_row(run, columns, start) for run in waiting)]


def _waiting_row(run: Run, columns: RunTable, start: ExpectedStart | None) -> Row:
    reason = Piece(_start_text(run, start) + (run.reason or "its place in the queue"), "dim")
    return columns.run_row(run, time.time(), run.id, reason=reason)


def _start_text(run: Run, start: ExpectedStart | None) -> str:
    if start is None or start.run != run.id or start.at is None:
        return ""
    return f"starts about {clock(start.at, '%H:%M')}: "


def _recent(recent: tuple[EndedRun, ...], first: tuple[int, int], width: int) -> list[Row]:
    if not recent:
        return []
    columns = RunTable(
        (
            NUMBER_AND_WORKLOAD.of(first[0], "RECENT"),
            LABEL.of(first[1], "", grows=False),
            STATE,
            TOOK,
            METRIC.of(_metric_width(width)),
            own("outcome", _PEAK, 19, grows=True),
        ),
        width,
    )
    return [columns.heading(), *(_ended(one, columns) for one in recent)]


def _ended(one: EndedRun, columns: RunTable) -> Row:
    run = one.run
    tone = "text" if run.state == "succeeded" else sign_of(run).tone
    outcome = Piece(outcome_of(one, columns.width_of(_PEAK)), tone)
    return columns.run_row(run, time.time(), run.id, outcome=outcome)
