"""The HTML report of a run: one self-contained page that leads with what was reached; the record is folded below."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kgops.jobs import toml
from kgops.jobs.text import one_line
from kgops.present import result_sections, run_sections
from kgops.present.curve_chart import as_inline_svg, draw, short
from kgops.present.explained_run import (
    ExplainedRun,
    limits_of,
    title_of_prediction,
    verdict_of,
)
from kgops.present.explanation_pictures import picture_of
from kgops.present.explanations import ExplainedPrediction
from kgops.present.glance import differing_options
from kgops.present.html_page import (
    Number,
    document,
    facts_line,
    fold,
    grid,
    mib,
    moment,
    numbers,
    section,
    section_table,
    table,
    text,
)
from kgops.present.influences import RunInfluences
from kgops.present.quality import quality_rows
from kgops.present.run_detail import Curve, RunDetail
from kgops.present.wording import curve_rank, headlines, title_of
from kgops.workloads.results import Result, leaves
from storage.influences import TestTriple
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
_ONLY_RETRAINING = (
    "Only retraining shows that the model needs these triples (--verify). "
    "Nothing here shows that the prediction is true."
)


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
        _state(detail),
        facts_line([*run_sections.times(detail, moment), *run_sections.facts(detail, moment)]),
        *(["<p>values that were missing in an imported run are n/a</p>"] if detail.imported else []),
        *_notes(detail),
        numbers(_reached(detail)),
        section("Influences on test triples", traces(influences, 0, _FIRST_TESTS) if influences else ""),
        section("Predictions", "" if name is not None else answers(detail)),
        section("Explanations", explanations(explained) if explained else ""),
        _left_there(run, name),
        section("Curves", grid(first) + constant),
        section("Memory", section_table(run_sections.memory(detail))),
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
    metrics = section_table(run_sections.metrics(detail))
    yield fold("Metrics", metrics, f"{len(detail.metrics):,}")
    # The files of a run of another host lie there; the rows that its page shows came along.
    rows = quality_rows(detail.path / "results", relations=_RELATIONS) or detail.quality
    quality = section_table(run_sections.quality(detail, rows))
    yield fold("Quality by direction, degree of the answer, and relation", quality)
    yield fold("More influences", traces(influences, _FIRST_TESTS, 1 << 30) if influences else "")
    yield fold("All options", section_table(run_sections.options(detail)), f"{len(detail.options):,}")
    yield fold("Attempts", section_table(run_sections.attempts(detail)), f"{len(detail.attempts):,}")
    messages = section_table(run_sections.messages(detail, moment))
    yield fold("Messages of the worker", messages, f"{len(detail.messages):,}")
    yield fold("Artifacts", section_table(run_sections.artifacts(detail)))
    yield fold("Job", f"<pre>{text(_job(detail.job))}</pre>")
    shown = {name: value for name, value in detail.environment.items() if name != "variables"}
    yield fold("Environment", section_table(run_sections.named_values("ENVIRONMENT", shown)))
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


def _state(detail: RunDetail) -> str:
    shown = run_sections.state(detail)
    return f'<p class="state {shown.tone if shown.tone in ("good", "bad") else ""}">{text(shown.text)}</p>'


def _left_there(run: Run, name: str | None) -> str:
    """Influences, predictions and explanations are files, which a report does not fetch."""
    what = next((said for result, said in _LEFT_THERE.items() if leaves(run.workload, result)), None)
    if name is None or what is None:
        return ""
    said = f"{what} are not in this page: they lie on the host. kgops pull {name} imports the run with them."
    return f'<p class="dim">{text(said)}</p>'


def _notes(detail: RunDetail) -> Iterable[str]:
    for note in detail.notes:
        yield f'<p class="note">note of {moment(note.at)}: {text(note.text)}</p>'


def _curves(detail: RunDetail) -> tuple[list[str], list[str], str]:
    """The first charts, the others, and one line of curves that have one value."""
    curves = sorted(detail.curves, key=lambda one: curve_rank(one.name))
    flat = [one for one in curves if _is_flat(one)]
    moving = [one for one in curves if not _is_flat(one)]
    charts = [draw(detail.drawn(one), detail.run, detail.estimate_mib(one.name)) for one in moving]
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


def _log(log: Sequence[str]) -> str:
    return f"<pre>{text(chr(10).join(log[-_LOG_LINES:]))}</pre>" if log else ""


_MOST_TESTS = 20
_MOST_EACH = 5  # proponents, and as many opponents
_MOST_EXPLAINED = 20
_MOST_QUESTIONS = 10
_MOST_ANSWERS = 20
_SMALLEST = 0.8  # of a picture's size, for its letters


def traces(influences: RunInfluences, start: int, stop: int) -> str:
    """HTML of the test triples from `start` to `stop`; empty where there are none."""
    stop = min(stop, _MOST_TESTS)
    shown = [_test_triple(influences, test) for test in influences.tests[start:stop]]
    left = len(influences.tests) - _MOST_TESTS if stop == _MOST_TESTS else 0
    more = f'<p class="dim">and {left:,} more: kgops influences {influences.run.id}</p>' if left > 0 else ""
    return "\n".join([*shown, more]) if shown else ""


def _test_triple(influences: RunInfluences, test: TestTriple) -> str:
    trouble = f": <strong>{text(one_line(test.trouble))}</strong>" if test.trouble is not None else ""
    title = text(result_sections.title_of_test(influences, test))
    return (
        f"<p>{title}{trouble}</p>\n{section_table(result_sections.test_triple(influences, test, _MOST_EACH))}"
    )


def answers(detail: RunDetail) -> str:
    """HTML of the first answers to the first questions; empty where there are none."""
    results = detail.path / "results"
    found, is_more = result_sections.answers(results, questions=_MOST_QUESTIONS, most=_MOST_ANSWERS)
    out = [f"<p>{text(title)}</p>\n{section_table(shown)}" for title, shown in found]
    if is_more:
        out.append(f'<p class="dim">the first; all are in {text(str(results))}</p>')
    return "\n".join(out)


def explanations(explained: ExplainedRun) -> str:
    """HTML; empty where there are none."""
    if not explained.predictions:
        return ""
    out = [_explanation(explained, one) for one in explained.predictions[:_MOST_EXPLAINED]]
    out.append(f'<p class="dim">{text(limits_of(explained.predictions[0]))} {_ONLY_RETRAINING}</p>')
    if explained.verification is not None:
        out.insert(0, f"<p>{text(one_line(explained.verification.sentence))}</p>")
    left = len(explained.predictions) - _MOST_EXPLAINED
    if left > 0:
        out.append(f'<p class="dim">and {left:,} more: kgops show {explained.run.id} names the file</p>')
    return "\n".join(out)


def _explanation(explained: ExplainedRun, one: ExplainedPrediction) -> str:
    said = f"<p><strong>{text(title_of_prediction(one))}</strong></p>\n<p>{text(verdict_of(one))}</p>"
    if not one.facts:
        return said
    picture = picture_of(explained.graph(one), title_of_prediction(one))
    # A picture too wide to be read beside the list goes below it.
    drawn = f'<div style="flex-basis: {round(picture.width * _SMALLEST)}px">{as_inline_svg(picture)}</div>'
    facts = section_table(result_sections.facts(one))
    beside = f'<div class="beside-picture"><div>{facts}</div>{drawn}</div>'
    listed = section_table(result_sections.paths(one))
    checked = section_table(result_sections.retrained(explained.verification, one))
    return "\n".join(part for part in (said, beside, listed, checked) if part)
