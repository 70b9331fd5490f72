"""`kgops bench`: paired comparisons, claims, and what was measured of both."""

from __future__ import annotations

import importlib

import click

from kgops.errors import Usage
from kgops.jobs.keys import nearest

# Commands of their own, in kgops/cli/bench_VERB.py.
VERBS: dict[str, str] = {
    "claims": "What was written down about speed and memory, measured here.",
    "matrix": "Any job with settings varied, run in turns and compared.",
    "show": "What was measured: benchmarks, one of them, or values.",
    "compare": "Two benchmarks side by side, and whether they agree.",
    "export": "Tables, data and charts of what was measured.",
    "import": "What was exported on another machine, read into the record.",
}


class _Verbs(click.Group):
    """Imports the verb that is called, and no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        found: click.Command = importlib.import_module(f"kgops.cli.bench_{cmd_name}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS:
            raise Usage(
                f"there is no command {args[0]!r:.60} of bench{nearest(args[0], dict.fromkeys(VERBS))}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, epilog="\b\nExample:  kgops bench claims --quick --only b")
def command() -> None:
    """Measure here and now, and compare what was measured."""
