"""The queue without a daemon: whoever looks starts what may start. Cards are reserved by predicted memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgops.errors import Unavailable
from kgops.jobs.cards_asked import CardsAsked
from kgops.runs.folder import RunFolder
from kgops.runs.ownership import take_over
from kgops.runs.spawn import start_supervisor
from kgops.settings import Home
from storage import runs
from storage.database import Connection, transaction
from storage.runs import Run

if TYPE_CHECKING:
    from kgops.gpus.readings import CardReading

CPU = "cpu"  # what a run takes that asks for no card


@dataclass(frozen=True, slots=True)
class Turn:
    """What a waiting run gets: cards by UUID (`cpu` for none), or the reason why it waits and for what."""

    card: str | None  # several as in "UUID,UUID"
    waits_for: str | None = None
    wants: frozenset[str] = frozenset()


def dispatch(home: Home, conn: Connection) -> list[int]:
    """Starts every waiting run whose turn it is, oldest first; the numbers of those it started.

    Safe for any process at any time: two that dispatch together do not start a run twice.
    """
    waiting = runs.in_states(conn, runs.WAITING)
    cards = _read_cards() if any(run.gpu is not None for run in waiting) else ()
    started: list[int] = []
    wanted_earlier: set[str] = set()
    for run in waiting:
        folder = RunFolder(home.runs / run.folder)
        # Before the claim, so that a claimed run whose lock is free is one whose supervisor died.
        lock = _lock(home, conn, run, folder)
        if lock is None:
            continue
        is_ours = True
        try:
            turn = _claim(conn, run, cards, frozenset(wanted_earlier))
            if turn is not None and turn.card is not None:
                start_supervisor(home, run.id, folder, lock)
                is_ours = False
                started.append(run.id)
        except Unavailable as error:  # it stays in the queue: whoever looks next tries again
            runs.set_state(conn, run.id, "queued", error.message)
            break
        finally:
            if (
                is_ours
            ):  # also where the database failed: a lock that nobody lets go would keep the run for ever
                os.close(lock)
        if turn is not None and turn.card is None:
            wanted_earlier |= turn.wants
            if turn.waits_for != run.reason:
                runs.set_reason(conn, run.id, "queued", turn.waits_for)
    return started


def _lock(home: Home, conn: Connection, run: Run, folder: RunFolder) -> int | None:
    """None where somebody else holds it, or where it cannot be had: the run's reason says why it waits."""
    try:
        return take_over(home, run.id, folder)
    except FileNotFoundError:  # somebody removed its folder; the next command that settles says so
        return None
    except (OSError, Unavailable) as error:
        told = error.message if isinstance(error, Unavailable) else f"{error.filename}: {error.strerror}"
        if told != run.reason:
            runs.set_reason(conn, run.id, "queued", told)
        return None


def _claim(
    conn: Connection, run: Run, cards: tuple[CardReading, ...] | str, taken: frozenset[str]
) -> Turn | None:
    """Looks and claims in one transaction, so that no two runs are given the same room. None: not waiting any more."""
    with transaction(conn):
        active = runs.in_states(conn, runs.ACTIVE)
        turn = find_turn(run, active, cards, taken)
        if turn.card is not None and not runs.claim(
            conn, run.id, card=None if turn.card == CPU else turn.card
        ):
            return None
    return turn


def find_turn(
    run: Run, active: list[Run], cards: tuple[CardReading, ...] | str, wanted_earlier: frozenset[str]
) -> Turn:
    """A pure choice. `wanted_earlier` is what runs before this one wait for: nobody overtakes on it.

    `cards` is a text where the cards cannot be read.
    """
    if run.gpu is None:
        return _turn_without_card(run, active, wanted_earlier)
    if isinstance(cards, str):
        return Turn(None, cards)
    ask = CardsAsked.read(run.gpu)
    asked = {card.uuid: card for card in cards if card.uuid and ask.includes(str(card.index), card.uuid)}
    if not asked or (ask.named is not None and len(asked) < len(ask.named)):
        return Turn(None, f"card {run.gpu}, which this machine does not have")
    many = min(ask.many or len(asked), len(asked))
    reasons: list[str] = []
    free: list[tuple[float, str]] = []
    for uuid, card in asked.items():
        on_it = [other for other in active if uuid in other.cards]
        room, reason = _room(run, card, on_it)
        if uuid in wanted_earlier:
            reasons.append(f"card {card.index} (an earlier run waits for it)")
        elif reason is not None:
            reasons.append(reason)
        else:
            free.append((room, uuid))
    if len(free) >= many:
        roomiest = {uuid for _, uuid in sorted(free, key=lambda one: -one[0])[:many]}
        return Turn(",".join(uuid for uuid in asked if uuid in roomiest))
    what = "any card: " if many == 1 else f"{many} cards: "
    return Turn(None, reasons[0] if len(asked) == 1 else what + "; ".join(reasons), frozenset(asked))


def _turn_without_card(run: Run, active: list[Run], wanted_earlier: frozenset[str]) -> Turn:
    beside = [other for other in active if other.gpu is None]
    alone = next((other for other in beside if other.exclusive), None)
    if alone is not None:
        return Turn(None, f"run {alone.id}, which has this machine's processors to itself", frozenset({CPU}))
    if CPU in wanted_earlier:
        return Turn(None, "an earlier run that wants this machine's processors to itself")
    if run.exclusive and beside:
        others = ", ".join(str(other.id) for other in beside)
        return Turn(None, f"this machine's processors to itself (in use by {others})", frozenset({CPU}))
    return Turn(CPU)


def _room(run: Run, card: CardReading, on_it: list[Run]) -> tuple[float, str | None]:
    """MiB left for others if the run goes there, or why it cannot."""
    by = ", ".join(str(other.id) for other in on_it)
    if any(other.exclusive or other.reserved_mib is None for other in on_it):
        return 0, f"card {card.index} (taken by {by})"
    if on_it and (run.exclusive or run.reserved_mib is None):
        return 0, f"card {card.index} to itself (in use by {by})"
    if card.memory_total_mib is None:
        return 0, f"card {card.index}, whose memory cannot be read"
    reserved = sum(other.reserved_mib or 0 for other in on_it)
    # Of what is used now, part is our own runs'; what they have reserved and not yet used must stay free.
    usable = card.memory_total_mib - (card.memory_reserved_mib or 0)  # the driver keeps some for itself
    free = usable - max(reserved, card.memory_used_mib or 0)
    need = run.reserved_mib or 0
    if need > free:
        why = f"reserved by {by}" if on_it else f"{card.memory_used_mib or 0:,.0f} MiB used by others"
        return 0, f"{need:,} MiB on card {card.index} ({why})"
    return free - need, None


def _read_cards() -> tuple[CardReading, ...] | str:
    from kgops.gpus import nvml

    opened = nvml.open_nvml()
    if not isinstance(opened, nvml.Nvml):
        return f"a card ({opened.message})"
    try:
        return opened.cards()
    finally:
        opened.close()
