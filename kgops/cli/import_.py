"""`kgops import`: import runs from exported JSON, run folders of another home, or result folders of scripts."""

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
@click.option("--twice", is_flag=True, help="Import runs that are in the database already once more.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(paths: tuple[Path, ...], twice: bool, as_json: bool) -> None:
    """Import runs; `kgops show` names the source of each.

    \b
    run.json        written by `kgops export --to json` on any machine: the whole record
    run folder      of another home: its files are copied; tags, notes, exit codes of attempts, memory
                    curves and peaks are only in exports
    result folder   of the original scripts or --output-dir: training_history.json, config.json,
                    test_results.json, batch_tracin_summary.json, TracIn CSV; other values stay unknown
    """
    session = for_writing()
    imported = []
    for path in paths:
        for one in import_from(session.home, session.conn, path, again=twice):
            imported.append(one)
            say_imported(one, as_json=as_json)
    if as_json:
        print_json([asdict(one) for one in imported])


def say_imported(one: Imported, source: str = "", *, as_json: bool) -> None:
    """`source`: the origin, if it is no path of the command. Also next to JSON, which a later failure leaves out."""
    what = one_line(one.what, 160)
    if one.number is not None:
        (tell if as_json else say)(f"run {one.number}: imported {source}{what}")
        if one.known:
            tell(f"Note: run {', '.join(map(str, one.known))} is a copy of the same run, imported earlier")
    else:
        numbers = ", ".join(map(str, one.known))
        tell(f"already imported as run {numbers}: {what} (--twice imports it once more)")
    for trouble in one.troubles:
        tell(f"Warning: {one_line(trouble)}")
