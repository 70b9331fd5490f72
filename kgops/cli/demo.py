"""`kgops demo`: a first run with what to do next, and a home filled for looking around."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click

from kgops.cli.output import say, tell
from kgops.errors import Usage
from kgops.settings import Home
from kgops.tour import home as homes


@click.command(epilog="\b\nExample:  kgops demo --tour")
@click.option("--tour", is_flag=True, help="Fill a home of its own with a history to look around in.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the tour is; default: beside the usual home, with -tour behind its name.",
)
@click.option("--quick", is_flag=True, help="A tour without its two runs that really train: seconds.")
@click.option("--remove-tour", is_flag=True, help="Stop what runs in the tour, and remove it.")
@click.option("--yes", is_flag=True, help="Also where somebody has started runs in the tour.")
@click.pass_context
def command(
    ctx: click.Context, tour: bool, home: Path | None, quick: bool, remove_tour: bool, yes: bool
) -> None:
    """Train on Nations and trace ten predictions; or make a tour, in which every screen has something to show.

    Nearly all of a tour is made up, and says so: by the tag made-up, in each run's name, note, machine and files. It
    stays in a home of its own, and nothing of it can be imported into another.
    """
    if tour and remove_tour:
        raise Usage("--tour makes a tour and --remove-tour removes it: give one of them")
    if not (tour or remove_tour):
        if home is not None or quick or yes:
            raise Usage("--home, --quick and --yes belong to a tour", "add --tour, or --remove-tour")
        ctx.exit(_first_run())
    place = Home(home.absolute()) if home is not None else homes.default_home()
    if remove_tour:
        homes.remove(place, own_too=yes)
        say(f"the tour in {place.path} is removed")
        return
    _make(place, real=not quick)


def _first_run() -> int:
    from kgops.cli.run import command as run

    tell("This is:  kgops run --profile auto")
    code = run.main(["--profile", "auto"], prog_name="kgops run", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _make(place: Home, *, real: bool) -> None:
    from kgops.tour.filling import REAL, fill

    began = time.monotonic()
    tell(f"Making a tour in {place.path}; your own home is not touched.")
    made = fill(place, tell, REAL if real else ())
    took = time.monotonic() - began
    last = made.waiting[-1]
    say(
        f"\nThe tour is ready after {took:.0f} s: {last} runs. {len(made.made_up)} of them are made up and say so."
    )
    if made.real:
        numbers = " and ".join(str(run.id) for run in made.real)
        say(
            f"Runs {numbers} really took place just now; run {made.running} goes on for a while, two wait for it."
        )
    for line in _next_steps(place, made.made_up[0]):
        say(line)


def _next_steps(place: Home, first: int) -> list[str]:
    kgops = f"KGOPS_HOME={shlex.quote(str(place.path))} kgops"
    remove = "kgops demo --remove-tour"
    if place.path != homes.default_home().path:
        remove += f" --home {shlex.quote(str(place.path))}"
    return [
        "",
        "Look around:",
        f"  {kgops}",
        "     enter  the run under the cursor: curves, budget, levers with reasons, attempts, log",
        "     h      the history: type  tag:paper  or  state:out_of_memory  or  mrr>0.3;  space marks, = compares",
        "     i      the training triples behind predictions",
        "     n      plan a run and see what it would need; what you start waits for those that wait there",
        "     f      profiles;  s  stops a run;  ?  all keys;  q  leave",
        "Or without screens:",
        f"  {kgops} compare {first} {first + 1}",
        f"  {kgops} bench compare 1 3",
        "When you have seen enough:",
        f"  {remove}",
    ]
