"""All of a run but its log, as rows for a screen of some width."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kgops.cli.output import UNKNOWN, amount, duration, fitted, local_time, off_by, width_of
from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.planning.fit import fit_of_run
from kgops.views.overview import eta_s
from screens.rows import BLANK, Column, Columns, Piece, Row, said
from screens.run_options import attempt_table, option_table
from screens.widgets.bar import share_bar
from screens.widgets.curve_panels import panels
from screens.wording import metric_of, pace_of, progress_of

if TYPE_CHECKING:
    from kgops.views.run_detail import RunDetail
    from storage.reports import Event
    from storage.runs import Run

__all__ = ["rows"]

_BAR, _SHORT_BAR = 24, 16
_WIDE = 100  # columns from which there is room for the longer bar
_FILES_SHOWN = 12


def rows(known: RunDetail, width: int) -> list[Row]:
    sections = (
        _state(known, width),
        panels(known, width),
        _estimate(known, width),
        option_table(known, width),
        attempt_table(known, width),
        _metrics(known, width),
        _said_by_worker(known, width),
        _words(known, width),
        _table("JOB", known.job, width),
        _artifacts(known, width),
        _table("ENVIRONMENT", known.environment, width),
    )
    out: list[Row] = []
    for section in sections:
        if section:
            out += [BLANK, *section] if out else section
    return out


def _state(known: RunDetail, width: int) -> list[Row]:
    run = known.run
    out = []
    if run.reason:
        fit = fit_of_run(run, known.forecast)
        before = "waits for " if run.state == "queued" and fit is None else ""
        tone = "dim" if run.state in ("queued", "cancelled") else "bad"
        out.append(said(f"{before}{fit.words if fit is not None else run.reason}", width, tone))
    if run.done is not None:
        out.append(Row(tuple(_progress(run, _BAR if width >= _WIDE else _SHORT_BAR))))
    memory = [
        f"{what} peak {amount(mib, 'MiB')}"
        for what, mib in (("gpu", run.peak_gpu_mib), ("host", run.peak_host_mib))
        if mib is not None
    ]
    if known.above_start_mib is not None:
        memory[-1] += f", {amount(known.above_start_mib, 'MiB')} {_above_what(known)}"
    if run.predicted_mib is not None:
        memory.append(f"predicted {amount(run.predicted_mib, 'MiB')}{_of_what(known)}")
    facts = [run.profile and f"profile {run.profile}", _gpus(known), *memory]
    out += _joined([one_line(fact) for fact in facts if fact], width)
    return [*out, *(_origin(event, width) for event in known.imported)]


def _origin(event: Event, width: int) -> Row:
    """As far as it was told: a run's number and machine, and the file or folder that had it."""
    told = event.body
    run = f"run {told['run']} of {told.get('host') or 'an unnamed machine'}, " if told.get("run") else ""
    return said(
        f"imported {local_time(event.at)}: {run}from {told.get('source') or UNKNOWN}", width, "accent"
    )


def _gpus(known: RunDetail) -> str | None:
    """As people call them, as far as the run's environment names them: a UUID takes half a line."""
    if known.run.gpu is None:
        return None
    listed = known.environment.get("gpus") or []
    names = {str(gpu.get("uuid")): f"{index} {gpu.get('name')}" for index, gpu in enumerate(listed)}
    return " and ".join(f"GPU {names.get(uuid, uuid)}" for uuid in known.run.gpu.split(","))


def _joined(facts: list[str], width: int) -> list[Row]:
    """With a point between, on as many lines as it takes."""
    lines: list[str] = []
    for fact in facts:
        if lines and width_of(f"{lines[-1]} · {fact}") <= width:
            lines[-1] += f" · {fact}"
        else:
            lines.append(fact)
    return [said(line, width, "dim") for line in lines]


def _above_what(known: RunDetail) -> str:
    """In a record of before, tensors were predicted to come on top of libraries."""
    return "above libraries" if known.process is None else "above its start"


def _of_what(known: RunDetail) -> str:
    """And how far off it was, where that has been measured."""
    if known.process is not None:
        off = _off(known.above_start_mib, known.predicted_above_start_mib)
        return f" of the process ({off} measured above its start)" if off else " of the process"
    if known.forecast is None:
        return ""
    on_gpu, predicted = known.forecast["on_gpu"], known.run.predicted_mib
    off = _off(known.run.peak_gpu_mib if on_gpu else known.above_start_mib, predicted)
    what = " on the GPU" if on_gpu else f" {_above_what(known)}"
    return f"{what} ({off} measured)" if off else what


def _off(measured: float | None, predicted: float | None) -> str | None:
    return off_by(measured, predicted) if measured and predicted else None


def _estimate(known: RunDetail, width: int) -> list[Row]:
    """The parts of the prediction at its peak, largest first."""
    estimate = (known.forecast or {}).get("estimate") or {}
    parts = sorted((estimate.get("parts_mib") or {}).items(), key=lambda part: -part[1])
    largest = max((mib for _, mib in parts), default=0)
    if not largest:
        return []
    columns = Columns(
        (
            Column("ESTIMATE", 14),
            Column("predicted", 9, right=True),
            Column("measured", 9, right=True),
            Column("MiB", 20, grows=True),
        ),
        width,
    )
    measured = {c.name.removesuffix("_mib"): c.last for c in known.curves if c.name.endswith("_mib")}
    rows = [columns.heading()]
    for name, mib in parts:
        drawn = "▇" * round(share_between(mib, 0.0, largest) * _BAR)
        found = measured.get(name)
        took = "" if found is None else f"{found:,.1f}"
        rows.append(columns.row((Piece(name), Piece(f"{mib:,.1f}"), Piece(took), Piece(drawn, "accent"))))
    when = one_line(str(estimate.get("phase") or ""))
    return [*rows, said(f"predicted for its peak, in {when}", width, "dim")] if when else rows


def _progress(run: Run, bar: int) -> Iterator[Piece]:
    if run.total:
        yield from share_bar(run.done or 0.0, run.total, bar)
        yield Piece("  ")
    yield Piece(progress_of(run))
    if pace_of(run):
        yield Piece("  ")
        yield Piece(pace_of(run))
    left = eta_s(run)
    if left is not None and not run.ended:
        yield Piece("  ETA ", "dim")
        yield Piece(duration(left))
    if run.metric is not None:
        yield Piece("  ")
        yield Piece(metric_of(run), "strong")


def _metrics(known: RunDetail, width: int) -> list[Row]:
    """In as many columns as there is room for, read downwards."""
    if not known.metrics:
        return []
    name_width = min(max(len(name) for name, _ in known.metrics), 28)
    cell = name_width + 2 + 10
    across = max((width + 4) // (cell + 4), 1)
    down = -(-len(known.metrics) // across)
    out = [said("METRICS", width, "head")]
    for y in range(down):
        pieces: list[Piece] = []
        for name, value in known.metrics[y::down]:
            if pieces:
                pieces.append(Piece("    "))
            pieces.append(Piece(f"{fitted(one_line(name), name_width):<{name_width}}  ", "dim"))
            pieces.append(Piece(f"{amount(value):>10}"))
        out.append(Row(tuple(pieces)))
    return out


def _said_by_worker(known: RunDetail, width: int) -> list[Row]:
    """Each to its end."""
    if not known.messages:
        return []
    out = [said("THE WORKER SAID", width, "head")]
    for at, text in known.messages:
        when = f"{local_time(at)}  "
        first, *more = textwrap.wrap(one_line(text), max(width - len(when), 20)) or [""]
        out.append(Row((Piece(when, "dim"), *said(first, width - len(when)).pieces)))
        out += [said(f"{'':{len(when)}}{line}", width) for line in more]
    return out


def _words(known: RunDetail, width: int) -> list[Row]:
    out = []
    if known.tags:
        out += [said("TAGS", width, "head"), said(" ".join(known.tags), width, "accent")]
    for note in known.notes:
        out += [BLANK] if out else []
        out.append(said(f"NOTE of {local_time(note.at)}", width, "head"))
        out += [said(line, width) for line in note.text.split("\n")]
    return out


def _table(title: str, table: Mapping[str, Any], width: int) -> list[Row]:
    entries = list(_flat(table))
    if not entries:
        return []
    names = min(max(len(name) for name, _ in entries), 30)
    out = [said(title, width, "head")]
    for name, value in entries:
        shown = Piece(f"{fitted(one_line(name), names):<{names}}  ", "dim")
        out.append(Row((shown, *said(value, width - names - 2).pieces)))
    return out


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """What was given, without the many settings that were left alone."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
            for index, one in enumerate(value):
                yield f"{before}{name}.{index}", ", ".join(f"{key} {word}" for key, word in one.items())
        elif value is not None and value != []:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)


def _artifacts(known: RunDetail, width: int) -> list[Row]:
    columns = Columns(
        (Column("ARTIFACT", 14), Column("MiB", 8, right=True), Column("file", 20, grows=True)), width
    )
    newest = known.artifacts[-_FILES_SHOWN:]
    listed = [
        columns.row(
            (
                Piece(one.kind, "dim"),
                Piece("" if one.bytes is None else f"{one.bytes / 2**20:,.2f}"),
                Piece(one.path),
            )
        )
        for one in newest
    ]
    more = len(known.artifacts) - len(newest)
    before = [said(f"… and {more} before these", width, "dim")] if more else []
    head = [columns.heading()] if listed else [said("ARTIFACTS", width, "head")]
    return [*head, *before, *listed, said(f"in {known.path}", width, "dim")]
