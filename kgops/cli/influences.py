"""`kgops influences`: show the influences (training triples and scores) of each test triple of a TracIn run."""

from __future__ import annotations

from dataclasses import asdict

import click

from kgops.cli.output import say_result, tell
from kgops.cli.session import Session, existing
from kgops.errors import Usage
from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, amount, table
from kgops.present.influences import RunInfluences, read
from kgops.present.result_sections import test_triple, title_of_test
from kgops.present.rows import printed
from kgops.workloads.results import Result, leaves
from storage import reports
from storage.influences import TestTriple
from storage.runs import UNFINISHED, Run

_SELF_INFLUENCE = "self_influence"
_SHOWN_BY_SHOW: dict[Result, str] = {"explanations": "explanations", "answers": "predictions"}


@click.command(epilog="\b\nExample:  kgops influences last --test 1")
@click.argument("name", metavar="RUN")
@click.option("--test", type=click.IntRange(1), help="Show this test triple only, by number.")
@click.option(
    "--top-k",
    "top",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Positive and negative influences to show, each.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; keys are the database's columns.")
def command(name: str, test: int | None, top: int, as_json: bool) -> None:
    """Show the influences of a TracIn run: training triples that raised the model's score of a test triple
    (positive) or lowered it (negative)."""
    session = existing()
    run = session.run(name)
    found = read(session.conn, run, top)
    tests = [one for one in found.tests if test in (None, one.test)]
    if not tests:
        which = "" if test is None else f" {test}"
        traces = leaves(run.workload, "influences")
        is_unfinished = traces and run.state != "succeeded"
        unfinished = f": it is {run.state.replace('_', ' ')}" if is_unfinished else ""
        raise Usage(
            f"run {run.id} ({run.workload}) has no test triple{which}{unfinished}",
            _self_influence_hint(session, run) or found.rest or _hint(found, test),
        )
    if found.rest is not None:
        tell(f"Note: {one_line(found.rest)}.")
    say_result(
        as_json,
        lambda: [_as_table(found, one, top) for one in tests],
        lambda: _page(found, tests[0], top) if len(tests) == 1 else _overview(found, tests),
    )


def _hint(found: RunInfluences, test: int | None) -> str:
    """Return where to find what the run has, or which run would have influences."""
    run = found.run
    if test is not None and found.tests:
        return f"`kgops influences {run.id}` lists its test triples"
    if leaves(run.workload, "influences") and run.state in UNFINISHED:
        return f"`kgops logs -f {run.id}` follows it"
    if leaves(run.workload, "influences") and run.state != "succeeded":
        return f"`kgops show {run.id}` says why; `kgops resume {run.id}` continues it"
    for result, what in _SHOWN_BY_SHOW.items():
        if leaves(run.workload, result) and not leaves(run.workload, "influences"):
            return f"`kgops show {run.id}` has its {what}"
    return "name a TracIn run: `kgops runs` lists runs"


def _self_influence_hint(session: Session, run: Run) -> str | None:
    """Return where a self-influence run wrote its scores; None for other runs."""
    files = [one.path for one in reports.artifacts(session.conn, run.id) if _SELF_INFLUENCE in one.path]
    return f"this run computed self-influences: {session.folder(run).path / files[0]}" if files else None


def _page(found: RunInfluences, test: TestTriple, top: int) -> list[str]:
    """Return one test triple with its strongest influences, with readable names."""
    lines = [one_line(test.trouble)] if test.trouble else printed(test_triple(found, test, top))[1:]
    return [title_of_test(found, test), *(f"  {line}" for line in lines)]


def _overview(found: RunInfluences, tests: list[TestTriple]) -> list[str]:
    rows = []
    for test in tests:
        best = next(iter(found.strongest(test, 1)), None)
        score, words = (UNKNOWN, "none") if best is None else (f"{best.score:+.4g}", found.words(best))
        rows.append((str(test.test), found.words(test), score, test.trouble or words))
    return table(("TEST", "TRIPLE", "SCORE", "STRONGEST"), rows, right=frozenset({"TEST", "SCORE"}))


def _as_table(found: RunInfluences, test: TestTriple, top: int) -> dict[str, object]:
    strongest = [asdict(one) for one in found.strongest(test, top)]
    return {**asdict(test), "influences": strongest, "names": found.names}


def summary(session: Session, run: Run) -> list[str]:
    """Return the lines for the end of a run: its first test triple, and the command for the others."""
    metrics = reports.metrics(session.conn, run.id)
    if f"{_SELF_INFLUENCE}_total" in metrics:
        total, mean, largest = (
            amount(metrics.get(f"{_SELF_INFLUENCE}_{name}")) for name in ("total", "mean", "largest")
        )
        many = amount(metrics.get("train_triples"))
        return [f"self-influence of {many} training triples: total {total}, mean {mean}, largest {largest}"]
    found = read(session.conn, run)
    first = next((test for test in found.tests if test.trouble is None), None)
    if first is None:
        return []
    out = _page(found, first, 5)
    if len(found.tests) > 1:
        out.append(f"{amount(len(found.tests))} test triples: `kgops influences {run.id}` lists them.")
    return out
