"""A run as named facts and titled tables: `kgops show` prints them, the run screen draws them, its report folds them.

A new field of a run is a fact here, or a column of one of the tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kgops.jobs.events import LIBRARIES, is_metric
from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.planning.fit import fit_of_run
from kgops.present.formats import (
    UNKNOWN,
    amount,
    duration,
    local_time,
    off_by,
    reported,
    size_text,
    value_text,
    width_of,
)
from kgops.present.quality import FILTERS, HEADS, NUMBERS
from kgops.present.rows import Column, Fact, Line, Piece, Section, section
from kgops.present.run_detail import RunDetail
from kgops.present.wording import MOST_SHOWN, progress_of, sign_of
from storage.attempts import Attempt
from storage.reports import Event

_DISK = "disk_mib"  # metric of what a run wrote
_BAR = 24
_WHOLE = 10  # MiB, from which fractions are not shown
_START = "start"  # of a worker process on a CPU: before it read data
_MODELS = ("best_model", "model")

When = Callable[[float | None], str]


# --- facts ---


def state(detail: RunDetail) -> Fact:
    """The state, and why; a waiting run says what it waits for."""
    run, why = detail.run, reason(detail)
    tone = sign_of(run).tone
    said = run.state.replace("_", " ") + (f": {one_line(why)}" if why else "")
    return Fact("state", said, "text" if tone == "accent" else tone)


def reason(detail: RunDetail) -> str:
    """Why the run is in its state; empty if nothing is to be said."""
    run, fit = detail.run, fit_of_run(detail.run, detail.forecast)
    if fit is not None:
        return fit.words
    return f"waits for {run.reason}" if run.reason and run.state == "queued" else run.reason or ""


def times(detail: RunDetail, when: When = local_time) -> list[Fact]:
    run = detail.run
    return [
        Fact("submitted", when(run.submitted_at)),
        Fact("took", duration(run.took_until(time.time()))),
        Fact("exit code", UNKNOWN if run.exit_code is None else str(run.exit_code)),
    ]


def facts(detail: RunDetail, when: When = local_time) -> list[Fact]:
    """Where it ran, and what it took and read; nothing about what is unknown."""
    run = detail.run
    known = (
        ("profile", run.profile),
        ("GPU", _gpus(detail)),
        ("device", _device(detail)),
        ("GPU peak", run.peak_gpu_mib and amount(run.peak_gpu_mib, "MiB")),
        ("host peak", run.peak_host_mib and amount(run.peak_host_mib, "MiB")),
        ("predicted", _predicted(detail)),
        ("disk", _disk(detail)),
        ("data", detail.data),
    )
    named = [Fact(name, one_line(text, 4000)) for name, text in known if text]
    tags = [Fact("tags", one_line(" ".join(detail.tags)), "accent")] if detail.tags else []
    return [*named, *tags, *(_origin(event, when) for event in detail.imported)]


def memory_facts(detail: RunDetail) -> list[Fact]:
    return [one for one in facts(detail) if one.name in ("GPU peak", "host peak", "predicted")]


def progress(detail: RunDetail) -> Fact | None:
    return Fact("progress", progress_of(detail.run)) if detail.run.done is not None else None


def _gpus(detail: RunDetail) -> str:
    """GPU names from the run's environment, else UUIDs."""
    if detail.run.gpu is None:
        return ""
    listed = detail.environment.get("gpus") or []
    titles = {str(gpu.get("uuid")): f"{index} {gpu.get('name')}" for index, gpu in enumerate(listed)}
    return " and ".join(f"GPU {titles.get(uuid, uuid)}" for uuid in detail.run.gpu.split(",")).removeprefix(
        "GPU "
    )


def _device(detail: RunDetail) -> str | None:
    """What the newest worker really used, where its GPUs do not say it."""
    device = detail.device
    return None if device is None or (detail.run.gpu and device.startswith("cuda")) else device


def _predicted(detail: RunDetail) -> str:
    """The predicted memory, what it covers, and its error if measured."""
    run = detail.run
    predicted = amount(run.predicted_mib, "MiB")
    if detail.process is not None and run.predicted_mib is not None:
        off = detail.prediction_error
        error = f" ({amount(detail.process_mib, 'MiB')} measured; above its start {off})" if off else ""
        return f"{predicted} of the process{error}"
    if run.predicted_mib is None:
        return ""
    if detail.forecast is None:
        return predicted
    off = detail.prediction_error
    return f"{predicted} on the GPU" + (f" ({off} measured)" if off else "")


def _disk(detail: RunDetail) -> str:
    """`5,812 MiB · predicted 5,790 MiB (+0.4% measured)`; empty if neither is known."""
    estimate, written = detail.disk, dict(detail.metrics).get(_DISK)
    if estimate is None:
        return "" if written is None else amount(written, "MiB")
    most = "at most " if estimate["at_most"] else ""
    off = off_by(written, estimate["total_mib"]) if written and not most else None
    predicted = f"predicted {most}{amount(estimate['total_mib'], 'MiB')}"
    return f"{amount(written, 'MiB')} · {predicted}" + (f" ({off} measured)" if off else "")


def _origin(event: Event, when: When) -> Fact:
    """Origin of an imported run: number, machine, and file or folder, as far as known."""
    body = event.body
    run = f"run {body['run']} of {body.get('host') or 'an unnamed machine'}, " if body.get("run") else ""
    return Fact(
        "imported", one_line(f"{when(event.at)}: {run}from {body.get('source') or UNKNOWN}"), "accent"
    )


# --- memory ---


def _mib_text(mib: float | None) -> str:
    return "" if mib is None else f"{mib:,.0f}" if mib >= _WHOLE else f"{mib:,.1f}"


def memory(detail: RunDetail) -> Section:
    """The estimate by part at its peak, largest first, with a bar of each."""
    estimate = (detail.forecast or {}).get("estimate")
    known: Mapping[str, Any] = estimate if isinstance(estimate, dict) else {}
    parts = known.get("parts_mib")
    sizes = {name: mib for name, mib in parts.items() if is_metric(mib)} if isinstance(parts, dict) else {}
    measured = {one.name.removesuffix("_mib"): one.last for one in detail.curves if one.name.endswith("_mib")}
    if _START in sizes:
        # The worker reports what its libraries took before it read data; what they grow by later is not measured.
        measured[_START] = measured.pop(LIBRARIES.removesuffix("_mib"), None)
    largest = max(sizes.values(), default=0)
    columns = (
        Column("ESTIMATE", 14),
        Column("predicted", 9, right=True),
        Column("measured", 9, right=True),
        Column("MiB", 20, grows=True),
    )
    rows = []
    for name, mib in sorted(sizes.items(), key=lambda part: -part[1]) if largest else ():
        reached, bar = measured.get(name), "▇" * round(share_between(mib, 0.0, largest) * _BAR)
        rows.append((name, _mib_text(mib), _mib_text(reached), Piece(bar, "data")))
    phase = known.get("phase")
    below = [f"predicted peak: in {one_line(phase)}"] if isinstance(phase, str) and phase else []
    return section(columns, rows, below)


# --- what was asked and what happened ---


def options(detail: RunDetail, width: int = 120) -> Section:
    """Requested and applied; where they differ, why stands in full."""
    value = 15 if width >= 100 else 12
    columns = (
        Column("OPTION", 22),
        Column("requested", value),
        Column("applied", value),
        Column("effect", 15),
        Column("by", 14),
        Column("why", 20, grows=True),
    )
    lines = tuple(
        Line(
            (
                Piece(one.name),
                Piece(one.requested or UNKNOWN),
                Piece(one.applied or UNKNOWN, "warn" if one.is_changed else "text"),
                Piece(one.effect, "dim"),
                Piece(one.by, "dim"),
                Piece(one.why, "text" if one.is_changed else "dim"),
            ),
            one.is_changed,
        )
        for one in detail.options
    )
    return Section(columns, lines)


def attempts(detail: RunDetail) -> Section:
    """Each attempt, what changed after it, and the OOM fallbacks that the job did not allow."""
    columns = (
        Column("ATTEMPT", 7, right=True),
        Column("outcome", 14),
        Column("took", 8, right=True),
        Column("host MiB", 8, right=True),
        Column("GPU MiB", 8, right=True),
        Column("settings", 16),
        Column("why", 24, grows=True),
    )
    after = {step.attempt: step.body for step in detail.steps}
    lines = tuple(_attempt(one, after.get(one.number)) for one in detail.attempts)
    below: list[str] = []
    if detail.skipped and any(one.outcome == "out_of_memory" for one in detail.attempts):
        from kgops.planning.oom_fallbacks import skipped_lines  # imports all rules; few runs need them

        below = [f"not tried: {one}" for one in skipped_lines(detail.skipped)]
    return Section(columns, lines, tuple(below))


def has_retries(detail: RunDetail) -> bool:
    """Whether the attempts say more than the run itself."""
    return len(detail.attempts) > 1 or any(one.adoptions for one in detail.attempts)


def _attempt(one: Attempt, step: Mapping[str, Any] | None) -> Line:
    is_bad = one.outcome not in (None, "succeeded", "cancelled")
    replaced = f"its supervisor was replaced {one.adoptions}×" if one.adoptions else None
    why = "; ".join(part for part in (one.reason, _changed_settings(step), replaced) if part)
    cells = (
        Piece(str(one.number)),
        Piece((one.outcome or "running").replace("_", " "), "bad" if is_bad else "text"),
        Piece(duration((one.ended_at or time.time()) - one.started_at)),
        Piece("" if one.peak_host_mib is None else f"{one.peak_host_mib:,.0f}"),
        Piece("" if one.peak_gpu_mib is None else f"{one.peak_gpu_mib:,.0f}"),
        Piece(", ".join(f"{name}={value}" for name, value in one.settings.items()), "dim"),
        Piece(why),
    )
    return Line(cells, is_marked=True)


def _changed_settings(step: Mapping[str, Any] | None) -> str | None:
    fallback = (step or {}).get("fallback")
    if isinstance(fallback, dict):
        from kgops.planning.oom_fallbacks import fallback_line  # imports all rules; few runs need them

        return f"→ {fallback_line(fallback)}"
    settings = (step or {}).get("settings")
    if not isinstance(settings, dict) or not settings:
        return None
    return "→ " + ", ".join(f"{name}={value}" for name, value in settings.items())


# --- results ---


def metrics(detail: RunDetail) -> Section:
    columns = (Column("METRIC", 28), Column("value", 10, right=True))
    below = _left_out(detail, detail.metrics_left_out, "metrics")
    if {"best_valid_mrr", "test_mrr"} <= dict(detail.metrics).keys():
        below = [*below, FILTERS]
    return section(columns, [(name, amount(value)) for name, value in detail.metrics], below)


def curves(detail: RunDetail) -> Section:
    columns = (Column("CURVE", 28), Column("points", 8, right=True), Column("last", 10, right=True))
    rows = [(one.name, str(one.n), reported(one.last)) for one in detail.curves]
    return section(columns, rows, _left_out(detail, detail.curves_left_out, "curves"))


def quality(detail: RunDetail, rows: Sequence[Sequence[str]] | None = None) -> Section:
    """By direction, degree of the answer and relation. `rows`: more of them than the detail has."""
    rows = [row for row in rows or detail.quality if len(row) == len(HEADS)]  # a host may have sent others
    longest = max((width_of(row[1]) for row in rows), default=0)
    widths = (9, min(longest, 30), 7, 6, 13, 6, 7)
    columns = [
        Column(name.lower() if i else "QUALITY", width, right=i in NUMBERS)
        for i, (name, width) in enumerate(zip(HEADS, widths, strict=True))
    ]
    return section(columns, rows)


def artifacts(detail: RunDetail, most: int = MOST_SHOWN) -> Section:
    """Models first; a digest goes with its file."""
    files = sorted(
        (one for one in detail.artifacts if one.kind != "digest"), key=lambda one: one.kind not in _MODELS
    )
    columns = (
        Column("ARTIFACT", 14),
        Column("size", 11, right=True),
        Column("SHA-256", 16),
        Column("file", 20, grows=True),
    )
    rows = [
        (
            Piece(one.kind, "dim"),
            UNKNOWN if one.bytes is None else size_text(one.bytes),
            Piece((one.sha256 or UNKNOWN)[:16], "dim"),
            one.path,
        )
        for one in files[:most]
    ]
    return section(columns, rows, _left_out(detail, len(files) - len(rows), "artifacts"))


def _left_out(detail: RunDetail, count: int, what: str) -> list[str]:
    """Says how many are not shown, and where they are."""
    return [f"… and {count:,} more {what}: kgops show {detail.run.id} --json has all."] if count > 0 else []


def messages(detail: RunDetail, when: When = local_time) -> Section:
    """The newest messages of the worker, in full."""
    columns = (Column("TIME", 16), Column("worker message", 20, grows=True))
    lines = tuple(Line((Piece(when(at), "dim"), Piece(text)), True) for at, text in detail.messages)
    return Section(columns, lines)


def named_values(title: str, table: Mapping[str, Any]) -> Section:
    """Settings with a value, nested names joined by dots; as of a job or an environment."""
    entries = list(_flat(table))
    names = min(max((len(name) for name, _ in entries), default=0), 30)
    columns = (Column(title, max(names, len(title))), Column("", 20, grows=True))
    return section(columns, [(Piece(name, "dim"), value) for name, value in entries])


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
            for index, one in enumerate(value):
                yield f"{before}{name}.{index}", ", ".join(f"{key} {word}" for key, word in one.items())
        elif value is not None and value != []:
            yield f"{before}{name}", value_text(value)
