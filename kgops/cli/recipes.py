"""`kgops recipes`: list and show the jobs that ship with kgops, and what each was measured to reach."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import log
from pathlib import Path
from statistics import mean, stdev

import click

from kgops.cli.output import print_json, say, say_lines, say_result
from kgops.errors import Usage
from kgops.jobs.files import read_named
from kgops.jobs.text import lines
from kgops.present.formats import UNKNOWN, columns, duration, table, wrapped
from kgops.present.quality import FILTERS
from kgops.workloads.graphs.counts import counts_of, sizes_of
from kgops.workloads.job_files import LARGEST_JOB_FILE
from kgops.workloads.train import recipes
from kgops.workloads.train.recipes import Measured

_POINTS = 20  # of a curve, at most


@click.group(invoke_without_command=True, epilog="\b\nExample:  kgops recipes show umls")
@click.option(
    "--train", type=click.Path(path_type=Path), help="Name the best recipe for a graph like this one."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, train: Path | None, as_json: bool) -> None:
    """List recipes: jobs for known graphs, with the test MRR and the time that each was measured to take.

    --train FILE names the one to take for a graph of your own: the best on the graph whose size is most like it.
    """
    if ctx.invoked_subcommand is not None:
        return
    every = {name: recipes.measured(name) for name in recipes.names()}
    if train is not None:
        say_lines(_taken(train, every))
        return
    rows = [(name, _dataset(name), *_in_short(found)) for name, found in every.items()]
    heads = ("RECIPE", "GRAPH", "TEST MRR", "SEEDS", "TIME", "MEASURED ON")
    said = table(heads, rows, right=frozenset(("SEEDS", "TIME")))
    say_result(as_json, lambda: [_as_table(name, found) for name, found in every.items()], lambda: said)


@command.command(epilog="\b\nExample:  kgops recipes show umls")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def show(name: str, as_json: bool) -> None:
    """Print a recipe and what it was measured to reach: metrics of each seed, and validation MRR by epoch."""
    found, path = recipes.measured(name), recipes.find(name)
    if as_json:
        print_json(_as_table(name, found))
        return
    text = read_named(path, "recipe", LARGEST_JOB_FILE).rstrip()
    say(lines(text) if sys.stdout.isatty() else text)
    say()
    if found is None:
        say("Not measured: nobody has run this recipe as it is now and kept what it reached.")
        return
    say_lines(_page(found))


def _page(found: Measured) -> list[str]:
    heads = ("SEED", "TEST MRR", "HITS@1", "HITS@10", "BY PYKEEN", "EPOCHS", "TIME")
    rows = [
        (
            str(run.seed),
            *(f"{run.test[name]:.4f}" for name in ("mrr", "hits_at_1", "hits_at_10")),
            f"{run.pykeen['mrr']:.4f}",
            str(run.epochs),
            duration(run.seconds),
        )
        for run in found.runs
    ]
    middle = sorted(found.runs, key=lambda run: run.test["mrr"])[len(found.runs) // 2]
    step = -(-len(middle.curve) // _POINTS)
    kept = [point for i, point in enumerate(middle.curve) if (len(middle.curve) - 1 - i) % step == 0]
    curve = [(str(epoch), duration(seconds), f"{mrr:.4f}") for epoch, seconds, mrr in kept]
    return [
        f"Measured on {found.date}: {found.machine}",
        f"Test MRR {_spread(found)}",
        "",
        *table(heads, rows, right=frozenset(heads)),
        "",
        f"Validation by epoch, seed {middle.seed}:",
        *table(("EPOCH", "TIME", "VALID MRR"), curve, right=frozenset(("EPOCH", "TIME", "VALID MRR"))),
        "",
        *wrapped(FILTERS, columns()),
    ]


def _taken(train: Path, every: Mapping[str, Measured | None]) -> list[str]:
    """The best recipe of the graph that is most like a person's own, next to the others of that graph."""
    counts = counts_of({"train": str(train)})
    if counts is None:
        raise Usage(f"the triples of {train} cannot be counted", "each line is head, relation, tail")
    reached = {name: found for name, found in every.items() if found is not None and sizes_of(_dataset(name))}

    def distance(name: str) -> float:
        sizes = sizes_of(_dataset(name))
        assert sizes is not None
        of_each = counts.train / counts.entities, sizes.train / sizes.entities
        return abs(log(counts.entities / sizes.entities)) + abs(log(of_each[0] / of_each[1]))

    graph = _dataset(min(reached, key=distance))
    sizes = sizes_of(graph)
    assert sizes is not None
    own = {name: found for name, found in reached.items() if _dataset(name) == graph}
    best = max(own, key=lambda name: mean(run.test["mrr"] for run in own[name].runs))
    rows = [(name, *_in_short(found)[:3]) for name, found in own.items()]
    return [
        f"{train.name}: {counts.entities:,} entities and {counts.train:,} triples, most like {graph} with "
        f"{sizes.entities:,} and {sizes.train:,}.",
        *table(("RECIPE", "TEST MRR", "SEEDS", "TIME"), rows, right=frozenset(("SEEDS", "TIME"))),
        f"Take: kgops train --recipe {best} --train {shlex.quote(str(train))}",
    ]


def _spread(found: Measured) -> str:
    """Mean and standard deviation over the seeds."""
    every = [run.test["mrr"] for run in found.runs]
    return f"{mean(every):.4f} ± {stdev(every):.4f}" if len(every) > 1 else f"{every[0]:.4f}"


def _in_short(found: Measured | None) -> Sequence[str]:
    if found is None:
        return ("not measured", UNKNOWN, UNKNOWN, UNKNOWN)
    seconds = mean(run.seconds for run in found.runs)
    return (_spread(found), str(len(found.runs)), duration(seconds), found.machine)


def _dataset(name: str) -> str:
    return recipes.graph_of(name) or "your own"


def _as_table(name: str, found: Measured | None) -> dict[str, object]:
    return {"name": name, "graph": _dataset(name), "measured": None if found is None else asdict(found)}
