"""`kgops bench`: run paired comparisons, and show, compare, export or import benchmarks."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgops.cli.groups import NamedCommands
from kgops.cli.output import print_json, say, tell, write_page
from kgops.jobs.text import one_line

if TYPE_CHECKING:
    from kgops.experiments.export import Imported

# Those not in this file are commands in kgops/cli/bench_NAME.py.
VERBS: dict[str, str] = {
    "claims": "Measure which options pay on this machine.",
    "matrix": "Compare any job with settings varied, in interleaved runs.",
    "show": "Show benchmarks, or which options pay here.",
    "compare": "Compare two benchmarks and say whether they agree.",
    "export": "Export a benchmark as Markdown or JSON.",
    "import": "Import benchmarks exported on another machine.",
}


class _Verbs(NamedCommands):
    summaries = VERBS

    def find(self, name: str) -> click.Command:
        here: dict[str, click.Command] = {"export": export, "import": import_}
        if name in here:
            return here[name]
        command: click.Command = importlib.import_module(f"kgops.cli.bench_{name}").command
        return command


@click.group(cls=_Verbs, epilog="\b\nExample:  kgops bench claims --quick --only b")
def command() -> None:
    """Measure speed and memory on this machine, and compare the results."""


@click.command(epilog="\b\nExample:  kgops bench export 3 --to md --output speed.md")
@click.argument("bench")
@click.option("--to", "kind", type=click.Choice(("md", "json")), required=True, help="Format.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Output file; default: stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def export(bench: str, kind: str, output: Path | None, force: bool) -> None:
    """Export one benchmark.

    \b
    md       a table for a paper, with command and fingerprint
    json     the whole benchmark, down to each run of each pair, for `kgops bench import`
    """
    from kgops.cli.bench_page import as_markdown
    from kgops.cli.bench_show import find
    from kgops.cli.session import existing
    from kgops.experiments.export import as_table

    session = existing()
    conn, one = session.conn, find(session, bench)
    text = as_markdown(conn, one) if kind == "md" else json.dumps(as_table(conn, one), indent=1)
    if output is None:
        say(text)
    else:
        write_page(text + "\n", output, force=force)


@click.command(epilog="\b\nExample:  kgops bench import bench-3.json")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def import_(paths: tuple[Path, ...], as_json: bool) -> None:
    """Import files that `kgops bench export --to json` wrote on any machine.

    A benchmark keeps its pairs, ratios, verdicts and the fingerprint of its machine.
    Benchmarks that are already in the database are reported and not changed.
    """
    from kgops.cli.session import for_writing
    from kgops.experiments.export import import_file

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
    if one.known:
        tell(f"already imported as benchmark {one.bench}: {what}")
    else:
        say(f"benchmark {one.bench}: imported {what}")
