"""`kgops show` and `kgops report`: a run as text, or as one HTML page."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import say_result, write_page
from kgops.cli.session import Session, existing, is_far
from kgops.errors import NoSuchRun
from kgops.jobs.text import lines, one_line
from kgops.present import result_sections, run_sections
from kgops.present.formats import columns, local_time
from kgops.present.glance import settings_text
from kgops.present.log_lines import newest_lines
from kgops.present.rows import Fact, Section, printed, printed_facts
from kgops.present.run_detail import read_run_detail
from kgops.supervisor.worker_reports import data_digests
from kgops.workloads.results import leaves
from storage import attempts, reports, runs, series
from storage.runs import Run

_SHOWN_WITH_LOG = ("failed", "out_of_memory", "interrupted")
_LOG_LINES, _LOG_BYTES = 8, 16 << 10


@click.command(epilog="\b\nExample:  kgops show last\n          kgops show lab2:17")
@click.argument("name", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; keys are the database's columns.")
def command(name: str, as_json: bool) -> None:
    """Show a run: state and reason, attempts, options, metrics, artifacts, messages of the worker, tags and notes.

    lab2:17 is run 17 of host lab2.
    """
    if is_far(name):
        from kgops.cli.on_hosts import show_there

        show_there(name, as_json=as_json)
        return
    session = existing()
    run = session.run(name)
    say_result(as_json, lambda: as_table(session, run), lambda: _page(session, run))


def as_table(session: Session, run: Run) -> dict[str, Any]:
    conn = session.conn
    spec = runs.spec(conn, run.id)
    return {
        **runs.as_table(run),
        "path": str(session.folder(run).path),
        "attempt": [asdict(attempt) for attempt in attempts.of_run(conn, run.id)],
        "option": [asdict(option) for option in reports.options(conn, run.id)],
        "metric": reports.metrics(conn, run.id),
        "series": [asdict(one) for one in series.of_run(conn, run.id)],
        "data": data_digests(conn, run.id),
        "event": [asdict(event) for event in reports.events(conn, run.id)],
        "artifact": [asdict(artifact) for artifact in reports.artifacts(conn, run.id)],
        "tag": reports.tags(conn, run.id),
        "note": [asdict(note) for note in reports.notes(conn, run.id)],
        "job": spec.job,
        "plan": spec.plan,
        "environment": spec.environment,
    }


def _page(session: Session, run: Run) -> list[str]:
    folder = session.folder(run)
    detail = read_run_detail(session.home, session.conn, run.id, points=0)
    if detail is None:
        raise NoSuchRun(f"run {run.id} has just been deleted", "`kgops runs` lists runs")
    facts = [
        run_sections.state(detail),
        *run_sections.times(detail),
        *run_sections.facts(detail),
        *([Fact("settings", settings)] if (settings := settings_text(detail.job)) else []),
        Fact("folder", str(folder.path)),
        *filter(None, [run_sections.progress(detail)]),
    ]
    out = [f"run {run.id} · {run.workload} · {one_line(run.label)}", *printed_facts(facts)]
    for shown in (
        run_sections.attempts(detail),
        run_sections.options(detail),
        run_sections.metrics(detail),
        run_sections.curves(detail),
        run_sections.artifacts(detail),
        run_sections.quality(detail),
    ):
        out += printed(shown)
    out += ["", *answered] if (answered := answers(folder.results)) else []
    if leaves(run.workload, "explanations"):
        out += ["", *explained] if (explained := explanations(folder.results)) else []
    out += printed(run_sections.messages(detail))
    if run.state in _SHOWN_WITH_LOG and (last := _last_lines(session, run)):
        out += [
            "",
            f"LAST LINES OF THE LOG (kgops logs {run.id} prints all)",
            *(f"  {line}" for line in last),
        ]
    for note in detail.notes:
        out += ["", f"note of {local_time(note.at)}", *("  " + line for line in lines(note.text).split("\n"))]
    return out


_ANSWERS, _QUESTIONS, _PREDICTIONS, _PATHS = 10, 3, 5, 3  # shown


def answers(results: Path) -> list[str]:
    """Return the first questions with their best answers, and where all of them are; nothing without answers."""
    found, is_more = result_sections.answers(results, questions=_QUESTIONS, most=_ANSWERS)
    lines = [line for title, shown in found for line in (title, *_indented(shown))]
    return [*lines, *([f"all answers: {results / 'predictions.csv'}"] if is_more else [])]


def _indented(shown: Section) -> list[str]:
    return [f"  {line}" for line in printed(shown)[1:]]


def explanations(results: Path) -> list[str]:
    """Return the first explanations, where all of them are, and what retraining found; nothing without them."""
    # With it come pictures of graphs, for no other run.
    from kgops.present.explained_run import limits_of, title_of_prediction, verdict_of
    from kgops.present.explanations import read_explanations, read_verification

    found, has_more = read_explanations(results, predictions=_PREDICTIONS)
    lines = []
    for one in found:
        listed = [*_indented(result_sections.facts(one)), *_indented(result_sections.paths(one, _PATHS))]
        lines += [title_of_prediction(one), *listed, f"  {verdict_of(one)}"]
    if any(one.facts for one in found):
        lines.append(limits_of(found[0]))
    verified = read_verification(results) if found else None
    return [
        *lines,
        *([one_line(verified.sentence)] if verified is not None else []),
        *([f"all explanations: {results / 'explanations.csv'}"] if has_more else []),
    ]


def _last_lines(session: Session, run: Run) -> list[str]:
    with suppress(OSError):
        last = newest_lines(session.folder(run).log, _LOG_BYTES, _LOG_BYTES)
        return [line[: columns() - 2] for line in last if line.strip()][-_LOG_LINES:]
    return []


@click.command(
    epilog="\b\nExample:  kgops report 42 --output run-42.html\n          kgops report lab2:17 --output lab2-17.html"
)
@click.argument("name", metavar="RUN")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Output file; default: run-N.html in this folder."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def report(name: str, output: Path | None, force: bool) -> None:
    """Write a run as one self-contained HTML page: results, curves, memory, options, the record.

    lab2:17 is run 17 of host lab2, which may still run.
    """
    # A page and its pictures take long to import, and `show` needs none.
    from kgops.present.explained_run import read_explained_run
    from kgops.present.influences import of_run
    from kgops.present.report_page import page

    if is_far(name):
        from kgops.cli.on_hosts import report_there

        found, number = report_there(name)
        write_page(found, output or Path(f"run-{number.replace(':', '-')}.html"), force=force)
        return
    session = existing()
    run = session.run(name)
    detail = read_run_detail(session.home, session.conn, run.id)
    assert detail is not None  # the run existed a moment ago
    log = newest_lines(session.folder(run).log, 200)
    influences = of_run(session.home, run.id) if leaves(run.workload, "influences") else None
    target = output or Path(f"run-{run.id}.html")
    has_explanations = leaves(run.workload, "explanations")
    explained = read_explained_run(session.home, run, every=True) if has_explanations else None
    write_page(page(detail, log, influences, explained), target, force=force)
