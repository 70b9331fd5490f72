"""The HTML report of a run: one self-contained page that leads with what was reached; the record is folded below."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kgops.jobs import toml
from kgops.jobs.text import one_line
from kgops.present.curve_chart import Clock, draw, short
from kgops.present.differing_options import differing_options
from kgops.present.explained_run import ExplainedRun
from kgops.present.formats import value_text
from kgops.present.html_page import Number, document, fold, grid, mib, moment, numbers, section, table, text
from kgops.present.influences import RunInfluences
from kgops.present.metric_order import MOST_SHOWN, curve_rank, headlines, title_of
from kgops.present.quality import FILTERS, HEADS, NUMBERS, quality_rows
from kgops.present.report_sections import answers, explanations, memory, traces
from kgops.present.run_detail import Curve, RunDetail
from kgops.workloads.results import Result, leaves
from storage.reports import Event
from storage.runs import Run

_LOG_LINES = 200
_FIRST_CURVES, _FIRST_TESTS = 6, 3
_RELATIONS = 200
_LEFT_THERE: dict[Result, str] = {
    "influences": "Influences",
    "answers": "Predictions",
    "explanations": "Explanations",
}
_BEST = "best_valid_mrr"
_HUE_OF_STATE = {"succeeded": "good", "failed": "bad", "out_of_memory": "bad"}


def page(
    detail: RunDetail,
    log: Sequence[str],
    influences: RunInfluences | None = None,
    explained: ExplainedRun | None = None,
    *,
    name: str | None = None,
) -> str:
    """`log` are its last lines, already cleaned. `name`: of a run of another host."""
    run = detail.run
    title = f"run {name or run.id} · {run.workload} · {one_line(run.label)}"
    first, more, constant = _curves(detail)
    parts = [
        f"<h1>{text(title)}</h1>",
        _state(run),
        f'<p class="dim">{text(_when(detail))}</p>',
        *([f'<p class="dim">data read: {text(detail.data)}</p>'] if detail.data else []),
        *_origin(detail.imported),
        *_tags_and_notes(detail),
        numbers(_reached(detail)),
        section("Influences on test triples", traces(influences, 0, _FIRST_TESTS) if influences else ""),
        section("Predictions", "" if name is not None else answers(detail)),
        section("Explanations", explanations(explained) if explained else ""),
        _left_there(run, name),
        section("Curves", grid(first) + constant),
        section("Memory", memory(detail)),
        section("Options that differ from the defaults", _differing(detail)),
        f'<div class="folded">{"".join(_record(detail, more, log, influences))}</div>',
    ]
    foot = (
        "All values were measured by the run or its supervisor, except those marked as predicted or estimate."
    )
    return document(title, parts, foot)


def _record(
    detail: RunDetail, more: Sequence[str], log: Sequence[str], influences: RunInfluences | None
) -> Iterable[str]:
    """All that was recorded next to it, each under its own fold."""
    yield fold("More curves", grid(more), f"{len(more):,}")
    metrics = [(name, short(value)) for name, value in detail.metrics]
    more_metrics = _left_out(detail, detail.metrics_left_out, "metrics")
    yield fold(
        "Metrics" if more_metrics else "All metrics",
        table(("metric", "value"), metrics, right=(1,)) + more_metrics,
        f"{len(metrics):,}",
    )
    # The files of a run of another host lie there; the rows that its page shows came along.
    rows = quality_rows(detail.path / "results", relations=_RELATIONS) or detail.quality
    quality = table(HEADS, rows, right=NUMBERS)
    note = f'<p class="dim">{text(FILTERS)}</p>' if quality else ""
    yield fold("Quality by direction, degree of the answer, and relation", quality + note)
    yield fold("More influences", traces(influences, _FIRST_TESTS, 1 << 30) if influences else "")
    yield fold("All options", _options(detail), f"{len(detail.options):,}")
    yield fold("Attempts", _attempts(detail), f"{len(detail.attempts):,}")
    messages = table(("at", ""), [(moment(at), said) for at, said in detail.messages])
    yield fold("Messages of the worker", messages, f"{len(detail.messages):,}")
    yield fold("Artifacts", _artifacts(detail))
    yield fold("Job", f"<pre>{text(_job(detail.job))}</pre>")
    yield fold("Environment", _environment(detail.environment))
    yield fold("End of the log", _log(log), f"{min(len(log), _LOG_LINES):,} lines")


# --- what leads ---


def _reached(detail: RunDetail) -> list[Number]:
    run, metrics = detail.run, dict(detail.metrics)
    names = headlines(metrics)
    shown = [Number(title_of(name), short(metrics[name])) for name in names]
    if leaves(run.workload, "model") and not any(name.startswith("test_") for name in names):
        shown.insert(0, Number("test MRR", None))
    if _BEST in metrics and _BEST not in names:
        epoch = metrics.get("best_epoch")
        beside = "" if epoch is None else f"at epoch {short(epoch)}"
        shown.append(Number("best validation MRR", short(metrics[_BEST]), beside))
    shown.append(Number("took", None if run.took_s is None else f"{short(round(run.took_s, 1))} s"))
    peak, of = (run.peak_gpu_mib, "GPU") if run.peak_gpu_mib else (run.peak_host_mib, "host")
    shown.append(Number(f"peak {of} memory", None if peak is None else f"{mib(peak)} MiB"))
    return shown


def _state(run: Run) -> str:
    said = run.state.replace("_", " ") + (f": {run.reason}" if run.reason else "")
    return f'<p class="state {_HUE_OF_STATE.get(run.state, "")}">{text(said)}</p>'


def _when(detail: RunDetail) -> str:
    run = detail.run
    facts = [f"submitted {moment(run.submitted_at)}", f"profile {run.profile or 'none'}"]
    return " · ".join([*facts, f"GPU {run.gpu}" if run.gpu else "no GPU"])


def _left_there(run: Run, name: str | None) -> str:
    """Influences, predictions and explanations are files, which a report does not fetch."""
    what = next((said for result, said in _LEFT_THERE.items() if leaves(run.workload, result)), None)
    if name is None or what is None:
        return ""
    said = f"{what} are not in this page: they lie on the host. kgops pull {name} imports the run with them."
    return f'<p class="dim">{text(said)}</p>'


def _origin(imported: Sequence[Event]) -> Iterable[str]:
    for event in imported:
        said = f"imported {moment(event.at)} from {event.body.get('source')}"
        yield f"<p><strong>{text(said)}</strong>; values missing there are n/a</p>"


def _tags_and_notes(detail: RunDetail) -> Iterable[str]:
    if detail.tags:
        yield f"<p>tagged {text(' '.join(detail.tags))}</p>"
    for note in detail.notes:
        yield f'<p class="note">note of {moment(note.at)}: {text(note.text)}</p>'


def _curves(detail: RunDetail) -> tuple[list[str], list[str], str]:
    """The first charts, the others, and one line of curves that have one value."""
    run = detail.run
    curves = sorted(detail.curves, key=lambda one: curve_rank(one.name))
    clock = Clock(run.submitted_at, run.started_at, run.ended_at or time.time())
    flat = [one for one in curves if _is_flat(one)]
    moving = [one for one in curves if not _is_flat(one)]
    charts = [draw(detail.drawn(one), clock, detail.estimate_mib(one.name)) for one in moving]
    drawn = [one for one in charts if one]
    constants = " · ".join(f"{one.name} {short(one.last)}" for one in flat)
    line = f'<p class="dim">measured once, or constant: {text(constants)}</p>' if constants else ""
    line += _left_out(detail, detail.curves_left_out, "curves")
    return drawn[:_FIRST_CURVES], drawn[_FIRST_CURVES:], line


def _left_out(detail: RunDetail, count: int, what: str) -> str:
    """Says how many are not in the page, and where they are."""
    said = f"{count:,} more {what} are not in this page: kgops show {detail.run.id} --json has them."
    return f'<p class="dim">{text(said)}</p>' if count else ""


def _is_flat(curve: Curve) -> bool:
    return len({value for b in curve.buckets for value in (b.min, b.max)}) < 2


def _differing(detail: RunDetail) -> str:
    rows = [
        (one.name, one.value, one.default, one.by, one.why)
        for one in differing_options(detail.job, detail.options)
    ]
    return table(("option", "this run", "default", "chosen by", "reason"), rows) or "<p>none</p>"


# --- the record ---


def _job(job: Mapping[str, Any]) -> str:
    try:
        return toml.dumps(job)
    except TypeError:  # an imported job may hold values that TOML cannot express
        return json.dumps(job, indent=1, ensure_ascii=False)


def _options(detail: RunDetail) -> str:
    rows = [(one.name, one.requested, one.applied, one.effect, one.by, one.why) for one in detail.options]
    marked = [one.is_changed for one in detail.options]
    return table(("option", "requested", "applied", "effect", "chosen by", "reason"), rows, marked=marked)


def _attempts(detail: RunDetail) -> str:
    rows = [
        (
            str(one.number),
            one.outcome or "running",
            "" if one.ended_at is None else f"{one.ended_at - one.started_at:,.1f}",
            mib(one.peak_host_mib),
            mib(one.peak_gpu_mib),
            ", ".join(f"{name} {value}" for name, value in one.settings.items()),
            one.reason or "",
        )
        for one in detail.attempts
    ]
    heads = ("attempt", "outcome", "seconds", "host MiB", "GPU MiB", "settings", "reason")
    return table(heads, rows, right=(2, 3, 4))


def _artifacts(detail: RunDetail) -> str:
    """All artifacts but digest files."""
    files = [one for one in detail.artifacts if one.kind != "digest"]
    named = files[:MOST_SHOWN]
    rows = [
        (one.path, one.kind, None if one.bytes is None else f"{one.bytes:,}", one.sha256 and one.sha256[:16])
        for one in named
    ]
    more = _left_out(detail, len(files) - len(named), "artifacts")
    return table(("file", "kind", "bytes", "SHA-256"), rows, right=(2,)) + more


def _environment(environment: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in environment.items() if name != "variables" and value is not None}
    rows = [(name, value_text(value)) for name, value in shown.items()]
    return table(("", ""), rows)


def _log(log: Sequence[str]) -> str:
    return f"<pre>{text(chr(10).join(log[-_LOG_LINES:]))}</pre>" if log else ""
