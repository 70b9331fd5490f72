"""`kgops compare`: settings, options, environment and metrics of several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import print_json, say_lines, write_page
from kgops.cli.session import Session, existing, is_filter
from kgops.errors import Usage
from kgops.jobs.text import one_line
from kgops.present.comparison import MOST, Comparison, Difference, Metric, compare
from kgops.present.formats import UNKNOWN, amount, ratio_text, table, value_text
from kgops.present.quality import QualityGroup, compared_quality, read_quality
from kgops.present.wording import headlines
from storage import runs


@click.command(epilog="\b\nExample:  kgops compare 12 17 21")
@click.argument("names", metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="Show equal values too.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.option(
    "--html", "as_html", is_flag=True, help="Write one self-contained HTML page, curves in one chart."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Output file of --html; default: compare-N-M.html in this folder.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(
    names: tuple[str, ...], everything: bool, as_json: bool, as_html: bool, output: Path | None, force: bool
) -> None:
    """Compare runs: settings, applied options and environment that differ, and metrics with ratios to the first run.

    RUN is a number, a label, `last`, `all`, or a filter as of `kgops runs`: `kgops compare tag:paper`. `kgops pull`
    brings runs of other hosts here first.
    """
    if as_html and (as_json or everything):
        raise Usage("--html excludes --json and --all")
    if not as_html and (output is not None or force):
        raise Usage("--output and --force are for --html")
    if not any(map(is_filter, names)):
        _check_count(len(set(names)))
    session = existing()
    chosen = session.matching(names)
    _check_count(len(chosen))
    comparison = compare(session.conn, chosen)
    if as_html:
        _write_html(session, comparison, output, force=force)
        return
    qualities = [read_quality(session.folder(run).results) for run in chosen]
    if as_json:
        print_json(
            {**as_table(comparison), "quality": [[asdict(one) for one in groups] for groups in qualities]}
        )
        return
    say_lines(page(comparison, everything=everything))
    say_lines(_quality(comparison, qualities, everything=everything))


def _check_count(count: int) -> None:
    if not 2 <= count <= MOST:
        raise Usage(f"compare needs two to {MOST} different runs, and got {count}", "kgops compare 1 2")


def _write_html(session: Session, comparison: Comparison, output: Path | None, *, force: bool) -> None:
    from kgops.present import comparison_page
    from kgops.present.run_detail import read_run_detail  # seldom needed

    details = [read_run_detail(session.home, session.conn, run.id) for run in comparison.runs]
    found = comparison_page.page(comparison, [one for one in details if one is not None])
    numbers = "-".join(str(run.id) for run in comparison.runs)
    write_page(found, output or Path(f"compare-{numbers}.html"), force=force)


_RELATIONS = 10  # of which quality is compared without --all


def _quality(
    comparison: Comparison, qualities: Sequence[Sequence[QualityGroup]], *, everything: bool
) -> list[str]:
    """Return the MRR of each group of test triples for each run, with its interval."""
    rows, left_out = compared_quality(qualities, relations=None if everything else _RELATIONS)
    heads = [f"{run.id} {one_line(run.label)}" for run in comparison.runs]
    more = [f"{left_out:,} more relations: --all shows them."] if left_out else []
    return ["", *table(("MRR (RANKS)", *heads), rows, right=frozenset(heads)), *more] if rows else []


def as_table(comparison: Comparison) -> dict[str, Any]:
    return {
        "run": [runs.as_table(run) for run in comparison.runs],
        "same_machine": comparison.same_machine,
        **{
            name: {row.name: list(row.values) for row in rows}
            for name, rows in (
                ("settings", comparison.settings),
                ("options", comparison.options),
                ("environment", comparison.environment),
            )
        },
        "metrics": {
            one.name: {
                "unit": one.unit,
                "values": list(one.values),
                "quartiles": [list(pair) if pair else None for pair in one.spread],
                "ratios": [comparison.ratio(one, i) for i in range(len(one.values))],
            }
            for one in comparison.metrics
        },
    }


def page(comparison: Comparison, *, everything: bool) -> list[str]:
    heads = [f"{run.id} {one_line(run.label)}" for run in comparison.runs]
    about = [("state", *(run.state for run in comparison.runs))]
    out = [*table(("", *heads), about), *_verdict(comparison, heads)]
    for title, rows in (
        ("SETTING", comparison.settings),
        ("APPLIED OPTION", comparison.options),
        ("ENVIRONMENT", comparison.environment),
    ):
        shown = [row for row in rows if everything or row.differs]
        if shown:
            out += ["", *table((title, *heads), [_values(row) for row in shown])]
        else:
            out += ["", f"{title.lower()}: no differences"]
    metrics = comparison.metrics if everything else comparison.shown
    right = frozenset(heads)
    out += ["", *table(("METRIC", *heads), [_measured(one, comparison) for one in metrics], right=right)]
    if any(comparison.best(one) for one in metrics):
        out.append("★ is the best value of a row. Ratios are to the first run.")
    if comparison.left_out and not everything:
        out.append(f"… and {comparison.left_out:,} more metrics: --all shows them.")
    for caution in comparison.cautions:
        out += ["", caution]
    return out


def _verdict(comparison: Comparison, heads: Sequence[str]) -> list[str]:
    """Which run is best by the first metric that says what a run reached."""
    by_name = {one.name: one for one in comparison.shown}
    first = next((by_name[name] for name in headlines(by_name) if comparison.best(by_name[name])), None)
    if first is None:
        return []
    reached = [f"{head}: {amount(first.values[i], first.unit)}" for i, head in enumerate(heads)]
    best = " and ".join(heads[i] for i in comparison.best(first))
    return ["", f"best {first.name}: {best} ({', '.join(reached)})"]


def _values(row: Difference) -> Sequence[str]:
    return (row.name, *(UNKNOWN if value is None else value_text(value) for value in row.values))


def _measured(one: Metric, comparison: Comparison) -> Sequence[str]:
    cells, best = [], comparison.best(one)
    for i, value in enumerate(one.values):
        text = f"★ {amount(value, one.unit)}" if i in best else amount(value, one.unit)
        spread = one.spread[i]
        if spread is not None:
            text += f" ({amount(spread[0])}–{amount(spread[1])})"
        ratio = ratio_text(comparison.ratio(one, i)) if i else ""
        cells.append(f"{text}  {ratio}".rstrip())
    return (one.name, *cells)
