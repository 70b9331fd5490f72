"""`kgops profiles`: named sets of lever values, which of them suit this machine, and your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kgops.cli.output import UNKNOWN, print_json, say, table, tell
from kgops.errors import BadJob, Unavailable, Usage
from kgops.gpus.facts import CardFacts, facts_of_known
from kgops.gpus.known import known_by_name, known_by_short_name
from kgops.gpus.readings import CardReading
from kgops.gpus.sampler import CardSampler
from kgops.jobs.job import LARGEST_JOB_FILE
from kgops.jobs.named_file import read_named
from kgops.jobs.text import lines
from kgops.planning import profiles
from kgops.planning.profiles import Profile
from kgops.planning.resolve import conflicts, expands_segments

__all__ = [
    "cards_here",
    "command",
    "conflicts_of",
    "fits_here",
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
    """List profiles: which suit this machine's cards, and what each sets."""
    if ctx.invoked_subcommand is not None:
        return
    found = [profiles.find(name) for name in profiles.names()]
    cards = cards_here()
    if as_json:
        print_json([_as_table(profile, cards) for profile in found])
        return
    rows = [(one.name, fits_here(one, cards), what_it_sets(one)) for one in sorted(found, key=in_order)]
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

    Rules about cards are tried on each card that the profile names. Exit code 2 if anything is found.
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
    """Each conflict once for each card it is about."""
    cards = [facts_of_known(card) for card in map(known_by_short_name, profile.cards) if card is not None]
    asked: list[CardFacts | None] = [*cards] if cards else [None]
    found = [one for card in asked for one in conflicts(profile, card)]
    return list(dict.fromkeys(f"levers.{one}" for one in found))


def cards_here() -> tuple[CardReading, ...] | None:
    """None where the driver is too slow for a list of profiles to wait for it."""
    with CardSampler() as sampler:
        found = sampler.first(_PATIENCE_S)
    return None if found is None else found.cards


def suits(profile: Profile, cards: tuple[CardReading, ...]) -> list[int]:
    """Indexes of the cards here that the profile was made for."""
    models = {card.index: known_by_name(card.name) for card in cards if card.name}
    return [index for index, model in models.items() if model and model.short_name in profile.cards]


def fits_here(profile: Profile, cards: tuple[CardReading, ...] | None) -> str:
    if not profile.cards:
        return "any machine"
    if cards is None:
        return UNKNOWN
    indexes = suits(profile, cards)
    return "card " + ", ".join(map(str, indexes)) if indexes else "-"


def what_it_sets(profile: Profile) -> str:
    parts = [f"{name} {_word(value)}" for name, value in profile.levers.items()]
    parts += ["growing segments"] if expands_segments(profile.environment) else []
    return ", ".join(parts)


def _word(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def in_order(profile: Profile) -> tuple[bool, str]:
    return bool(profile.cards), profile.name


def _as_table(profile: Profile, cards: tuple[CardReading, ...] | None) -> dict[str, Any]:
    return {
        "name": profile.name,
        "summary": profile.summary,
        "cards": list(profile.cards),
        "suits": None if cards is None or not profile.cards else suits(profile, cards),
        "levers": profile.levers,
        "environment": profile.environment,
    }
