"""`kgops data`: make data sets: flights and drugs to try kgops with, graphs from KGX, and splits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import print_json, say, tell
from kgops.errors import KgopsError, Usage
from kgops.jobs.text import one_line

_MAKE = click.option(
    "--make", "folder", type=click.Path(path_type=Path), metavar="DIR", help="New folder to write to."
)
_LEAST_PIXELS = 8  # per side: three pooling layers need as many


@click.group(epilog="\b\nExample:  kgops data kgx robokop --make graph")
def command() -> None:
    """Make data sets: graphs from KGX, splits of graphs, and small flights to try kgops with."""


@command.command("flights", epilog="\b\nExample:  kgops data flights --make flights --flights 6 --size 64")
@_MAKE
@click.option(
    "--flights", type=click.IntRange(1, 1000), default=4, show_default=True, help="Number of flights."
)
@click.option(
    "--frames", type=click.IntRange(1, 1 << 20), default=256, show_default=True, help="Frames per flight."
)
@click.option(
    "--size",
    type=click.IntRange(_LEAST_PIXELS, 4096),
    default=32,
    show_default=True,
    help="Height and width of a frame in pixels.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
def _flights(folder: Path | None, flights: int, frames: int, size: int, seed: int) -> None:
    """Generate flights for `kgops regress`: frames, sun angles and cloud heights.

    Each cloud casts a shadow away from the sun; the higher the cloud, the longer the distance.
    """
    folder = _new(folder, "kgops data flights --make flights")
    numbers = {"flights": flights, "frames": frames, "size": size, "seed": seed}
    flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    _apart("kgops.maths.regress.made_flights", [str(folder.absolute()), *flags], folder)


@command.command("drugs", epilog="\b\nExample:  kgops data drugs --make robokop")
@_MAKE
@click.option(
    "--drugs", type=click.IntRange(2, 1 << 20), default=200, show_default=True, help="Number of drugs."
)
@click.option(
    "--diseases", type=click.IntRange(2, 1 << 20), default=100, show_default=True, help="Number of diseases."
)
@click.option(
    "--genes", type=click.IntRange(2, 1 << 20), default=60, show_default=True, help="Number of genes."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
def _drugs(folder: Path | None, **numbers: int) -> None:
    """Generate a graph in KGX whose reasons are known: a drug treats a disease if it inhibits a gene that causes it.

    mechanisms.tsv has the genes of each pair.
    """
    folder = _new(folder, "kgops data drugs --make robokop")
    flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    _apart("kgops.maths.graphs.made_kgx", [str(folder.absolute()), *flags], folder)


def _many(flag: str, name: str, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(flag, name, multiple=True, metavar="NAME", help=help)


@command.command("kgx", epilog="\b\nExample:  kgops data kgx robokop --make graph --predicate treats")
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR")
@_MAKE
@_many("--predicate", "predicates", "Keep only edges with this predicate; may be repeated.")
@_many("--category", "categories", "Keep only edges between nodes of these categories.")
@_many("--source", "sources", "Keep only edges with this primary knowledge source.")
@_many("--knowledge-level", "levels", "Keep only edges with this knowledge level.")
@_many("--symmetric", "symmetric", "Predicate without a direction: keep one of the two.")
@click.option("--qualifiers", is_flag=True, help="Add the qualifiers of an edge to its relation.")
@click.option("--date", metavar="COLUMN", help="Keep this column, to split by date.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def _kgx(source: Path, folder: Path | None, as_json: bool, **choice: Any) -> None:
    """Convert a graph in KGX, as ROBOKOP, Monarch and Translator publish it, to files that kgops reads.

    DIR has nodes.tsv or nodes.jsonl and edges.tsv or edges.jsonl, or each as .gz. The new folder has triples.txt,
    names.tsv (--node-name-dict) and nodes.tsv (--node-types). Lines that cannot be read, and edges to missing nodes,
    are counted and left out. Then split the triples: `kgops data split graph`.
    """
    folder = _new(folder, f"kgops data kgx {source} --make graph")
    told = _apart("kgops.maths.graphs.kgx", [str(source.absolute()), str(folder.absolute())], folder, choice)
    _tell(told, as_json)
    for kind, lines in told["first"].items():
        tell(f"{kind}: {', '.join(lines)}{', …' if told['counts'][kind] > len(lines) else ''}")


@command.command("split", epilog="\b\nExample:  kgops data split graph --relation treats --by tail")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--by",
    type=click.Choice(["pair", "tail", "date"]),
    default="pair",
    show_default=True,
    help="Hold out random pairs, all asked of random tails (cold start), or the latest dates.",
)
@_many("--relation", "relations", "Test only this relation; may be repeated.")
@click.option(
    "--valid", type=click.FloatRange(0, 0.5), default=0.05, show_default=True, help="Share to validate."
)
@click.option("--test", type=click.FloatRange(0, 0.5), default=0.1, show_default=True, help="Share to test.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option("--force", is_flag=True, help="Overwrite train.txt, valid.txt and test.txt.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def _split(folder: Path, force: bool, as_json: bool, **request: Any) -> None:
    """Split DIR/triples.txt into train.txt, valid.txt and test.txt, without giving a test triple away.

    All triples between two entities stay together. With --relation, other triples between two entities that are held
    out are left out.
    """
    there = [name for name in ("train.txt", "valid.txt", "test.txt") if (folder / name).exists()]
    if there and not force:
        raise Usage(f"{folder} already has {', '.join(there)}", "--force overwrites them")
    told = _apart("kgops.maths.graphs.splitting", [str(folder.absolute())], folder, request)
    _tell(told, as_json)
    for caution in told["cautions"]:
        tell(caution)


def _tell(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    for what, count in told["counts"].items():
        if count:
            say(f"{what}: {count:,}")


def _apart(module: str, words: list[str], folder: Path, told: object = None) -> Any:
    """Run the module. If it is `told` anything, return what it prints, which is JSON. A separate process, since
    commands do not load numpy."""
    process = subprocess.run(
        [sys.executable, "-P", "-m", module, *words],
        check=False,
        input=json.dumps(told),
        stdout=None if told is None else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if process.returncode == 0:
        return None if told is None else json.loads(process.stdout)
    last = process.stderr.strip().rpartition("\n")[2]
    try:
        refused = json.loads(last)
    except ValueError:
        message = one_line(last) or f"exit code {process.returncode}"
        raise KgopsError(
            f"the data were not written: {message}", f"{folder} is incomplete: delete it"
        ) from None
    raise Usage(refused["error"], refused["hint"])


def _new(folder: Path | None, example: str) -> Path:
    """Create the folder; raise if it has files, which would be taken for new ones."""
    if folder is None:
        raise Usage("--make DIR is missing", example)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        has_files = any(folder.iterdir())
    except OSError as error:
        raise Usage(
            f"{folder} cannot be made: {os.strerror(error.errno or 0)}", "give another folder"
        ) from error
    if has_files:
        raise Usage(f"{folder} is not empty: its files would be taken for new ones", "give a new folder")
    return folder
