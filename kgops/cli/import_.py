"""`kgops import`: runs from elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_writing
from kgops.interchange.importing import Imported, import_from
from kgops.jobs.text import one_line


@click.command(
    epilog="\b\nExample:  kgops import run-12.json ~/old/.kgops/runs/0042-train-nations results/robokop"
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--again", is_flag=True, help="Also what is in the record already, as one more run.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(paths: tuple[Path, ...], again: bool, as_json: bool) -> None:
    """Make runs of what was done elsewhere; the record says of each where it came from.

    \b
    a file      that `kgops export --to json` wrote, here or on another machine: the same run again
    a folder    of a run, from another home: its files are copied; memory over time is in exports alone
    a folder    that the group's scripts or --output-dir left: training_history.json, config.json,
                test_results.json, batch_tracin_summary.json, TracIn's CSV; what they do not say stays unknown
    """
    session = for_writing()
    found = []
    for path in paths:
        for one in import_from(session.home, session.conn, path, again=again):
            found.append(one)
            if not as_json:
                _say(one)
    if as_json:
        print_json([asdict(one) for one in found])


def _say(one: Imported) -> None:
    what = one_line(one.what, 160)
    if one.number is not None:
        say(f"run {one.number}: imported {what}")
    else:
        numbers = ", ".join(map(str, one.known))
        tell(f"run {numbers} is this already: {what} (--again imports it once more)")
    for trouble in one.troubles:
        tell(f"Warning: {one_line(trouble)}")
