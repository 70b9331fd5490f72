"""`kgops runs`: the history, filtered, sorted, searched, page by page."""

from __future__ import annotations

import re
import time

import click

from kgops.cli.output import duration, figure, moment, print_json, say, table, tell
from kgops.cli.session import Session, for_reading
from kgops.errors import Usage
from storage import runs
from storage.errors import DatabaseMissing

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@click.command(epilog="\b\nExample:  kgops runs --state failed --since 7d --sort peak_host_mib --limit 20")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(runs.STATES),
    help="Only runs in this state; may be repeated.",
)
@click.option("--workload", help="Only this kind of work.")
@click.option("--tag", help="Only runs with this tag.")
@click.option("--search", "words", help="Only runs with these words in label, command, tags or notes.")
@click.option("--since", help="Only runs submitted in the last 30m, 12h, 7d, 2w …")
@click.option(
    "--sort", default="id", show_default=True, help="Column to sort by; `--json` shows their names."
)
@click.option("--ascending", is_flag=True, help="Smallest first.")
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 100_000), help="Runs on a page."
)
@click.option(
    "--after", type=click.IntRange(1, 1 << 62), metavar="RUN", help="The page that follows this run."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; keys are the database's columns.")
def command(
    states: tuple[str, ...],
    workload: str | None,
    tag: str | None,
    words: str | None,
    since: str | None,
    sort: str,
    ascending: bool,
    limit: int,
    after: int | None,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    if sort not in runs.SORTABLE:
        from kgops.jobs.keys import nearest

        raise Usage(f"cannot sort by {sort!r}{nearest(sort, dict.fromkeys(runs.COLUMNS))}")
    wanted = runs.Filter(states, workload, tag, words, _beginning(since))
    try:
        session = for_reading()
    except DatabaseMissing:
        if as_json:
            print_json([])
        else:
            tell("No runs yet. Start one:  kgops run exec -- python train.py")
        return
    page = runs.page(session.conn, wanted, sort=sort, descending=not ascending, limit=limit, after=after)
    if as_json:
        print_json([runs.as_table(run) for run in page])
        return
    _print(session, page, limit)


def _print(session: Session, page: list[runs.Run], limit: int) -> None:
    if not page:
        tell("No run matches.")
        return
    now = time.time()
    rows = [
        (
            str(run.id),
            run.workload,
            run.state,
            moment(run.submitted_at),
            duration((run.ended_at or now) - run.started_at if run.started_at else None),
            f"{run.metric} {figure(run.metric_value)}" if run.metric else "",
            run.label + (f"  ({run.reason})" if run.reason and run.state != "cancelled" else ""),
        )
        for run in page
    ]
    heads = ("RUN", "WORKLOAD", "STATE", "SUBMITTED", "TIME", "METRIC", "LABEL")
    for line in table(heads, rows, right=frozenset({"RUN", "TIME"})):
        say(line)
    if len(page) == limit:
        tell(f"The next page: --after {page[-1].id}")


def _beginning(since: str | None) -> float | None:
    if since is None:
        return None
    span = re.fullmatch(r"(\d{1,9})([smhdw])", since)
    if span is None:
        raise Usage(f"--since {since!r} is no span of time", "write 30m, 12h, 7d or 2w")
    return time.time() - int(span[1]) * _SECONDS[span[2]]
