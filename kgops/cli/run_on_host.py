"""`kgops run … --host`: start a job on another host, or on the one where it would end first."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from kgops.cli.output import print_json, say, tell
from kgops.errors import Unavailable, Usage, WontFit
from kgops.hosts import registry
from kgops.hosts.offers import ask_offers
from kgops.hosts.placing import copied, flags_of, on_gpu_of
from kgops.hosts.registry import Host
from kgops.hosts.sending import send_data
from kgops.hosts.starting import plan_there, start_there
from kgops.interchange.data_files import with_absolute_paths
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.settings import Home, find_home

__all__ = ["ANY", "start_on_host"]

ANY = "any"
_EVERY_S = 2.0


def start_on_host(job: Job, words: str, given: dict[str, Any]) -> int:
    """Prints the run's name, as in `lab2:17`. `words`: a host, a group, or `any`, also of a group as in `any:ours`."""
    home = find_home()
    job = with_absolute_paths(job, Path.cwd())
    host, job = _placed(home, job, words)
    flags = flags_of(force=bool(given["force"]), tags=given["tags"])
    if given["dry_run"]:
        shown = plan_there(home, host, job, [*flags, *(["--json"] if given["as_json"] else [])])
        for line in shown.decode("utf-8", "replace").splitlines():
            say(one_line(line, 4_000))
        return 0
    job = send_data(home, host, job, _Progress(host.name))
    number = start_there(home, host, job, flags, note=lambda text: tell(f"Note: {text}"))
    if given["as_json"]:
        print_json({"host": host.name, "id": number})
    else:
        say(f"{host.name}:{number}")
        tell(
            f"It goes on there. `kgops runs --hosts {host.name}` lists it, `kgops pull {host.name}:{number}` brings it."
        )
    return 0


def _placed(home: Home, job: Job, words: str) -> tuple[Host, Job]:
    hosts = registry.read(home)
    word, _, group = words.partition(":")
    chosen = registry.pick(hosts, (group or registry.ALL) if word == ANY else words)
    if words == registry.ALL:
        raise Usage(f"{words!r} names {len(chosen)} hosts", f"kgops run … --host {ANY}")
    if word != ANY and len(chosen) == 1:
        return chosen[0], job
    offers = ask_offers(home, chosen, job)
    for one in offers.silent:
        tell(f"Warning: {one.host.name}: no plan: {one.problem}")
    best = offers.best
    if best is None:
        if not offers.ordered:
            raise Unavailable("no host makes a plan", "`kgops hosts check` says what answers")
        nearest = offers.ordered[0]
        raise WontFit(
            f"it would start on no host; on {nearest.host}: {nearest.refused or nearest.verdict}",
            "`kgops suggest … --hosts all` shows each GPU",
        )
    tell(f"Note: {best}")
    return hosts[best.host], on_gpu_of(best, job)


class _Progress:
    """A line on stderr: drawn again on a terminal, else one every few seconds."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._at = 0.0
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, name: str, sent: int, size: int) -> None:
        done, now = sent >= size, time.monotonic()
        if not done and now - self._at < (0.2 if self._is_terminal else _EVERY_S):
            return
        self._at = now
        line = copied(self._host, name, sent, size)
        if self._is_terminal:
            sys.stderr.write(f"\r{line}\x1b[K" + ("\n" if done else ""))
            sys.stderr.flush()
        else:
            tell(line)
