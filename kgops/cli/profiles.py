"""`kgops profiles`: named sets of option values, which of them suit this machine, and your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import UNKNOWN, print_json, say, table, tell
from kgops.errors import BadJob, Unavailable, Usage
from kgops.gpus.facts import GpuFacts, facts_of_known
from kgops.gpus.known import known_by_name, known_by_short_name
from kgops.gpus.readings import GpuReading
from kgops.gpus.sampler import GpuSampler
from kgops.jobs.job import LARGEST_JOB_FILE
from kgops.jobs.named_file import read_named
from kgops.jobs.text import lines
from kgops.planning import profiles
from kgops.planning.profiles import Profile
from kgops.planning.resolve import conflicts, expands_segments

__all__ = [
    "command",
    "conflicts_of",
    "fits_here",
    "gpus_here",
    "in_order",
    "suits",
    "what_it_sets",
    "write_copy",
]

_PATIENCE_S = 2.0


@click.group(invoke_without_command=True, epilog="\b\nExample:  kgops profiles show t4")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List profiles: which suit this machine's GPUs, and what each sets."""
    if ctx.invoked_subcommand is not None:
        return
    found = [profiles.find(name) for name in profiles.names()]
    gpus = gpus_here()
    if as_json:
        print_json([_as_table(profile, gpus) for profile in found])
        return
    rows = [(one.name, fits_here(one, gpus), what_it_sets(one)) for one in sorted(found, key=in_order)]
    for line in table(("PROFILE", "HERE", "SETS"), rows):
        say(line)


@command.command(epilog="\b\nExample:  kgops profiles show t4")
@click.argument("name")
def show(name: str) -> None:
    """Print a profile with the reason for each value."""
    profile = profiles.find(name)
    text = read_named(profile.path, "profile", LARGEST_JOB_FILE).rstrip()
    say(lines(text) if sys.stdout.isatty() else text)


@command.command(epilog="\b\nExample:  kgops profiles check t4")
@click.argument("names", metavar="NAME|FILE.toml...", nargs=-1, required=True)
def check(names: tuple[str, ...]) -> None:
    """Find all that is wrong with profiles: what cannot be read, and what rules would change.

    Rules about GPUs are tried on each GPU that the profile names. Exit code 2 if anything is found.
    """
    for name in names:
        profile = profiles.find(name)
        problems = conflicts_of(profile)
        if problems:
            raise BadJob(str(profile.path), problems)
        say(f"{name}: sound")


@command.command(epilog="\b\nExample:  kgops profiles new --from t4 mine.toml")
@click.option("--from", "source", metavar="NAME", required=True, help="The profile to begin with.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
def new(source: str, path: Path | None) -> None:
    """Write a copy of a profile to change, by default my-NAME.toml in this folder."""
    target = write_copy(profiles.find(source), path)
    say(str(target))
    tell(f"Check it with `kgops profiles check {target}`, use it with `kgops run --profile {target}`.")


def write_copy(profile: Profile, path: Path | None = None) -> Path:
    """A copy to change, by default my-NAME.toml in this folder; never over what is there."""
    target = path or Path(f"my-{profile.name}.toml")
    if target.suffix != ".toml":
        raise Usage(f"{target}: a profile's file ends in .toml")
    _, _, rest = read_named(profile.path, "profile", LARGEST_JOB_FILE).partition("\n")
    try:
        with target.open("x") as file:
            file.write(f"# kgops run --profile {target}\n{rest}")
    except FileExistsError as error:
        raise Usage(f"{target} is there already", "give another path") from error
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {error.strerror}") from error
    return target


def conflicts_of(profile: Profile) -> list[str]:
    """Each conflict once for each GPU it is about."""
    gpus = [facts_of_known(gpu) for gpu in map(known_by_short_name, profile.gpus) if gpu is not None]
    asked: list[GpuFacts | None] = [*gpus] if gpus else [None]
    found = [one for gpu in asked for one in conflicts(profile, gpu)]
    return list(dict.fromkeys(f"options.{one}" for one in found))


def gpus_here() -> tuple[GpuReading, ...] | None:
    """None where the driver is too slow for a list of profiles to wait for it."""
    with GpuSampler() as sampler:
        found = sampler.first(_PATIENCE_S)
    return None if found is None else found.gpus


def suits(profile: Profile, gpus: tuple[GpuReading, ...]) -> list[int]:
    """Indexes of the GPUs here that the profile was made for."""
    models = {gpu.index: known_by_name(gpu.name) for gpu in gpus if gpu.name}
    return [index for index, model in models.items() if model and model.short_name in profile.gpus]


def fits_here(profile: Profile, gpus: tuple[GpuReading, ...] | None) -> str:
    if not profile.gpus:
        return "any machine"
    if gpus is None:
        return UNKNOWN
    indexes = suits(profile, gpus)
    return "GPU " + ", ".join(map(str, indexes)) if indexes else "-"


def what_it_sets(profile: Profile) -> str:
    parts = [f"{name} {_word(value)}" for name, value in profile.options.items()]
    parts += ["growing segments"] if expands_segments(profile.environment) else []
    return ", ".join(parts)


def _word(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def in_order(profile: Profile) -> tuple[bool, str]:
    return bool(profile.gpus), profile.name


def _as_table(profile: Profile, gpus: tuple[GpuReading, ...] | None) -> dict[str, Any]:
    return {
        "name": profile.name,
        "summary": profile.summary,
        "gpus": list(profile.gpus),
        "suits": None if gpus is None or not profile.gpus else suits(profile, gpus),
        "options": profile.options,
        "environment": profile.environment,
    }
