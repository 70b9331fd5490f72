"""`kgops bench`: run paired comparisons, check claims, and show, compare, export or import benchmarks."""

from __future__ import annotations

import importlib

import click

from kgops.errors import Usage
from kgops.options.reading import nearest

# Each is a command in kgops/cli/bench_NAME.py.
VERBS: dict[str, str] = {
    "claims": "Measure documented claims about speed and memory.",
    "matrix": "Compare any job with settings varied, in interleaved runs.",
    "show": "Show benchmarks, verdicts on claims, or measured values.",
    "compare": "Compare two benchmarks and say whether they agree.",
    "export": "Export tables, data and charts.",
    "import": "Import benchmarks exported on another machine.",
}


class _Verbs(click.Group):
    """Group that imports only the subcommand that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"kgops.cli.bench_{cmd_name}").command
        return command

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
    """Measure speed and memory on this machine, and compare the results."""
