"""`kgops suggest … --hosts`: where a job fits, GPU by GPU of several hosts, first what would end first."""

from __future__ import annotations

from pathlib import Path

from kgops.cli.output import print_json, say, tell
from kgops.hosts import registry
from kgops.hosts.offers import Offer, Offers, ask_offers, when
from kgops.interchange.data_files import with_absolute_paths
from kgops.jobs.job import Job
from kgops.settings import find_home
from kgops.views.formats import table

__all__ = ["show_offers"]

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
        _say_silent(offers)
    return 1 if offers.silent else 0 if offers.best is not None else 3


def _say_silent(offers: Offers) -> None:
    for one in offers.silent:
        say(f"{one.host.name}: no plan: {one.problem}")
        if one.hint:
            tell(f"Hint for {one.host.name}: {one.hint}")


def _cells(offer: Offer) -> tuple[str, ...]:
    return (offer.host, offer.gpu or "", offer.name, offer.needs, *when(offer), offer.now)
