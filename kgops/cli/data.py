"""`kgops data`: data to try kgops with, made here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from kgops.errors import KgopsError, Usage
from kgops.jobs.text import one_line

_LEAST_PIXELS = 8  # on a side: a network with three pools needs them


@click.group(epilog="\b\nExample:  kgops data flights --make flights")
def command() -> None:
    """Make data to try kgops with."""


@command.command("flights", epilog="\b\nExample:  kgops data flights --make flights --flights 6 --size 64")
@click.option("--make", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write them there.")
@click.option("--flights", type=click.IntRange(1, 1000), default=4, show_default=True, help="How many.")
@click.option("--frames", type=click.IntRange(1, 1 << 20), default=256, show_default=True, help="Of each.")
@click.option(
    "--size",
    type=click.IntRange(_LEAST_PIXELS, 4096),
    default=32,
    show_default=True,
    help="Pixels of a side.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same flights.")
def _flights(folder: Path | None, flights: int, frames: int, size: int, seed: int) -> None:
    """Write small synthetic flights for `kgops run regress`: the height depends on images and angles.

    Clouds throw shadows away from the sun, the further the higher they are.
    """
    if folder is None:
        raise Usage("nothing to do: no --make DIR", "kgops data flights --make flights")
    _make_empty(folder)
    numbers = {"flights": flights, "frames": frames, "size": size, "seed": seed}
    flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    # In a process of its own: the console loads no numpy.
    made = subprocess.run(
        [sys.executable, "-P", "-m", "kgops.regression.made_flights", str(folder.absolute()), *flags],
        check=False,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if made.returncode:
        said = one_line(made.stderr.strip().rpartition("\n")[2]) or f"exit code {made.returncode}"
        raise KgopsError(f"the flights were not written: {said}", f"what is in {folder} is not whole")


def _make_empty(folder: Path) -> None:
    """Flights of another size beside them would make a folder that nothing can be trained on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_taken = any(folder.iterdir())
    except OSError as error:
        raise Usage(
            f"{folder} cannot be made: {os.strerror(error.errno or 0)}", "name another place"
        ) from error
    if is_taken:
        raise Usage(f"{folder} is not empty: its files would be taken for flights too", "name a new folder")
