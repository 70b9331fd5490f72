"""`kgops bench import`: benchmarks and values from elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_writing
from kgops.experiments.import_results import Imported, import_file
from kgops.jobs.text import one_line


@click.command(epilog="\b\nExample:  kgops bench import bench-3.json")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """Take in what `kgops bench export --to json` wrote, here or on another machine.

    A benchmark comes with every pair, and has the same ratios and verdicts as where it was held; values come alone.
    Both keep the fingerprint of their machine. What is in the record already is named and left as it is.
    """
    session = for_writing()
    found = []
    for path in paths:
        found.append(import_file(session.conn, path))
        if not as_json:
            _say(found[-1])
    if as_json:
        print_json([asdict(one) for one in found])


def _say(one: Imported) -> None:
    what = one_line(one.what, 160)
    if one.bench is not None and not one.known:
        say(f"benchmark {one.bench}: imported {what}")
    elif one.bench is not None:
        tell(f"benchmark {one.bench} is this already: {what}")
    elif one.known:
        tell(f"{what}: all of them are here already")
    else:
        say(f"imported {one.metrics:,} of {what}")
