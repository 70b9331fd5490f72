"""The HTML page of a comparison: what runs reached with the best marked, what differs, and curves in one chart."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.present.comparison import Comparison, Difference, Metric
from kgops.present.curve_chart import DASHES, Line, Picture, Trace, as_inline_svg, draw_together, short
from kgops.present.formats import UNKNOWN, amount, duration, ratio_text, value_text
from kgops.present.html_page import HUES, document, fold, grid, section, table, text
from kgops.present.quality import compared_quality, read_quality
from kgops.present.run_detail import RunDetail
from kgops.present.wording import curve_rank, headlines, title_of

_FIRST_CURVES = 6
_RELATIONS = 50  # of which quality is compared
_ALSO_FIRST = ("best_valid_mrr", "epoch_seconds", "took", "peak_gpu_mib", "peak_host_mib")


def page(comparison: Comparison, details: Sequence[RunDetail]) -> str:
    """`details` are of the same runs, in the same order."""
    title = "runs " + ", ".join(str(run.id) for run in comparison.runs)
    first, others = _metrics(comparison)
    charts = _charts(details)
    parts = [
        f"<h1>{text(title)}, compared</h1>",
        *(f'<p class="bad">{text(caution)}</p>' for caution in comparison.cautions),
        _legend(comparison),
        section("What was reached", _measured(comparison, first)),
        section("Settings that differ", _differences(comparison, comparison.settings)),
        section("Applied options that differ", _differences(comparison, comparison.options)),
        section("Curves", grid(charts[:_FIRST_CURVES])),
        '<div class="folded">',
        fold("More curves", grid(charts[_FIRST_CURVES:]), f"{len(charts[_FIRST_CURVES:]):,}"),
        fold("More metrics", _measured(comparison, others) + _left_out(comparison), f"{len(others):,}"),
        fold("Quality by direction, degree of the answer, and relation", _quality(comparison, details)),
        fold("Environment that differs", _differences(comparison, comparison.environment)),
        fold("All settings", _table(comparison, comparison.settings)),
        fold("All applied options", _table(comparison, comparison.options)),
        "</div>",
    ]
    foot = "The best of a row is bold with ★. Ratios are to the first run."
    return document(f"{title}, compared", parts, foot)


def _legend(comparison: Comparison) -> str:
    """Each run with the colour and the dash of its curves."""
    items = []
    for i, run in enumerate(comparison.runs):
        line = Line([(0, 6), (44, 6)], width=2.5, dash=DASHES[i % len(DASHES)], hue=i % HUES)
        state = run.state.replace("_", " ") + (f": {run.reason}" if run.reason else "")
        said = f"{_name(comparison, i)} · {run.workload} · {state}"
        items.append(f"<li>{as_inline_svg(Picture(44, 12, f'run {run.id}', [line]))}{text(said)}</li>")
    return f'<ul class="key">{"".join(items)}</ul>'


def _name(comparison: Comparison, i: int) -> str:
    return f"{comparison.runs[i].id} {comparison.runs[i].label}"


def _heads(comparison: Comparison) -> list[str]:
    return ["", *(_name(comparison, i) for i in range(len(comparison.runs)))]


# --- metrics ---


def _metrics(comparison: Comparison) -> tuple[list[Metric], list[Metric]]:
    """Those that lead, and the others; none that no run has."""
    known = {one.name: one for one in comparison.shown}
    leading = [name for name in (*headlines(_reported(comparison)), *_ALSO_FIRST) if name in known]
    first = list(dict.fromkeys(leading))
    return [known[name] for name in first], [one for name, one in known.items() if name not in first]


def _reported(comparison: Comparison) -> list[str]:
    """Metrics of workers: the others have a unit."""
    return [one.name for one in comparison.shown if not one.unit]


def _measured(comparison: Comparison, metrics: Sequence[Metric]) -> str:
    rows, best = [], []
    for i, metric in enumerate(metrics):
        winners = comparison.best(metric)
        cells = [_cell(comparison, metric, j, j in winners) for j in range(len(metric.values))]
        rows.append((title_of(metric.name), *cells))
        best += [(i, j + 1) for j in winners]
    return table(_heads(comparison), rows, right=range(1, len(comparison.runs) + 1), best=best)


def _left_out(comparison: Comparison) -> str:
    said = f"{comparison.left_out:,} more metrics are not in this page: kgops compare --all shows them."
    return f'<p class="dim">{text(said)}</p>' if comparison.left_out else ""


def _quality(comparison: Comparison, details: Sequence[RunDetail]) -> str:
    """The MRR of each group of test triples, with a 95 % interval and its number of ranks."""
    qualities = [read_quality(detail.path / "results") for detail in details]
    rows, left_out = compared_quality(qualities, relations=_RELATIONS)
    more = f'<p class="dim">and {left_out:,} more relations</p>' if left_out else ""
    return table(_heads(comparison), rows, right=range(1, len(details) + 1)) + more


def _cell(comparison: Comparison, metric: Metric, i: int, is_best: bool) -> str:
    value, spread = metric.values[i], metric.spread[i]
    if value is None:
        return "not measured"
    shown = duration(value) if metric.name == "took" else f"{short(value)} {metric.unit}".rstrip()
    if spread is not None:
        shown += f" ({amount(spread[0])}–{amount(spread[1])})"
    ratio = ratio_text(comparison.ratio(metric, i)) if i else ""
    shown += f" · {ratio}" if ratio else ""
    return f"★ {shown}" if is_best else shown


# --- what differs ---


def _differences(comparison: Comparison, rows: Sequence[Difference]) -> str:
    return _table(comparison, [row for row in rows if row.differs]) or "<p>none</p>"


def _table(comparison: Comparison, rows: Sequence[Difference]) -> str:
    shown = [
        (row.name, *(UNKNOWN if value is None else value_text(value) for value in row.values)) for row in rows
    ]
    return table(_heads(comparison), shown)


# --- curves ---


def _charts(details: Sequence[RunDetail]) -> list[str]:
    """One chart for each curve that at least two runs have and that changes, most important first."""
    traces: dict[str, list[Trace]] = {}
    for i, detail in enumerate(details):
        for curve in detail.curves:
            traces.setdefault(curve.name, []).append(Trace(detail.drawn(curve), detail.run, i))
    shared = [name for name, of in traces.items() if len(of) > 1 and any(map(_moves, of))]
    charts = (draw_together(name, traces[name]) for name in sorted(shared, key=curve_rank))
    return [one for one in charts if one]


def _moves(trace: Trace) -> bool:
    return len({bucket.mean for bucket in trace.finite}) > 1
