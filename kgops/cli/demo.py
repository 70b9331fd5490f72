"""`kgops demo`: start a first run, or fill a separate home with sample data (the tour)."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path

import click

from kgops.cli.output import say, say_lines, tell
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.settings import Home
from kgops.tour import home as homes


@click.command(epilog="\b\nExample:  kgops demo --tour")
@click.option("--tour", is_flag=True, help="Fill a separate home with sample data.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Home of the tour; default: the name of your home with -tour appended.",
)
@click.option("--quick", is_flag=True, help="Skip the two runs of the tour that really train: takes seconds.")
@click.option("--remove-tour", is_flag=True, help="Stop the runs of the tour and delete it.")
@click.option(
    "--yes", is_flag=True, help="With --remove-tour: also delete runs that you started in the tour."
)
@click.pass_context
def command(
    ctx: click.Context, tour: bool, home: Path | None, quick: bool, remove_tour: bool, yes: bool
) -> None:
    """Train ConvE on Nations and trace ten predictions; or with --tour, fill a separate home with sample data.

    Every page of the dashboard has content in the tour. Sample runs have the tag `sample`, and say so in their name,
    note, machine and files. They stay in the separate home and cannot be imported into another.
    """
    if tour and remove_tour:
        raise Usage("--tour and --remove-tour exclude each other")
    if not (tour or remove_tour):
        if home is not None or quick or yes:
            raise Usage("--home, --quick and --yes belong to a tour", "add --tour, or --remove-tour")
        ctx.exit(_first_run())
    tour_home = Home(home.absolute()) if home is not None else homes.default_home()
    if remove_tour:
        homes.remove(tour_home, own_too=yes)
        say(f"the tour in {tour_home.path} is removed")
        return
    _make(tour_home, real=not quick)


def _first_run() -> int:
    from kgops.cli.launching import start
    from kgops.cli.run import command as run
    from kgops.cli.run import demo_job

    tell(_WHAT_HAPPENS)
    given = run.make_context("kgops run", ["--profile", "auto"]).params
    given.pop("again")
    code = start(demo_job(), given)
    if code == 0:
        say_lines(after_the_first(existing().run("last").id, called()))
    return code


_WHAT_HAPPENS = """\
A first run, as `kgops run --profile auto` starts it without a job file. In about half a minute kgops

  1  plans: looks at this machine and chooses options that fit
  2  trains ConvE on Nations, 1,592 triples about 14 countries that ship with PyKEEN
  3  traces ten of its predictions back to the training triples behind them

The run goes on when this terminal closes. Ctrl-C asks whether to detach or stop.
"""


def after_the_first(number: int, kgops: str) -> list[str]:
    """Return the commands to try after the first run, indented by five columns."""
    return [
        "",
        "What to do next",
        "  open the dashboard: Enter opens a run, i shows influences, ? lists the keys",
        f"     {kgops}",
        "  show this run, and the training triples behind its second prediction",
        f"     {kgops} show {number}",
        f"     {kgops} influences {number} --test 2",
        "  compare two batch sizes",
        f"     {kgops} train --dataset nations --num-epochs 20 --batch-size 256",
        f"     {kgops} train --dataset nations --num-epochs 20 --batch-size 64",
        f"     {kgops} compare {number + 1} {number + 2}",
        "  fill a separate home with sample data for every page of the dashboard",
        f"     {kgops} demo --tour",
    ]


def called() -> str:
    """Return the command that starts this kgops: `kgops` if it is on PATH, otherwise its path."""
    executable = Path(sys.argv[0]).absolute()
    if executable.name != "kgops":
        return "python -m kgops"
    on_path = shutil.which("kgops")
    if on_path is not None and Path(on_path).absolute() == executable:
        return "kgops"
    inside = executable.is_relative_to(Path.cwd())
    return shlex.quote(str(executable.relative_to(Path.cwd()) if inside else executable))


def _make(tour_home: Home, *, real: bool) -> None:
    from kgops.tour.filling import REAL, fill

    began = time.monotonic()
    tell(f"Making a tour in {tour_home.path}; your own home is not touched.")
    tour = fill(tour_home, tell, REAL if real else ())
    took = time.monotonic() - began
    say(f"\nThe tour is ready after {took:.0f} s: {tour.waiting[-1]} runs.")
    say(f"  {len(tour.sample)} are sample data and say so")
    if tour.real:
        say(f"  {' and '.join(str(run.id) for run in tour.real)} really trained just now")
    say(f"  {tour.running} is running, and {' and '.join(map(str, tour.waiting))} wait for it")
    say_lines(next_steps(tour_home, tour.sample[0], called()))


def next_steps(tour_home: Home, first: int, name: str) -> list[str]:
    """Return the commands to try in the tour, indented by five columns."""
    kgops = f"KGOPS_HOME={shlex.quote(str(tour_home.path))} {name}"
    remove = f"{name} demo --remove-tour"
    if tour_home.path != homes.default_home().path:
        remove += f" --home {shlex.quote(str(tour_home.path))}"
    return [
        "",
        "Look around",
        f"     {kgops}",
        "       enter  the run under the cursor: curves, memory estimate, options with reasons, attempts, log",
        "       h      the history: type  tag:paper  or  state:out_of_memory  or  mrr>0.3.  Space marks, = compares",
        "       i      the training triples behind predictions",
        "       n      plan a run and see what it needs; runs that you start wait behind the waiting ones",
        "       f      profiles;  s  stops a run;  ?  all keys;  q  leave",
        "Or on the command line",
        f"     {kgops} compare {first} {first + 1}",
        f"     {kgops} bench compare 1 3",
        "When you have seen enough",
        f"     {remove}",
    ]
