"""Rows of the run screen, without the log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.planning.fit import fit_of_run
from kgops.present.formats import (
    UNKNOWN,
    amount,
    duration,
    fitted,
    local_time,
    size_text,
    value_text,
    width_of,
)
from kgops.present.memory_parts import memory_parts
from kgops.present.overview import eta_s
from kgops.present.quality import HEADS, NUMBERS
from kgops.present.rows import BLANK, Column, Columns, Piece, Row, stacked, text_row
from kgops.present.wording import metric_of, progress_of, speed_of
from screens.widgets.bar import share_bar
from screens.widgets.curve_panels import panels

if TYPE_CHECKING:
    from kgops.present.run_detail import OptionRow, RunDetail
    from storage.attempts import Attempt
    from storage.reports import Artifact, Event
    from storage.runs import Run

_BAR, _SHORT_BAR = 24, 16
_WIDE = 100  # columns from which the long bar fits and values of options are shown in full
_FILES_SHOWN = 12
_WHY = "why"
_VALUE, _SHORT_VALUE = 15, 12
_WIDEST = 150  # columns; wider tables are hard to follow


def rows(detail: RunDetail, width: int, height: int, marked: str | None = None) -> list[Row]:
    """`marked`: the curve that Enter zooms."""
    sections = (
        _state(detail, width),
        panels(detail, width, height, marked=marked),
        _estimate(detail, width),
        _option_table(detail, width),
        _attempt_table(detail, width),
        _metrics(detail, width),
        _quality(detail, width),
        _worker_messages(detail, width),
        _tags_and_notes(detail, width),
        _table("JOB", detail.job, width),
        _artifacts(detail, width),
        _table("ENVIRONMENT", detail.environment, width),
    )
    return stacked(sections)


def _state(detail: RunDetail, width: int) -> list[Row]:
    run = detail.run
    out = []
    if run.reason:
        fit = fit_of_run(run, detail.forecast)
        before = "waits for " if run.state == "queued" and fit is None else ""
        tone = "dim" if run.state in ("queued", "cancelled") else "bad"
        out.append(text_row(f"{before}{fit.words if fit is not None else run.reason}", width, tone))
    if run.done is not None:
        out.append(Row(tuple(_progress(run, _BAR if width >= _WIDE else _SHORT_BAR))))
    memory = [
        f"{what} peak {amount(mib, 'MiB')}"
        for what, mib in (("GPU", run.peak_gpu_mib), ("host", run.peak_host_mib))
        if mib is not None
    ]
    if detail.above_start_mib is not None:
        memory[-1] += f", {amount(detail.above_start_mib, 'MiB')} {_reference_name(detail)}"
    if run.predicted_mib is not None:
        memory.append(f"predicted {amount(run.predicted_mib, 'MiB')}{_prediction_error(detail)}")
    facts = [run.profile and f"profile {run.profile}", _gpus(detail), *memory]
    out += _joined([one_line(fact) for fact in facts if fact], width)
    return [*out, *(_origin(event, width) for event in detail.imported)]


def _origin(event: Event, width: int) -> Row:
    """Origin of an imported run: number, machine, and file or folder, as far as known."""
    body = event.body
    run = f"run {body['run']} of {body.get('host') or 'an unnamed machine'}, " if body.get("run") else ""
    return text_row(
        f"imported {local_time(event.at)}: {run}from {body.get('source') or UNKNOWN}", width, "accent"
    )


def _gpus(detail: RunDetail) -> str | None:
    """GPU names from the run's environment, else UUIDs."""
    if detail.run.gpu is None:
        return None
    listed = detail.environment.get("gpus") or []
    names = {str(gpu.get("uuid")): f"{index} {gpu.get('name')}" for index, gpu in enumerate(listed)}
    return " and ".join(f"GPU {names.get(uuid, uuid)}" for uuid in detail.run.gpu.split(","))


def _joined(facts: list[str], width: int) -> list[Row]:
    """Facts joined by `·`, on as many lines as needed."""
    lines: list[str] = []
    for fact in facts:
        if lines and width_of(f"{lines[-1]} · {fact}") <= width:
            lines[-1] += f" · {fact}"
        else:
            lines.append(fact)
    return [text_row(line, width, "dim") for line in lines]


def _reference_name(detail: RunDetail) -> str:
    """Older records predict tensors on top of the libraries."""
    return "above libraries" if detail.process is None else "above its start"


def _prediction_error(detail: RunDetail) -> str:
    """What the prediction covers, and its error if measured."""
    off = detail.prediction_error
    if detail.process is not None:
        return f" of the process ({off} measured above its start)" if off else " of the process"
    if detail.forecast is None:
        return ""
    what = " on the GPU" if detail.forecast["on_gpu"] else f" {_reference_name(detail)}"
    return f"{what} ({off} measured)" if off else what


def _estimate(detail: RunDetail, width: int) -> list[Row]:
    """Parts of the memory estimate at its peak, largest first."""
    estimate = (detail.forecast or {}).get("estimate") or {}
    parts = memory_parts(detail)
    largest = max((one.predicted_mib for one in parts), default=0)
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
    rows = [columns.heading()]
    for name, mib, measured_mib in parts:
        drawn = "▇" * round(share_between(mib, 0.0, largest) * _BAR)
        took = "" if measured_mib is None else f"{measured_mib:,.1f}"
        rows.append(columns.row((Piece(name), Piece(f"{mib:,.1f}"), Piece(took), Piece(drawn, "accent"))))
    when = one_line(str(estimate.get("phase") or ""))
    return [*rows, text_row(f"predicted peak: in {when}", width, "dim")] if when else rows


def _progress(run: Run, bar: int) -> Iterator[Piece]:
    if run.total and not run.ended:  # of its last phase, which may be a validation
        yield from share_bar(run.done or 0.0, run.total, bar)
        yield Piece("  ")
    yield Piece(progress_of(run))
    if speed_of(run):
        yield Piece("  ")
        yield Piece(speed_of(run))
    left = eta_s(run)
    if left is not None and not run.ended:
        yield Piece("  ETA ", "dim")
        yield Piece(duration(left))
    if run.metric is not None:
        yield Piece("  ")
        yield Piece(metric_of(run), "strong")


def _metrics(detail: RunDetail, width: int) -> list[Row]:
    """Metrics in as many columns as fit, read downwards."""
    if not detail.metrics:
        return []
    name_width = min(max(len(name) for name, _ in detail.metrics), 28)
    cell = name_width + 2 + 10
    across = max((width + 4) // (cell + 4), 1)
    down = -(-len(detail.metrics) // across)
    out = [text_row("METRICS", width, "head")]
    for y in range(down):
        pieces: list[Piece] = []
        for name, value in detail.metrics[y::down]:
            if pieces:
                pieces.append(Piece("    "))
            pieces.append(Piece(f"{fitted(one_line(name), name_width):<{name_width}}  ", "dim"))
            pieces.append(Piece(f"{amount(value):>10}"))
        out.append(Row(tuple(pieces)))
    return [*out, *_left_out(detail, detail.metrics_left_out, "metrics", width)]


def _left_out(detail: RunDetail, count: int, what: str, width: int) -> list[Row]:
    more = f"… and {count:,} more {what}: kgops show {detail.run.id} --json"
    return [text_row(more, width, "dim")] if count else []


def _quality(detail: RunDetail, width: int) -> list[Row]:
    """By direction, degree of the answer and relation."""
    if not detail.quality:
        return []
    longest = max(width_of(row[1]) for row in detail.quality)
    widths = (9, min(longest, 30), 7, 6, 13, 6, 7)
    columns = Columns(
        [
            Column(name if i else "QUALITY", width, right=i in NUMBERS)
            for i, (name, width) in enumerate(zip(map(str.lower, HEADS), widths, strict=True))
        ],
        width,
    )
    return [columns.heading(), *(columns.row([Piece(cell) for cell in row]) for row in detail.quality)]


def _worker_messages(detail: RunDetail, width: int) -> list[Row]:
    """Messages of the worker, wrapped."""
    if not detail.messages:
        return []
    out = [text_row("WORKER MESSAGES", width, "head")]
    for at, text in detail.messages:
        when = f"{local_time(at)}  "
        first, *more = textwrap.wrap(one_line(text), max(width - len(when), 20)) or [""]
        out.append(Row((Piece(when, "dim"), *text_row(first, width - len(when)).pieces)))
        out += [text_row(f"{'':{len(when)}}{line}", width) for line in more]
    return out


def _tags_and_notes(detail: RunDetail, width: int) -> list[Row]:
    out = []
    if detail.tags:
        out += [text_row("TAGS", width, "head"), text_row(" ".join(detail.tags), width, "accent")]
    for note in detail.notes:
        out += [BLANK] if out else []
        out.append(text_row(f"NOTE of {local_time(note.at)}", width, "head"))
        out += [text_row(line, width) for line in note.text.split("\n")]
    return out


def _table(title: str, table: Mapping[str, Any], width: int) -> list[Row]:
    entries = list(_flat(table))
    if not entries:
        return []
    names = min(max(len(name) for name, _ in entries), 30)
    out = [text_row(title, width, "head")]
    for name, value in entries:
        shown = Piece(f"{fitted(one_line(name), names):<{names}}  ", "dim")
        out.append(Row((shown, *text_row(value, width - names - 2).pieces)))
    return out


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Settings with a value, nested names joined by dots."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
            for index, one in enumerate(value):
                yield f"{before}{name}.{index}", ", ".join(f"{key} {word}" for key, word in one.items())
        elif value is not None and value != []:
            yield f"{before}{name}", value_text(value)


def _artifacts(detail: RunDetail, width: int) -> list[Row]:
    """Models first; a digest goes with its file."""
    columns = Columns(
        (Column("ARTIFACT", 14), Column("size", 11, right=True), Column("file", 20, grows=True)), width
    )
    files = sorted((one for one in detail.artifacts if one.kind != "digest"), key=_is_no_model)
    listed = [
        columns.row(
            (
                Piece(one.kind, "dim"),
                Piece("" if one.bytes is None else size_text(one.bytes)),
                Piece(one.path),
            )
        )
        for one in files[:_FILES_SHOWN]
    ]
    more = len(files) - len(listed)
    after = [text_row(f"… and {more} more: kgops show {detail.run.id}", width, "dim")] if more else []
    head = [columns.heading()] if listed else [text_row("ARTIFACTS", width, "head")]
    return [*head, *listed, *after, text_row(f"in {detail.path}", width, "dim")]


def _is_no_model(one: Artifact) -> bool:
    return one.kind not in ("best_model", "model")


def _option_table(detail: RunDetail, width: int) -> list[Row]:
    """Empty for runs without options, as of `exec`."""
    if not detail.options:
        return []
    values = _VALUE if width >= _WIDE else _SHORT_VALUE
    columns = Columns(
        (
            Column("OPTION", 22),
            Column("requested", values),
            Column("applied", values),
            Column(_WHY, 20, grows=True),
            Column("by", 14),
            Column("effect", 15),
        ),
        min(width, _WIDEST),
    )
    return [columns.heading(), *(row for option in detail.options for row in _option(option, columns))]


def _option(option: OptionRow, columns: Columns) -> list[Row]:
    """If the applied value differs from the requested one, the reason is shown in full."""
    before = (
        Piece(option.name),
        Piece(option.requested or UNKNOWN),
        Piece(option.applied or UNKNOWN, "warn" if option.is_changed else "text"),
    )
    after = Piece(option.by, "dim"), Piece(option.effect, "dim")
    if option.is_changed:
        return _wrapped_reason(option.why, columns, before, after)
    return [columns.row((*before, Piece(option.why, "dim"), *after))]


def _wrapped_reason(
    why: str, columns: Columns, before: Sequence[Piece], after: Sequence[Piece] = ()
) -> list[Row]:
    """A row with its reason, wrapped onto further lines."""
    room = columns.width_of(_WHY)
    first, *more = (textwrap.wrap(one_line(why), room) if room else []) or [""]
    indent = [Piece("")] * len(before)
    below = (columns.row((*indent, Piece(line))) for line in more)
    return [columns.row((*before, Piece(first), *after)), *below]


def _attempt_table(detail: RunDetail, width: int) -> list[Row]:
    """Empty for a single attempt, which the title covers."""
    if len(detail.attempts) < 2 and not any(attempt.adoptions for attempt in detail.attempts):
        return []
    columns = Columns(
        (
            Column("ATTEMPT", 7, right=True),
            Column("outcome", 14),
            Column("took", 8, right=True),
            Column("host MiB", 8, right=True),
            Column(_WHY, 24, grows=True),
        ),
        width,
    )
    after = {step.attempt: step.body for step in detail.steps}
    rows = (
        row for attempt in detail.attempts for row in _attempt(attempt, after.get(attempt.number), columns)
    )
    return [columns.heading(), *rows]


def _attempt(attempt: Attempt, step: Mapping[str, Any] | None, columns: Columns) -> list[Row]:
    outcome = (attempt.outcome or "running").replace("_", " ")
    bad = attempt.outcome not in (None, "succeeded", "cancelled")
    parts = [attempt.reason, _changed_settings(step)]
    if attempt.adoptions:
        parts.append(f"its supervisor was replaced {attempt.adoptions}×")
    before = (
        Piece(str(attempt.number)),
        Piece(outcome, "bad" if bad else "text"),
        Piece(duration(attempt.ended_at - attempt.started_at) if attempt.ended_at else ""),
        Piece("" if attempt.peak_host_mib is None else f"{attempt.peak_host_mib:,.0f}"),
    )
    return _wrapped_reason("; ".join(part for part in parts if part), columns, before)


def _changed_settings(step: Mapping[str, Any] | None) -> str | None:
    fallback = (step or {}).get("fallback")
    if isinstance(fallback, dict):
        from kgops.planning.oom_fallbacks import fallback_line  # imports all rules; few runs need them

        return f"→ {fallback_line(fallback)}"
    settings = (step or {}).get("settings")
    if not isinstance(settings, dict) or not settings:
        return None
    return "→ " + ", ".join(f"{name}={value}" for name, value in settings.items())
