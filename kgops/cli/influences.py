"""`kgops influences`: show the influences (training triples and scores) of each test triple of a TracIn run."""

from __future__ import annotations

from dataclasses import asdict

import click

from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, existing
from kgops.errors import Usage
from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, amount, table
from kgops.present.influences import rest_of
from kgops.workloads.results import Result, leaves
from storage import influences, reports
from storage.influences import Influence, TestTriple
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
    every = influences.tests_of(session.conn, run.id)
    tests = [one for one in every if test in (None, one.test)]
    rest = rest_of(session.conn, run, len(every), top)
    if not tests:
        which = "" if test is None else f" {test}"
        traces = leaves(run.workload, "influences")
        is_unfinished = traces and run.state != "succeeded"
        unfinished = f": it is {run.state.replace('_', ' ')}" if is_unfinished else ""
        raise Usage(
            f"run {run.id} ({run.workload}) has no test triple{which}{unfinished}",
            _self_influence_hint(session, run) or rest or _hint(run, test, every),
        )
    if rest is not None:
        tell(f"Note: {one_line(rest)}.")
    if as_json:
        print_json([_as_table(session, run, one, top) for one in tests])
        return
    if test is None and len(tests) > 1:
        for line in _overview(session, run, tests):
            say(line)
        return
    for line in page(session, run, tests[0], top):
        say(line)


def _hint(run: Run, test: int | None, every: list[TestTriple]) -> str:
    """Return where to find what the run has, or which run would have influences."""
    if test is not None and every:
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


def page(session: Session, run: Run, test: TestTriple, top: int) -> list[str]:
    """Return one test triple with its strongest influences, with readable names."""
    names = influences.names(session.conn, run.id)
    strongest = _strongest(influences.of_test(session.conn, run.id, test.test), top)
    scored = f", {test.candidates:,} training triples" if test.candidates is not None else ""
    out = [f"test {test.test} · {_named(names, test.head, test.relation, test.tail)}{scored}"]
    if test.trouble:
        return [*out, f"  {one_line(test.trouble)}"]
    rows = [
        (f"{i.score:+.4g}", *(names.get(label, label) for label in (i.head, i.relation, i.tail)))
        for i in strongest
    ]
    return out + [
        "  " + line for line in table(("SCORE", "HEAD", "RELATION", "TAIL"), rows, right=frozenset({"SCORE"}))
    ]


def _overview(session: Session, run: Run, tests: list[TestTriple]) -> list[str]:
    names = influences.names(session.conn, run.id)
    rows = []
    for test in tests:
        strongest = _strongest(influences.of_test(session.conn, run.id, test.test), 1)[:1]
        best = strongest[0] if strongest else None
        rows.append(
            (
                str(test.test),
                _named(names, test.head, test.relation, test.tail),
                UNKNOWN if best is None else f"{best.score:+.4g}",
                test.trouble or (_named(names, best.head, best.relation, best.tail) if best else "none"),
            )
        )
    return table(("TEST", "TRIPLE", "SCORE", "STRONGEST"), rows, right=frozenset({"TEST", "SCORE"}))


def _strongest(scored: list[Influence], top: int) -> list[Influence]:
    """Return the `top` strongest of each sign, highest score first."""
    return [one for one in scored if abs(one.rank) <= top]


def _named(names: dict[str, str], *labels: str) -> str:
    return " · ".join(one_line(names.get(label, label)) for label in labels)


def _as_table(session: Session, run: Run, test: TestTriple, top: int) -> dict[str, object]:
    strongest = _strongest(influences.of_test(session.conn, run.id, test.test), top)
    names = influences.names(session.conn, run.id)
    return {**asdict(test), "influences": [asdict(one) for one in strongest], "names": names}


def summary(session: Session, run: Run) -> list[str]:
    """Return the lines for the end of a run: its first test triple, and the command for the others."""
    tests = influences.tests_of(session.conn, run.id)
    metrics = reports.metrics(session.conn, run.id)
    if f"{_SELF_INFLUENCE}_total" in metrics:
        total, mean, largest = (
            amount(metrics.get(f"{_SELF_INFLUENCE}_{name}")) for name in ("total", "mean", "largest")
        )
        many = amount(metrics.get("train_triples"))
        return [f"self-influence of {many} training triples: total {total}, mean {mean}, largest {largest}"]
    first = next((test for test in tests if test.trouble is None), None)
    if first is None:
        return []
    out = page(session, run, first, 5)
    if len(tests) > 1:
        out.append(f"{amount(len(tests))} test triples: `kgops influences {run.id}` lists them.")
    return out
