"""`kgops bench`: measurements of kgops, each in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from kgops.errors import Usage
from kgops.jobs.keys import nearest

# benchmark → what it measures; they are modules of kgops.bench, imported by the process that runs one.
BENCHMARKS: dict[str, str] = {
    "train": "Training beside PyKEEN: speed, memory, quality.",
    "tracin": "TracIn beside sequential and vectorised gradients.",
    "evaluation": "Filtered evaluation beside PyKEEN's.",
    "paths": "Neighbourhood filters beside enumeration.",
    "pace": "How well the planner orders settings by their speed.",
    "history": "A hundred thousand runs and a log of a million lines.",
    "console": "What the console and the supervisor cost.",
    "screens": "What the dashboard costs: CPU, memory, bytes, keys.",
    "gpu": "All of it that needs a card.",
}


def names() -> list[str]:
    """Those that this kgops has."""
    folder = Path(__file__).parents[1] / "bench"
    return [name for name in BENCHMARKS if (folder / f"{name}.py").is_file()]


class _Benchmark(click.Command):
    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, BENCHMARKS[name]) for name in names()])


@click.command(
    cls=_Benchmark,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="\b\nExample:  kgops bench train --data DIR --quick --only batch",
)
@click.argument("name", metavar="NAME")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def command(name: str, arguments: tuple[str, ...]) -> None:
    """Measure kgops here and now; exit code 1 if a figure misses its target.

    The arguments are the benchmark's own: `kgops bench NAME --help` lists them. Most know --quick for a
    rougher figure sooner, and --store to keep the figures in the database.
    """
    known = names()
    if name not in known:
        raise Usage(f"there is no benchmark {name!r:.60}{nearest(name, dict.fromkeys(known))}")
    sys.stdout.flush()
    # In this process's place: signals, exit code and output are the benchmark's.
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"kgops.bench.{name}", *arguments])
