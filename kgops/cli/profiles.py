"""`kgops profiles`: list, show, check and copy named sets of option values."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import say, say_result, tell
from kgops.errors import BadJob, Unavailable, Usage
from kgops.gpus.facts import GpuFacts, facts_of_known
from kgops.gpus.known import known_by_name, known_by_short_name
from kgops.gpus.readings import GpuReading
from kgops.gpus.sampler import GpuSampler
from kgops.jobs.files import read_named
from kgops.jobs.on_device import CPU
from kgops.jobs.run_options import make_folder_of
from kgops.jobs.text import lines, on_or_off
from kgops.planning import profiles
from kgops.planning.profiles import Profile
from kgops.planning.resolve import conflicts, expands_segments
from kgops.present.formats import UNKNOWN, table
from kgops.workloads.job_files import LARGEST_JOB_FILE

_TIMEOUT_S = 2.0


@click.group(invoke_without_command=True, epilog="\b\nExample:  kgops profiles show t4")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List profiles, the GPUs of this machine that each suits, and the options that each sets."""
    if ctx.invoked_subcommand is not None:
        return
    listed = [profiles.find(name) for name in profiles.names()]
    gpus = gpus_here()
    rows = [(one.name, fits_here(one, gpus), what_it_sets(one)) for one in sorted(listed, key=in_order)]
    said = table(("PROFILE", "HERE", "SETS"), rows)
    say_result(as_json, lambda: [_as_table(profile, gpus) for profile in listed], lambda: said)


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
    """Check profiles for invalid files, unknown options and values that a rule would change.

    Rules about GPUs are checked for each GPU that the profile names. Exit code 2 if there is a problem.
    """
    for name in names:
        profile = profiles.find(name)
        problems = conflicts_of(profile)
        if problems:
            raise BadJob(str(profile.path), problems)
        say(f"{name}: sound")


@command.command(epilog="\b\nExample:  kgops profiles new --from t4 mine.toml")
@click.option("--from", "source", metavar="NAME", required=True, help="Profile to copy.")
@click.argument("path", required=False, type=click.Path(path_type=Path))
def new(source: str, path: Path | None) -> None:
    """Copy a profile to a file that you can edit; default: my-NAME.toml in this folder."""
    target = write_copy(profiles.find(source), path)
    say(str(target))
    word = shlex.quote(str(target))
    tell(f"Check it with `kgops profiles check {word}`, use it with `kgops run --profile {word}`.")


def write_copy(profile: Profile, path: Path | None = None) -> Path:
    """Copy a profile to `path` or my-NAME.toml; raise if the file exists."""
    target = path or Path(f"my-{profile.name}.toml")
    if target.suffix != ".toml":
        raise Usage(f"{target}: the name of a profile must end in .toml")
    _, _, rest = read_named(profile.path, "profile", LARGEST_JOB_FILE).partition("\n")
    try:
        make_folder_of(target)
        with target.open("x") as file:
            file.write(f"# kgops run --profile {shlex.quote(str(target))}\n{rest}")
    except FileExistsError as error:
        raise Usage(f"{target} already exists", "give another path") from error
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {error.strerror}") from error
    return target


def conflicts_of(profile: Profile) -> list[str]:
    """Return the conflicts of a profile, for each GPU that it names."""
    gpus = [facts_of_known(gpu) for gpu in map(known_by_short_name, profile.gpus) if gpu is not None]
    targets: list[GpuFacts | None] = [*gpus] if gpus else [None]
    problems = [one for gpu in targets for one in conflicts(profile, gpu)]
    return list(dict.fromkeys(f"options.{one}" for one in problems))


def gpus_here() -> tuple[GpuReading, ...] | None:
    """Return the GPUs of this machine, or None if the driver is too slow to wait for."""
    with GpuSampler() as sampler:
        snapshot = sampler.first(_TIMEOUT_S)
    return None if snapshot is None else snapshot.gpus


def suits(profile: Profile, gpus: tuple[GpuReading, ...]) -> list[int]:
    """Return the indexes of the GPUs that the profile is made for."""
    models = {gpu.index: known_by_name(gpu.name) for gpu in gpus if gpu.name}
    return [index for index, model in models.items() if model and model.short_name in profile.gpus]


def fits_here(profile: Profile, gpus: tuple[GpuReading, ...] | None) -> str:
    if profile.name == CPU and gpus == ():
        return "the CPU"
    if not profile.gpus:
        return "any machine"
    if gpus is None:
        return UNKNOWN
    indexes = suits(profile, gpus)
    return "GPU " + ", ".join(map(str, indexes)) if indexes else "-"


def what_it_sets(profile: Profile) -> str:
    parts = [f"{name} {on_or_off(value)}" for name, value in profile.options.items()]
    parts += ["expandable segments"] if expands_segments(profile.environment) else []
    return ", ".join(parts)


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
