"""Where a draft could run on other hosts: asks each of them for its plans, and draws what they answer.

Each host is asked in a thread of its own, one question at a time: one that hangs keeps nobody waiting, and one that
answers is asked again where the draft has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from textual.screen import Screen

from kgops.errors import KgopsError
from kgops.hosts.ask import Answer as Said
from kgops.hosts.offers import Offer, Offers, ask_offers, joined, when
from kgops.hosts.placing import copied, flags_of
from kgops.hosts.registry import Host
from kgops.hosts.sending import send_data
from kgops.hosts.starting import start_there
from kgops.jobs.job import Job
from kgops.settings import Home
from screens.driver import begin, in_own_thread
from screens.host_actions import HostedRun
from screens.host_run import HostRun
from screens.rows import BLANK, Column, Columns, Piece, Row, text_row
from screens.run_screen import RunScreenBase
from screens.wording import error_text

__all__ = ["HostPlans", "key_of", "start_on_host", "tone_of"]

_COPY_SHOWN_S = 0.25

_TONES = {"now": "good", "later": "warn", "unknown": "text", "empty": "warn", "never": "bad"}


class _Plans(NamedTuple):
    """Of one host, for this job."""

    job: Job
    offers: Offers


def tone_of(offer: Offer) -> str:
    return _TONES[offer.state] if offer.starts else "bad"


def key_of(offer: Offer) -> tuple[str, str, str | None]:
    """Of its row."""
    return "offer", offer.host, offer.gpu


class HostPlans:
    def __init__(self, owner: Screen[None], home: Home, changed: Callable[[], None]) -> None:
        self._owner, self._home, self._changed = owner, home, changed
        self._job: Job | None = None
        self._hosts: tuple[Host, ...] = ()
        self._plans: dict[str, _Plans] = {}
        self._asked: set[str] = set()

    def ask(self, job: Job | None, hosts: Sequence[Host]) -> None:
        """Without waiting. None: of no interest any more."""
        self._hosts = tuple(hosts) if job is not None else ()
        if job != self._job:
            self._job = job
        for host in self._hosts:
            if host.name not in self._asked and not self._is_current(host):
                self._asked.add(host.name)
                begin(self._owner, partial(self._keep_asking, host))

    @property
    def offers(self) -> Offers:
        """What hosts said of the draft as it is."""
        return joined(self._plans[host.name].offers for host in self._hosts if self._is_current(host))

    @property
    def waiting(self) -> list[str]:
        """Hosts that have not answered yet."""
        return [host.name for host in self._hosts if not self._is_current(host)]

    def chosen(self, key: object) -> Offer | None:
        """The offer in the row under the cursor, else the best of those that start."""
        offers = self.offers
        return next((one for one in offers.ordered if key_of(one) == key), offers.best)

    def rows(self, width: int) -> list[Row]:
        """Offers, first what would end first; then hosts without one, and those that have not answered."""
        if not self._hosts:
            return []
        columns = Columns(
            (
                Column("OFFERS", 10),
                Column("GPU", 16),
                Column("ends in", 8, right=True),
                Column("time is", 9),
                Column("now", 26, grows=True),
                Column("needs", 11, right=True),
            ),
            width,
        )
        offers = self.offers
        # Kept until the new answer comes: else all rows below would jump at every key.
        old = [self._plans[name].offers for name in self.waiting if name in self._plans]
        return [
            BLANK,
            columns.heading(),
            *(_offer(one, columns, tone_of(one)) for one in offers.ordered),
            *(_offer(one, columns, "dim") for one in joined(old).ordered),
            *(_silent(one, width) for one in offers.silent),
            *(
                text_row(f"{name}  asked, no answer yet", width, "dim")
                for name in self.waiting
                if name not in self._plans or not self._plans[name].offers.ordered
            ),
        ]

    def _is_current(self, host: Host) -> bool:
        plans = self._plans.get(host.name)
        return plans is not None and plans.job == self._job

    async def _keep_asking(self, host: Host) -> None:
        """Until the newest job has an answer."""
        while self._job is not None and host in self._hosts and not self._is_current(host):
            job = self._job
            self._plans[host.name] = _Plans(job, await in_own_thread(partial(self._ask, host, job)))
            self._changed()
        self._asked.discard(host.name)

    def _ask(self, host: Host, job: Job) -> Offers:
        try:
            return ask_offers(self._home, [host], job)
        except KgopsError as error:  # its data cannot be read here
            return Offers([], [Said(host, problem=error.message, hint=error.hint)])


async def start_on_host(screen: RunScreenBase, host: Host, job: Job, *, force: bool) -> None:
    """Says how far the copy of its files is, and opens the run in place of `screen`, if that is still in front."""
    console, loop = screen.kgops, asyncio.get_running_loop()
    shown_at = 0.0

    def copying(name: str, sent: int, size: int) -> None:
        """Called by the thread that copies."""
        nonlocal shown_at
        now = time.monotonic()
        if sent >= size or now - shown_at > _COPY_SHOWN_S:
            shown_at = now
            loop.call_soon_threadsafe(console.say, copied(host.name, name, sent, size))

    console.say(f"starting it on {host.name} …")

    notes: list[str] = []

    def start() -> int:
        sent = send_data(console.home, host, job, copying)
        return start_there(console.home, host, sent, flags_of(force=force), notes.append)

    try:
        number = await in_own_thread(start)
    except KgopsError as error:
        console.say(error_text(error), "bad")
        return
    if console.screen is screen:
        await console.switch_screen(HostRun(HostedRun.of(host, number, {"label": job.label})))
    console.say("; ".join([f"started run {host.name}:{number}", *notes]))


def _offer(offer: Offer, columns: Columns, tone: str) -> Row:
    basis = "unknown" if offer.takes_s is None else "measured" if offer.is_measured else "predicted"
    plain = "dim" if tone == "dim" else "text"
    return columns.row(
        (
            Piece(offer.host, "accent" if plain == "text" else plain),
            Piece(f"{offer.gpu} {offer.name}" if offer.gpu else offer.name, plain),
            Piece(when(offer)[0], plain),
            Piece(basis, "dim"),
            Piece(offer.now, tone),
            Piece(offer.needs, plain),
        ),
        key_of(offer),
    )


def _silent(answer: Said, width: int) -> Row:
    hint = f" → {answer.hint}" if answer.hint else ""
    return text_row(f"{answer.host.name}  no plan: {answer.problem}{hint}", width, "warn")
