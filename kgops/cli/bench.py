"""`kgops bench`: benchmarks, each in a process of its own, and what is done with their figures."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click

from kgops.cli.output import say
from kgops.errors import Usage
from kgops.jobs.keys import nearest

# benchmark → what it measures; they are modules of kgops.bench, imported by the process that runs one.
BENCHMARKS: dict[str, str] = {
    "train": "Training beside PyKEEN: speed, memory, quality.",
    "tracin": "TracIn beside sequential and vectorised gradients.",
    "evaluation": "Filtered evaluation beside PyKEEN's.",
    "regress": "Whether each architecture learns heights, and how long it takes.",
    "paths": "Neighbourhood filters beside enumeration.",
    "plans": "Predicted tensors beside counted ones, and planning's time.",
    "memory": "Predicted process memory beside measured, on the CPU.",
    "pace": "How well the planner orders settings by their speed.",
    "history": "A hundred thousand runs and a log of a million lines.",
    "console": "What the console and the supervisor cost.",
    "screens": "What the dashboard costs: CPU, memory, bytes, keys.",
    "gpu": "All of it that needs a card.",
}

# benchmark → what to type behind its name; where nothing is said, that it should be quick.
_TYPED = {
    "train": "--data DIR --quick --only batch",
    "tracin": "--data DIR --quick",
    "evaluation": "--data DIR",
    "paths": "--data DIR",
    "pace": "--settings 24",
    "memory": "--jobs 1,2,9",
}


def names() -> list[str]:
    """Those that this kgops has."""
    folder = Path(__file__).parents[1] / "bench"
    return [name for name in BENCHMARKS if (folder / f"{name}.py").is_file()]


# What is done with runs and figures: commands of their own, in kgops/cli/bench_VERB.py.
VERBS: dict[str, str] = {
    "claims": "What was written down about speed and memory, measured here.",
    "matrix": "Any job with settings varied, run in turns and compared.",
    "show": "What was measured: benchmarks, one of them, or figures.",
    "compare": "Two benchmarks side by side, and whether they agree.",
    "export": "Tables, data and charts of what was measured.",
    "import": "What was exported elsewhere, taken into the record.",
}


class _Benchmarks(click.Group):
    """Knows verbs and benchmarks by name, and imports the verb that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS, *names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:
            found: click.Command = importlib.import_module(f"kgops.cli.bench_{cmd_name}").command
            return found
        return _benchmark(cmd_name) if cmd_name in names() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            raise Usage(f"there is no benchmark {args[0]!r:.60}{nearest(args[0], dict.fromkeys(known))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))
        with formatter.section("Benchmarks of kgops itself"):
            formatter.write_dl([(name, BENCHMARKS[name]) for name in names()])


@click.group(cls=_Benchmarks, epilog="\b\nExample:  kgops bench train --data DIR --quick --only batch")
def command() -> None:
    """Measure here and now, and compare what was measured.

    Benchmarks of kgops itself take arguments of their own: `kgops bench NAME --help` lists them. Most know --quick for
    a rougher figure sooner, and --store to keep the figures in the database; their exit code is 1 if a figure misses
    its target.
    """


def _benchmark(name: str) -> click.Command:
    """Everything behind its name is the benchmark's own."""
    example = f"Example:  kgops bench {name} {_TYPED.get(name, '--quick')}"

    @click.command(
        name,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
        epilog=f"\b\n{example}",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def run(ctx: click.Context, arguments: tuple[str, ...]) -> None:
        words = [sys.executable, "-P", "-m", f"kgops.bench.{name}", *arguments]
        if {"-h", "--help"} & set(arguments):
            code = subprocess.call(words)
            say(f"\n{example}")
            ctx.exit(code)
        sys.stdout.flush()
        # In this process's place: signals, exit code and output are the benchmark's.
        os.execv(sys.executable, words)

    return run
