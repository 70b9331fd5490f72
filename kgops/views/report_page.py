"""The HTML report of a run: one self-contained page."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kgops import __version__
from kgops.jobs import toml
from kgops.jobs.numbers import share_between
from kgops.jobs.text import clock, lines, one_line
from kgops.views.influences import RunInfluences
from kgops.views.quality import HEADS, NUMBERS, quality_rows
from kgops.views.report_curves import Clock, draw, short, traces
from kgops.views.run_detail import RunDetail
from storage.reports import Event

__all__ = ["page"]

_LOG_LINES = 200
_WIDTH = 840
# Readable on a printer without colours.
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; background: #fff; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1rem; margin: 2rem 0 .4rem; color: #555; font-weight: 600; }
p { margin: .3rem 0; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; color: #555; font-weight: 500; border-bottom: 1px solid #bbb; }
td, th { padding: .15rem .8rem .15rem 0; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.differs td { font-weight: 600; } pre { font-size: .8rem; overflow-x: auto; background: #f6f6f6; padding: .6rem; }
figure { display: inline-block; width: 47%; margin: 0 2% 1rem 0; break-inside: avoid; } figure.whole { width: 100%; }
figcaption { font-size: .85rem; color: #555; } svg { display: block; width: 100%; }
svg text { font: 10px system-ui, sans-serif; fill: #555; } .dim { color: #666; } .note { white-space: pre-line; }
@media print { pre { white-space: pre-wrap; } body { margin: 0; } }
"""


def page(
    detail: RunDetail,
    log: Sequence[str],
    forecast: Mapping[str, Any] | None,
    influences: RunInfluences | None = None,
    imported: Sequence[Event] = (),
) -> str:
    """`log` are its last lines, already cleaned; `forecast` is the plan's prediction; `imported` are the events that
    say where an imported run came from."""
    run = detail.run
    title = f"run {run.id} · {run.workload} · {one_line(run.label)}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p><strong>{_text(run.state.replace('_', ' '))}</strong>{_reason(run.reason)}</p>",
        f'<p class="dim">{_text(_when(detail))}</p>',
        *_origin(imported),
        *_tags_and_notes(detail),
        _section("Memory", _memory(detail, forecast)),
        _section("Curves", _curves(detail)),
        _section(
            "Metrics", _table(("metric", "value"), [(n, short(v)) for n, v in detail.metrics], right=(1,))
        ),
        _section(
            "Quality by direction, degree of the answer, and relation",
            _table(HEADS, quality_rows(detail.path / "results", relations=200), right=NUMBERS),
        ),
        _section("Influences on test triples", traces(influences) if influences else ""),
        _section("Options", _options(detail)),
        _section("Attempts", _attempts(detail)),
        _section(
            "Messages of the worker", _table(("at", ""), [(_time(at), text) for at, text in detail.messages])
        ),
        _section("Artifacts", _artifacts(detail)),
        _section("Job", f"<pre>{_text(_job(detail.job))}</pre>"),
        _section("Environment", _environment(detail.environment)),
        _section("End of the log", _log(log)),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n"
        f'<p class="dim">Written by kgops {__version__}, {_time(time.time())}. '
        "All values were measured by the run or its supervisor, except those marked as predicted.</p>\n"
        "</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<h2>{title}</h2>\n{body}" if body else ""


def _job(job: Mapping[str, Any]) -> str:
    try:
        return toml.dumps(job)
    except TypeError:  # an imported job may hold values that TOML cannot express
        return json.dumps(job, indent=1, ensure_ascii=False)


def _reason(reason: str | None) -> str:
    return f": {_text(reason)}" if reason else ""


def _when(detail: RunDetail) -> str:
    run = detail.run
    facts = [f"submitted {_time(run.submitted_at)}"]
    if run.started_at is not None and run.ended_at is not None:
        facts.append(f"took {run.ended_at - run.started_at:,.1f} s")
    facts.append(f"profile {run.profile or 'none'}")
    facts.append(f"GPU {run.gpu}" if run.gpu else "no GPU")
    return " · ".join(facts)


def _origin(imported: Sequence[Event]) -> Iterable[str]:
    for event in imported:
        text = f"imported {_time(event.at)} from {event.body.get('source')}"
        yield f"<p><strong>{_text(text)}</strong>; values missing there are n/a</p>"


def _tags_and_notes(detail: RunDetail) -> Iterable[str]:
    if detail.tags:
        yield f"<p>tagged {_text(' '.join(detail.tags))}</p>"
    for note in detail.notes:
        yield f"<p class='note'>note of {_time(note.at)}: {_text(note.text)}</p>"


def _memory(detail: RunDetail, forecast: Mapping[str, Any] | None) -> str:
    run = detail.run
    rows = [("host memory, measured peak", _mib(run.peak_host_mib))]
    rows.append(("GPU memory, measured peak", _mib(run.peak_gpu_mib)))
    if run.predicted_mib is not None:
        subject = "GPU memory" if forecast and forecast.get("on_gpu") else "tensors"
        subject = subject if detail.process is None else "worker process"
        if detail.process is not None:
            rows[0] = ("worker process, measured peak", _mib(detail.process_mib))
        rows.append((f"{subject}, predicted", _mib(run.predicted_mib)))
    parts = (forecast or {}).get("estimate", {}).get("parts_mib", {})
    table = _table(("", "MiB"), rows, right=(1,))
    return table + (_bar(parts) if parts else "")


def _bar(parts: Mapping[str, float]) -> str:
    """The parts of the memory estimate as one bar, in greys with numbers, readable without colours."""
    total = sum(parts.values()) or 1.0
    x, bars, names = 0.0, [], []
    for i, (name, mib) in enumerate(sorted(parts.items(), key=lambda part: -part[1])):
        width = _WIDTH * share_between(mib, 0.0, total)
        grey = 40 + 28 * (i % 7)
        bars.append(
            f'<rect x="{x:.1f}" y="0" width="{max(width - 1, 0):.1f}" height="16" fill="rgb({grey},{grey},{grey})"/>'
        )
        names.append(f"{name} {mib:,.1f}")
        x += width
    label = 'role="img" aria-label="predicted memory by part"'
    view = f'viewBox="0 0 {_WIDTH} 16" height="16" preserveAspectRatio="none"'
    return (
        f'<figure class="whole"><svg {view} {label}>{"".join(bars)}</svg>'
        f"<figcaption>predicted memory by part, MiB: {_text(' · '.join(names))}</figcaption></figure>"
    )


def _curves(detail: RunDetail) -> str:
    """The curves as pictures; constant ones are listed in one line."""
    run, curves = detail.run, detail.curves
    clock = Clock(run.submitted_at, run.started_at, run.ended_at or time.time())
    flat = [one for one in curves if len({value for b in one.buckets for value in (b.min, b.max)}) < 2]
    drawn = "".join(draw(one, clock) for one in curves if one not in flat)
    constants = " · ".join(f"{one.name} {short(one.last)}" for one in flat)
    return drawn + (f'<p class="dim">constant: {_text(constants)}</p>' if constants else "")


def _options(detail: RunDetail) -> str:
    rows = [(one.name, one.requested, one.applied, one.effect, one.by, one.why) for one in detail.options]
    # Options applied with another value than requested stand out.
    marked = [one.requested not in (None, "auto", one.applied) for one in detail.options]
    return _table(("option", "requested", "applied", "effect", "chosen by", "reason"), rows, marked=marked)


def _attempts(detail: RunDetail) -> str:
    rows = [
        (
            str(one.number),
            one.outcome or "running",
            "" if one.ended_at is None else f"{one.ended_at - one.started_at:,.1f}",
            _mib(one.peak_host_mib),
            _mib(one.peak_gpu_mib),
            ", ".join(f"{name} {value}" for name, value in one.settings.items()),
            one.reason or "",
        )
        for one in detail.attempts
    ]
    heads = ("attempt", "outcome", "seconds", "host MiB", "GPU MiB", "settings", "reason")
    return _table(heads, rows, right=(2, 3, 4))


def _artifacts(detail: RunDetail) -> str:
    """All artifacts but digest files."""
    named = [one for one in detail.artifacts if one.kind != "digest"]
    rows = [
        (one.path, one.kind, None if one.bytes is None else f"{one.bytes:,}", one.sha256 and one.sha256[:16])
        for one in named
    ]
    return _table(("file", "kind", "bytes", "SHA-256"), rows, right=(2,))


def _environment(environment: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in environment.items() if name != "variables" and value is not None}
    rows = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in shown.items()]
    return _table(("", ""), rows)


def _log(log: Sequence[str]) -> str:
    return f"<pre>{_text(chr(10).join(log[-_LOG_LINES:]))}</pre>" if log else ""


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    *,
    right: Sequence[int] = (),
    marked: Sequence[bool] = (),
) -> str:
    if not rows:
        return ""
    numbers = [' class="n"' if i in right else "" for i in range(len(heads))]
    top = "".join(f"<th{n}>{_text(head)}</th>" for head, n in zip(heads, numbers, strict=True))
    out = [f"<table><tr>{top}</tr>"] if any(heads) else ["<table>"]
    for i, row in enumerate(rows):
        cells = "".join(
            f"<td{n}>{_text('n/a' if cell is None else cell)}</td>"
            for cell, n in zip(row, numbers, strict=True)
        )
        out.append(f"<tr{' class=differs' if marked and marked[i] else ''}>{cells}</tr>")
    return "\n".join([*out, "</table>"])


def _text(text: str) -> str:
    """Escapes labels, reasons and log lines, which may hold anything."""
    return html.escape(lines(text))


def _mib(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.1f}"


def _time(at: float) -> str:
    return clock(at, "%Y-%m-%d %H:%M:%S")
