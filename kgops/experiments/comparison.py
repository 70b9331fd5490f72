"""A benchmark as a set of ordinary supervised runs that take turns; what is finished is never done again.

In each round the baseline and every variant run once, each round starting with another; a variant's run and the
baseline's of the same round are a pair, in the database as soon as both have ended. Killed, the benchmark goes on with
the pairs that are missing, each beside a run of the baseline of its own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kgops.errors import KgopsError, Usage, WontFit
from kgops.experiments.fingerprint import fingerprint
from kgops.experiments.pairs import troubles
from kgops.experiments.summary import as_measurements
from kgops.experiments.trial_result import read_run
from kgops.jobs.job import LONGEST_LABEL, Job
from kgops.jobs.placeholders import fill_in
from kgops.jobs.temporary_environment import lent
from kgops.jobs.text import one_line
from kgops.jobs.trials import of_turn, read_turns
from kgops.planning.resolve import for_worker, resolve
from kgops.settings import Home
from kgops.supervisor import locks, machine_load
from kgops.supervisor.control import stop_run, wait_for_end
from kgops.supervisor.launch import launch
from kgops.supervisor.plan_job import plan, refuse_what_cannot_fit
from kgops.supervisor.run_folder import RunFolder
from storage import benches, measurements, reports, runs
from storage.benches import Bench, Pair
from storage.database import Connection

__all__ = ["Contest", "Place", "hold"]

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Contest:
    """What is compared: variants by name, the first of them the baseline, `rounds` times."""

    name: str
    variants: dict[str, Job]
    rounds: int
    warm_all: bool = True  # each variant once before it counts, or the baseline alone
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # what was varied, for charts
    together: bool = False  # one command takes all of them in turn: see kgops/trials/variants.py
    turns: int = 1  # rounds that one run of such a command has

    @property
    def baseline(self) -> str:
        return next(iter(self.variants))

    @property
    def others(self) -> list[str]:
        return list(self.variants)[1:]

    def as_table(self) -> dict[str, Any]:
        jobs = [
            {"name": name, "job": job.as_table(), "varied": self.settings.get(name, {})}
            for name, job in self.variants.items()
        ]
        how = {
            "rounds": self.rounds,
            "warm_all": self.warm_all,
            "together": self.together,
            "turns": self.turns,
        }
        return {"variants": jobs, **how, "cwd": str(Path.cwd())}


@dataclass(frozen=True)
class Place:
    """Where runs are kept, and who hears how it goes."""

    home: Home
    conn: Connection
    tell: Tell


@dataclass(frozen=True)
class _Turn:
    run: int | None
    told: dict[str, Any]


def hold(place: Place, contest: Contest, command: str, *, afresh: bool = False) -> Bench:
    """Runs what is missing of the contest and keeps what it comes to."""
    lock = locks.take(place.home.path / "bench.lock")
    if lock is None:
        raise Usage(
            "another benchmark is going on in this home: each would disturb the other",
            "wait for it, or stop it with Ctrl-C where it runs",
        )
    try:
        with _ends_are_interrupts():
            return _hold(place, contest, command, afresh)
    finally:
        os.close(lock)


@contextmanager
def _ends_are_interrupts() -> Iterator[None]:
    """SIGTERM and a lost terminal stop the run that is going on, as Ctrl-C does: it would be in the next one's way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _hold(place: Place, contest: Contest, command: str, afresh: bool) -> Bench:
    bench = _begin(place, contest, command, afresh)
    _end_leftovers(place, bench)
    throttled = machine_load.ThrottleCounter()
    if not contest.together and any(_missing(place, bench, contest, n) for n in _numbers(contest)):
        _warm_up(place, bench, contest)
    for number in _numbers(contest)[:: contest.turns]:
        rounds = range(number, number + contest.turns)
        if not any(_missing(place, bench, contest, one) for one in rounds):
            continue
        if contest.together:
            _rounds_of_one_run(place, bench, contest, rounds)
        else:
            _round(place, bench, contest, number, _missing(place, bench, contest, number))
    slowed = throttled.since()
    if slowed:
        place.tell(f"Note: the CPUs were slowed for their heat {slowed:,} times during this benchmark.")
    benches.end(place.conn, bench.id, time.time())
    ended = benches.get(place.conn, bench.id)
    assert ended is not None
    measurements.replace_of_bench(place.conn, bench.id, as_measurements(place.conn, ended))
    return ended


def _begin(place: Place, contest: Contest, command: str, afresh: bool) -> Bench:
    """The unfinished one of the same plan on the same fingerprint, or else a new one."""
    machine = fingerprint()
    key, table = measurements.fingerprint_key(machine), contest.as_table()
    known = benches.unfinished(place.conn, contest.name, table)
    for bench in known if not afresh else ():
        if bench.fingerprint == key:
            done = len(benches.pairs(place.conn, bench.id))
            place.tell(f"Going on with benchmark {bench.id}: {done} of its pairs are finished.")
            return bench
    if known and not afresh:
        place.tell(
            f"Note: benchmark {known[0].id} of this plan is unfinished, but on another fingerprint: CPU, GPU, "
            "versions or commit have changed. It is left as it is, and a new one is begun."
        )
    number = benches.begin(place.conn, contest.name, table, command, machine, time.time())
    begun = benches.get(place.conn, number)
    assert begun is not None
    return begun


def _numbers(contest: Contest) -> range:
    return range(1, contest.rounds + 1)


def _missing(place: Place, bench: Bench, contest: Contest, number: int) -> list[str]:
    """Variants without a pair in this round; one that could not be compared once is not tried again."""
    pairs = benches.pairs(place.conn, bench.id)
    done = {pair.variant for pair in pairs if pair.round == number or troubles([pair])}
    return [name for name in contest.others if name not in done]


def _warm_up(place: Place, bench: Bench, contest: Contest) -> None:
    again = bool(benches.pairs(place.conn, bench.id))
    names = list(contest.variants) if contest.warm_all and not again else [contest.baseline]
    for name in names:
        turn = _take(place, bench, contest, name, "warm-up")
        trouble = turn.told.get("trouble")
        if trouble and name == contest.baseline:
            of = f" (run {turn.run})" if turn.run else ""
            benches.end(place.conn, bench.id, time.time())
            raise KgopsError(
                f"the baseline {name} did not succeed{of}: {one_line(trouble)}",
                "nothing can be compared with it; `kgops logs` shows what the run said",
            )


def _round(place: Place, bench: Bench, contest: Contest, number: int, missing: Sequence[str]) -> None:
    calm = _look_around(place, f"round {number}")
    when = f"round {number} of {contest.rounds}"
    members = [contest.baseline, *missing]
    shift = (number - 1) % len(members)
    turns: dict[str, _Turn] = {}
    for name in members[shift:] + members[:shift]:
        turns[name] = _take(place, bench, contest, name, when)
        if contest.baseline not in turns:
            continue
        for ready in [one for one in turns if one != contest.baseline]:
            _keep(place, bench, number, ready, turns[contest.baseline], turns.pop(ready), calm)


def _rounds_of_one_run(place: Place, bench: Bench, contest: Contest, rounds: range) -> None:
    """One run in which all take their turns. Its command is told the first round, to begin with another each time."""
    job = contest.variants[contest.baseline]
    first, last = rounds[0], rounds[-1]
    when = f"round{'' if first == last else 's'} {first}{'' if first == last else f'-{last}'}"
    calm = _look_around(place, when)
    command = fill_in(job.settings["command"], {"round": first, "turns": len(rounds)})
    job = replace(job, settings={**job.settings, "command": command})
    turn = _supervised(place, bench, job, contest.name, f"{when} of {contest.rounds}")
    run = runs.get(place.conn, turn.run) if turn.run is not None else None
    told = read_turns(RunFolder(place.home.runs / run.folder).results) if run is not None else None
    if told is None or turn.told["trouble"]:
        benches.end(place.conn, bench.id, time.time())
        raise KgopsError(
            f"the command of {contest.name} did not succeed: {one_line(turn.told['trouble'] or 'it said nothing')}",
            f"`kgops logs {turn.run}` shows what it said",
        )
    for turn_of_run, number in enumerate(rounds):
        for name in _missing(place, bench, contest, number):
            base, other = (
                _Turn(turn.run, of_turn(told, one, turn_of_run)) for one in (contest.baseline, name)
            )
            _keep(place, bench, number, name, base, other, calm)


def _look_around(place: Place, before: str) -> machine_load.MachineLoad:
    calm = machine_load.measure()
    if not calm.is_idle:
        place.tell(f"Note: not quiet before {before}: {'; '.join(calm.warnings)}.")
    return calm


def _keep(
    place: Place,
    bench: Bench,
    number: int,
    name: str,
    base: _Turn,
    other: _Turn,
    calm: machine_load.MachineLoad,
) -> None:
    pair = Pair(
        *(number, name, base.run, other.run, base.told, other.told),
        *(calm.busy, calm.warnings, time.time()),
    )
    benches.add_pair(place.conn, bench.id, pair)


def _take(place: Place, bench: Bench, contest: Contest, name: str, when: str) -> _Turn:
    """One supervised run, from its plan to its end."""
    return _supervised(place, bench, contest.variants[name], name, when)


def _supervised(place: Place, bench: Bench, job: Job, name: str, when: str) -> _Turn:
    label = f"bench {bench.id}: {name}"[:LONGEST_LABEL]
    # Nobody else's run beside it: that of the CPUs is asked of the queue.
    job = replace(job, label=label, gpu=replace(job.gpu, exclusive=True))
    resolved = resolve(job)
    with lent(for_worker(resolved.environment, os.environ)):
        planned = plan(resolved, place.home, place.conn)
        try:
            refuse_what_cannot_fit(planned)
        except WontFit as error:
            return _Turn(None, {"state": "refused", "trouble": error.message})
        number = launch(place.home, place.conn, planned)
    reports.change_tags(place.conn, number, add=[_tag(bench)], remove=[])
    try:
        run = wait_for_end(place.home, place.conn, number)
    except KeyboardInterrupt:
        _stop(place, number)
        raise
    told = read_run(place.conn, run)
    seconds = told["seconds"]
    place.tell(
        f"{when} · {name}: "
        + (
            f"{seconds:.4g} s, {told['seconds_of']}"
            if seconds is not None and not told["trouble"]
            else run.state
        )
        + f" (run {number})"
    )
    if run.state in ("cancelled", "interrupted"):
        raise Usage(
            f"run {number} was {run.state}: the benchmark is not finished",
            "the same command goes on where it was; finished pairs are kept",
        )
    return _Turn(number, told)


def _end_leftovers(place: Place, bench: Bench) -> None:
    """Of a benchmark that was killed the run it was waiting for goes on: it belongs to no pair."""
    for run in runs.page(place.conn, runs.Filter(states=runs.UNFINISHED, tag=_tag(bench))):
        place.tell(f"Note: run {run.id} was left over from before and is stopped.")
        _stop(place, run.id)


def _stop(place: Place, number: int) -> None:
    run = runs.get(place.conn, number)
    if run is not None:
        stop_run(place.home, place.conn, run, 5.0)
        wait_for_end(place.home, place.conn, number)


def _tag(bench: Bench) -> str:
    return f"bench-{bench.id}"
