"""`kgops suggest … --hosts`: where a job fits, GPU by GPU of several hosts, first what would end first."""

from __future__ import annotations

from pathlib import Path

from kgops.cli.output import print_json, say, tell
from kgops.hosts import registry
from kgops.hosts.offers import Offer, Offers, ask_offers
from kgops.interchange.data_files import with_absolute_paths
from kgops.jobs.job import Job
from kgops.settings import find_home
from kgops.views.formats import UNKNOWN, duration, table

__all__ = ["say_silent", "show_offers", "when"]

_HEADS = ("HOST", "GPU", "NAME", "NEEDS", "ENDS IN", "TIME IS", "NOW")


def show_offers(job: Job, words: str, *, as_json: bool) -> int:
    """Returns the exit code: 3 if it fits nowhere, 1 if a host makes no plan."""
    home = find_home()
    hosts = registry.pick(registry.read(home), words)
    offers = ask_offers(home, hosts, with_absolute_paths(job, Path.cwd()))
    if as_json:
        print_json(
            [
                *(offer.as_table() for offer in offers.ordered),
                *({"host": one.host.name, "problem": one.problem} for one in offers.silent),
            ]
        )
    else:
        if offers.ordered:
            for line in table(_HEADS, map(_cells, offers.ordered), right=frozenset({"NEEDS", "ENDS IN"})):
                say(line)
        say_silent(offers)
    return 1 if offers.silent else 0 if offers.best is not None else 3


def say_silent(offers: Offers) -> None:
    for one in offers.silent:
        say(f"{one.host.name}: no plan: {one.problem}")
        if one.hint:
            tell(f"Hint for {one.host.name}: {one.hint}")


def when(offer: Offer) -> tuple[str, str]:
    """When it would end, and what says so."""
    if offer.takes_s is None:
        return UNKNOWN, "never measured there"
    basis = "measured there" if offer.is_measured else "predicted, never measured"
    if offer.ends_in_s is None:
        return UNKNOWN, f"{duration(offer.takes_s)} once it starts, {basis}"
    return duration(offer.ends_in_s), basis


def _cells(offer: Offer) -> tuple[str, ...]:
    needs = UNKNOWN if offer.need_mib is None else f"{offer.need_mib:,.0f} MiB"
    now = f"would not start: {offer.refused}" if offer.refused and offer.state != "never" else offer.verdict
    name = offer.on.removeprefix("NVIDIA ")
    return (offer.host, offer.gpu or "", name, needs, *when(offer), now)
