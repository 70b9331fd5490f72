"""`kgops bench`: run paired comparisons, and show, compare, export or import benchmarks."""

from __future__ import annotations

import importlib

import click

from kgops.cli.groups import NamedCommands

# Each is a command in kgops/cli/bench_NAME.py.
VERBS: dict[str, str] = {
    "claims": "Measure which options pay on this machine.",
    "matrix": "Compare any job with settings varied, in interleaved runs.",
    "show": "Show benchmarks, or which options pay here.",
    "compare": "Compare two benchmarks and say whether they agree.",
    "export": "Export tables, data and charts.",
    "import": "Import benchmarks exported on another machine.",
}


class _Verbs(NamedCommands):
    summaries = VERBS

    def find(self, name: str) -> click.Command:
        command: click.Command = importlib.import_module(f"kgops.cli.bench_{name}").command
        return command


@click.group(cls=_Verbs, epilog="\b\nExample:  kgops bench claims --quick --only b")
def command() -> None:
    """Measure speed and memory on this machine, and compare the results."""
