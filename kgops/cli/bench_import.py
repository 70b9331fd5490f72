"""`kgops bench import`: import benchmarks and values that another kgops exported as JSON."""

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
    """Import files that `kgops bench export --to json` wrote on any machine.

    A benchmark keeps its pairs, ratios, verdicts and the fingerprint of its machine; values keep their fingerprint.
    Entries that are already in the database are reported and not changed.
    """
    session = for_writing()
    imported = []
    for path in paths:
        imported.append(import_file(session.conn, path))
        if not as_json:
            _say(imported[-1])
    if as_json:
        print_json([asdict(one) for one in imported])


def _say(one: Imported) -> None:
    what = one_line(one.what, 160)
    if one.bench is not None and not one.known:
        say(f"benchmark {one.bench}: imported {what}")
    elif one.bench is not None:
        tell(f"already imported as benchmark {one.bench}: {what}")
    elif one.known:
        tell(f"already imported: {what}")
    else:
        say(f"imported {one.metrics:,} of {what}")
