"""`kgops demo`: a first run with what to do next, and a home filled for looking around."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path

import click

from kgops.cli.output import say, tell
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.jobs.job import read_job
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

    Nearly all of a tour is sample data, and says so: by the tag sample, in each run's name, note, machine and files. It
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
    from kgops.cli.launching import start
    from kgops.cli.run import DEFAULT_JOB
    from kgops.cli.run import command as run

    tell(_WHAT_HAPPENS)
    given = run.make_context("kgops run", ["--profile", "auto"]).params
    given.pop("again")
    code = start(read_job(DEFAULT_JOB, "the demo job"), given)
    if code == 0:
        for line in after_the_first(existing().run("last").id, called()):
            say(line)
    return code


_WHAT_HAPPENS = """\
A first run, the same as `kgops run --profile auto` where no job file lies. In about half a minute it

  1  plans: looks at this machine, and sets what fits it
  2  trains ConvE on Nations, 1,592 triples about 14 countries that ship with PyKEEN
  3  traces ten of its predictions back to the training triples behind them

It is a process of its own and goes on when this terminal closes. Ctrl-C asks what to do with it.
"""


def after_the_first(number: int, kgops: str) -> list[str]:
    """What to type, after the first run, five columns in."""
    return [
        "",
        "What to do next",
        "  on the screens: Enter opens a run, i shows influences, ? names the keys",
        f"     {kgops}",
        "  or here: all that is known of this run, and what made it believe its second prediction",
        f"     {kgops} show {number}",
        f"     {kgops} influences {number} --test 2",
        "  two batch sizes side by side",
        f"     {kgops} run train --dataset nations --epochs 20 --batch-size 256",
        f"     {kgops} run train --dataset nations --epochs 20 --batch-size 64",
        f"     {kgops} compare {number + 1} {number + 2}",
        "  a home of its own with something on every screen",
        f"     {kgops} demo --tour",
    ]


def called() -> str:
    """What a person types for `kgops` here: its name where the shell finds this one by it, or else its path."""
    ours = Path(sys.argv[0]).absolute()
    if ours.name != "kgops":
        return "python -m kgops"
    found = shutil.which("kgops")
    if found is not None and Path(found).absolute() == ours:
        return "kgops"
    inside = ours.is_relative_to(Path.cwd())
    return shlex.quote(str(ours.relative_to(Path.cwd()) if inside else ours))


def _make(place: Home, *, real: bool) -> None:
    from kgops.tour.filling import REAL, fill

    began = time.monotonic()
    tell(f"Making a tour in {place.path}; your own home is not touched.")
    made = fill(place, tell, REAL if real else ())
    took = time.monotonic() - began
    say(f"\nThe tour is ready after {took:.0f} s: {made.waiting[-1]} runs.")
    say(f"  {len(made.sample)} are sample data and say so")
    if made.real:
        say(f"  {' and '.join(str(run.id) for run in made.real)} really took place just now")
    say(f"  {made.running} goes on for a while, and {' and '.join(map(str, made.waiting))} wait for it")
    for line in next_steps(place, made.sample[0], called()):
        say(line)


def next_steps(place: Home, first: int, name: str) -> list[str]:
    """What to type, after a tour was made, five columns in."""
    kgops = f"KGOPS_HOME={shlex.quote(str(place.path))} {name}"
    remove = f"{name} demo --remove-tour"
    if place.path != homes.default_home().path:
        remove += f" --home {shlex.quote(str(place.path))}"
    return [
        "",
        "Look around",
        f"     {kgops}",
        "       enter  the run under the cursor: curves, memory estimate, options with reasons, attempts, log",
        "       h      the history: type  tag:paper  or  state:out_of_memory  or  mrr>0.3;  space marks, = compares",
        "       i      the training triples behind predictions",
        "       n      plan a run and see what it would need; what you start waits for those that wait there",
        "       f      profiles;  s  stops a run;  ?  all keys;  q  leave",
        "Or without screens",
        f"     {kgops} compare {first} {first + 1}",
        f"     {kgops} bench compare 1 3",
        "When you have seen enough",
        f"     {remove}",
    ]
