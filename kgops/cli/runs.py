"""`kgops runs`: list, filter, sort and search runs."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from kgops.cli.groups import OfRuns, hosts_option
from kgops.cli.output import print_json, say_lines, tell
from kgops.cli.session import Session, for_reading
from kgops.errors import Usage
from kgops.present.columns import PRINTED, lines, metric_column
from kgops.settings import find_home
from storage import run_list, runs, series
from storage.errors import DatabaseMissing

if TYPE_CHECKING:
    from storage.filters import Term

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@click.command(
    cls=OfRuns,
    epilog="\b\nExample:  kgops runs 'mrr>0.3 tag:paper -state:failed since:7d' --sort mrr --limit 20\n"
    "          kgops runs workload:train --metric test_mrr --csv --all > runs.csv\n",
)
@click.argument("terms", metavar="[FILTER]", nargs=-1)
@click.option(
    "--state",
    "--status",
    "states",
    multiple=True,
    type=click.Choice(runs.STATES),
    help="Only runs in this state; may be repeated.",
)
@click.option("--workload", help="Only runs of this workload.")
@click.option("--tag", help="Only runs with this tag.")
@click.option("--search", "words", help="Only runs with these words in label, command, tags or notes.")
@click.option("--saved", metavar="NAME", help="Also the filter saved under this name (key F of the history).")
@click.option("--since", help="Only runs submitted in the last 30m, 12h, 7d, 2w …")
@click.option(
    "--sort",
    default="id",
    show_default=True,
    help="Column or metric to sort by, such as time, peak_gpu or mrr (test values first). `--json` shows the columns.",
)
@click.option("--ascending", is_flag=True, help="Sort smallest first.")
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 100_000), help="Runs per page."
)
@click.option("--after", type=click.IntRange(1, 1 << 62), metavar="N", help="Show the page after run N.")
@click.option("--all", "everything", is_flag=True, help="List all runs instead of one page.")
@click.option("--metric", "metrics", multiple=True, help="Add a column with this metric; may be repeated.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV on stdout.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; keys are the database's columns.")
@hosts_option
@click.pass_context
def command(
    ctx: click.Context,
    terms: tuple[str, ...],
    states: tuple[str, ...],
    workload: str | None,
    tag: str | None,
    words: str | None,
    saved: str | None,
    since: str | None,
    sort: str,
    ascending: bool,
    limit: int,
    after: int | None,
    everything: bool,
    metrics: tuple[str, ...],
    as_csv: bool,
    as_json: bool,
    hosts: str | None,
) -> None:
    """List runs, newest first.

    \b
    FILTER has words, keys and metrics. A run must match all of them. A comma means or: state:failed,oom.
      workload:train  state:failed,oom  profile:t4  tag:paper  label:"two words"  note:text
      gpu:t4          since:7d          older:30d   time>2h    until:2026-01-31   peak_gpu>10g
      mrr>0.3         best.loss<0.1     -tag:old    all        hits_at_10:0.3..0.5
    Other words match anywhere in label, command, tags and notes. That day is part of until:2026-01-31.
    Quote FILTER for the shell. If it starts with -, put -- before it.

    With --hosts each host lists and filters its own runs; exit code 1 if one does not answer, which a line says.
    """
    if saved is not None:
        from kgops.present import listing

        terms = (listing.text_of(find_home(), saved), *terms)
    # What is wrong whatever runs there are is refused before any are looked for, here or on a host.
    if as_csv and as_json:
        raise Usage("--csv and --json exclude each other")
    if everything and after is not None:
        raise Usage("--all and --after exclude each other")
    wanted = run_list.Filter(states, workload, tag, words, _beginning(since))
    parsed = _read(" ".join(terms))
    if hosts is not None:
        from kgops.cli.on_hosts import show_runs

        if as_csv or metrics or after is not None or everything:
            raise Usage(
                "--hosts goes with neither --csv, --metric, --after nor --all", "use --json and --limit"
            )
        flags = [word for state in states for word in ("--state", state)]
        for name, value in (("workload", workload), ("tag", tag), ("search", words), ("since", since)):
            flags += [f"--{name}={value}"] if value is not None else []
        flags += [f"--sort={sort}", f"--limit={limit}", *(["--ascending"] if ascending else []), "--", *terms]
        ctx.exit(show_runs(hosts, flags, as_json))
    try:
        session = for_reading()
    except DatabaseMissing:
        if as_json:
            print_json([])
        else:
            _tell_no_run(run_list.EVERYTHING)
        return
    _say_unknown(session, [*(term.key for term in parsed if term.kind == "metric"), *metrics])
    wanted = _with_terms(session, wanted, parsed)
    sort = {"metric": "metric_value"}.get(sort, sort)  # the column of that name shows values
    by_metric = _metric(session, sort)
    order: dict[str, Any] = {"sort": "id" if by_metric else sort, "metric": by_metric}
    order["descending"] = not ascending
    columns = tuple(dict.fromkeys((*metrics, by_metric) if by_metric else metrics))
    if everything:
        numbers = list(run_list.ordered(session.conn, wanted, **order))
        page = [] if as_csv or as_json else run_list.of_numbers(session.conn, numbers)
    else:
        in_numbers = sort == "id"
        if after is not None and not in_numbers and runs.get(session.conn, after) is None:
            raise Usage(
                f"run {after} is gone, and with it its place in this order", "begin again without --after"
            )
        page = run_list.page(session.conn, wanted, **order, limit=limit + 1, after=after)
        is_last = len(page) <= limit
        page = page[:limit]
        numbers = [run.id for run in page]
    if as_csv or (as_json and (everything or columns)):
        from kgops.interchange import export

        for text in (export.as_csv if as_csv else export.as_json)(session.conn, numbers, columns):
            sys.stdout.write(text)
    elif as_json:
        print_json([runs.as_table(run) for run in page])
    else:
        if page:
            _print(session, page, columns)
        else:
            _tell_no_run(wanted, after)
    if not everything and not is_last:
        tell(f"Next page: --after {page[-1].id}; --all lists all runs")


def _tell_no_run(wanted: run_list.Filter, after: int | None = None) -> None:
    if after is not None:
        tell(f"No more runs after {after}.")
    elif wanted != run_list.EVERYTHING:
        tell("No run matches.")
    else:
        tell("No runs yet. Start one:  kgops exec -- python train.py")


def _read(text: str) -> tuple[Term, ...]:
    if not text.strip():
        return ()  # most listings: skip importing the parser
    from kgops.present.listing import strictly

    return strictly(text)


def _with_terms(session: Session, wanted: run_list.Filter, terms: tuple[Term, ...]) -> run_list.Filter:
    if not terms:
        return wanted
    from storage.conditions import compiled

    return wanted._replace(conditions=compiled(session.conn, terms))


def _say_unknown(session: Session, metrics: list[str]) -> None:
    if not metrics:
        return
    from kgops.present.listing import unknown_metrics

    for sentence in unknown_metrics(session.conn, metrics):
        tell(f"Note: {sentence}")


def _metric(session: Session, sort: str) -> str | None:
    """Return the metric to sort by, or None if `sort` is a column."""
    if sort in run_list.SORTABLE:
        return None
    from kgops.present.listing import sort_by

    return sort_by(session.conn, sort).by


def _print(session: Session, page: list[runs.Run], metrics: tuple[str, ...]) -> None:
    numbers = [run.id for run in page]
    own = [
        metric_column(
            name,
            series.of_runs(session.conn, numbers, name),
            series.of_validation(session.conn, numbers, name),
        )
        for name in metrics
    ]
    *before, metric, label = PRINTED
    columns = [*before, *own, metric, label]
    say_lines(lines(columns, page, time.time()))


def _beginning(since: str | None) -> float | None:
    if since is None:
        return None
    span = re.fullmatch(r"(\d{1,9})([smhdw])", since)
    if span is None:
        raise Usage(f"--since {since!r} is not a time span", "write 30m, 12h, 7d or 2w")
    return time.time() - int(span[1]) * _SECONDS[span[2]]
