"""Paired comparison of a baseline and its variants by interleaved supervised runs; resumes after an interruption.

In each round the baseline and every variant run once, in rotating order. A variant's run and the baseline's run of
that round form a pair, stored when both have ended. A resumed benchmark runs only the missing pairs, each with a new
run of the baseline.
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
from kgops.experiments.trial_result import read_run, troubles
from kgops.jobs.data_digests import changes
from kgops.jobs.job import Job
from kgops.jobs.run_options import LONGEST_LABEL
from kgops.jobs.text import fill_in, one_line
from kgops.planning.plan_job import plan, refuse_what_cannot_fit
from kgops.planning.resolve import for_worker, resolve
from kgops.planning.start import launch
from kgops.settings import Home
from kgops.supervisor import locks, machine_load
from kgops.supervisor.control import stop_run, wait_for_end
from kgops.supervisor.environment import temporary_variables
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.worker_reports import data_digests
from kgops.workloads.registry import read_trials, trial_of
from storage import benches, reports, run_list, runs
from storage.benches import Bench, Pair
from storage.database import Connection

Tell = Callable[[str], None]


@dataclass(frozen=True)
class PairedComparison:
    """Variants by name, the first of them the baseline, each run `rounds` times."""

    name: str
    variants: dict[str, Job]
    rounds: int
    warm_all: bool = True  # warm up every variant, or only the baseline
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # varied options, for charts
    together: bool = False  # one command runs all variants: see kgops/maths/trials/variants.py
    trials: int = 1  # rounds in one run of such a command

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
            "turns": self.trials,
        }
        return {"variants": jobs, **how, "cwd": str(Path.cwd())}


@dataclass(frozen=True)
class Context:
    """Home and database of the runs, and the callback for progress messages."""

    home: Home
    conn: Connection
    tell: Tell


@dataclass(frozen=True)
class _Trial:
    run: int | None
    values: dict[str, Any]


def run_comparison(
    context: Context, comparison: PairedComparison, command: str, *, afresh: bool = False
) -> Bench:
    """Runs the missing pairs of the comparison and stores the benchmark's values."""
    lock = locks.take(context.home.path / "bench.lock")
    if lock is None:
        raise Usage(
            "another benchmark is running in this home; two would disturb each other",
            "wait for it, or stop it with Ctrl-C in its terminal",
        )
    try:
        with _ends_are_interrupts():
            return _run(context, comparison, command, afresh)
    finally:
        os.close(lock)


@contextmanager
def _ends_are_interrupts() -> Iterator[None]:
    """SIGTERM and a lost terminal stop the current run as Ctrl-C does: it would disturb the next benchmark."""
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


def _run(context: Context, comparison: PairedComparison, command: str, afresh: bool) -> Bench:
    bench = _begin(context, comparison, command, afresh)
    _end_leftovers(context, bench)
    throttled = machine_load.ThrottleCounter()
    if not comparison.together and any(_missing(context, bench, comparison, n) for n in _rounds(comparison)):
        _warm_up(context, bench, comparison)
    for number in _rounds(comparison)[:: comparison.trials]:
        rounds = range(number, number + comparison.trials)
        if not any(_missing(context, bench, comparison, one) for one in rounds):
            continue
        if comparison.together:
            _rounds_of_one_run(context, bench, comparison, rounds)
        else:
            _round(context, bench, comparison, number, _missing(context, bench, comparison, number))
    slowed = throttled.since()
    if slowed:
        context.tell(f"Note: the CPUs were throttled for heat {slowed:,} times during this benchmark.")
    benches.end(context.conn, bench.id, time.time())
    ended = benches.get(context.conn, bench.id)
    assert ended is not None
    return ended


def _begin(context: Context, comparison: PairedComparison, command: str, afresh: bool) -> Bench:
    """Resumes an unfinished benchmark with this plan and fingerprint, or begins a new one."""
    machine = fingerprint()
    key, table = benches.fingerprint_key(machine), comparison.as_table()
    known = benches.unfinished(context.conn, comparison.name, table)
    for bench in known if not afresh else ():
        if bench.fingerprint == key:
            done = len(benches.pairs(context.conn, bench.id))
            context.tell(f"Resuming benchmark {bench.id}: {done} of its pairs are finished.")
            return bench
    if known and not afresh:
        context.tell(
            f"Note: benchmark {known[0].id} of this plan is unfinished, but has another fingerprint: CPU, GPU, "
            "versions or commit differ. A new benchmark starts; the old one stays unfinished."
        )
    number = benches.begin(context.conn, comparison.name, table, command, machine, time.time())
    begun = benches.get(context.conn, number)
    assert begun is not None
    return begun


def _rounds(comparison: PairedComparison) -> range:
    return range(1, comparison.rounds + 1)


def _missing(context: Context, bench: Bench, comparison: PairedComparison, number: int) -> list[str]:
    """Variants without a pair in this round, except those that could not be compared in an earlier round."""
    pairs = benches.pairs(context.conn, bench.id)
    done = {pair.variant for pair in pairs if pair.round == number or troubles([pair])}
    return [name for name in comparison.others if name not in done]


def _warm_up(context: Context, bench: Bench, comparison: PairedComparison) -> None:
    again = bool(benches.pairs(context.conn, bench.id))
    names = list(comparison.variants) if comparison.warm_all and not again else [comparison.baseline]
    for name in names:
        trial = _run_trial(context, bench, comparison, name, "warm-up")
        trouble = trial.values.get("trouble")
        if trouble and name == comparison.baseline:
            of = f" (run {trial.run})" if trial.run else ""
            benches.end(context.conn, bench.id, time.time())
            raise KgopsError(
                f"the baseline {name} failed{of}: {one_line(trouble)}",
                "no variant can be compared without it; `kgops logs` shows the run's output",
            )


def _round(
    context: Context, bench: Bench, comparison: PairedComparison, number: int, missing: Sequence[str]
) -> None:
    load = _check_load(context, f"round {number}")
    when = f"round {number} of {comparison.rounds}"
    members = [comparison.baseline, *missing]
    shift = (number - 1) % len(members)
    trials: dict[str, _Trial] = {}
    for name in members[shift:] + members[:shift]:
        trials[name] = _run_trial(context, bench, comparison, name, when)
        if comparison.baseline not in trials:
            continue
        for ready in [one for one in trials if one != comparison.baseline]:
            _keep(context, bench, number, ready, trials[comparison.baseline], trials.pop(ready), load)


def _rounds_of_one_run(context: Context, bench: Bench, comparison: PairedComparison, rounds: range) -> None:
    """One run that executes all variants. Its command gets the number of the first round, which sets their order."""
    job = comparison.variants[comparison.baseline]
    first, last = rounds[0], rounds[-1]
    when = f"round{'' if first == last else 's'} {first}{'' if first == last else f'-{last}'}"
    load = _check_load(context, when)
    command = fill_in(job.settings["command"], {"round": first, "turns": len(rounds)})
    job = replace(job, settings={**job.settings, "command": command})
    trial = _supervised(context, bench, job, comparison.name, f"{when} of {comparison.rounds}")
    run = runs.get(context.conn, trial.run) if trial.run is not None else None
    values = read_trials(RunFolder(context.home.runs / run.folder).results) if run is not None else None
    if values is None or trial.values["trouble"]:
        benches.end(context.conn, bench.id, time.time())
        raise KgopsError(
            f"the command of {comparison.name} failed: {one_line(trial.values['trouble'] or 'no output')}",
            f"`kgops logs {trial.run}` shows its output",
        )
    for index, number in enumerate(rounds):
        for name in _missing(context, bench, comparison, number):
            base, other = (
                _Trial(trial.run, trial_of(values, one, index)) for one in (comparison.baseline, name)
            )
            _keep(context, bench, number, name, base, other, load)


def _check_load(context: Context, before: str) -> machine_load.MachineLoad:
    load = machine_load.measure()
    if not load.is_idle:
        context.tell(f"Note: the machine is busy before {before}: {'; '.join(load.warnings)}.")
    return load


def _keep(
    context: Context,
    bench: Bench,
    number: int,
    name: str,
    base: _Trial,
    other: _Trial,
    load: machine_load.MachineLoad,
) -> None:
    pair = Pair(
        *(number, name, base.run, other.run, base.values, other.values),
        *(load.busy, load.warnings, time.time()),
    )
    benches.add_pair(context.conn, bench.id, pair)


def _run_trial(context: Context, bench: Bench, comparison: PairedComparison, name: str, when: str) -> _Trial:
    """One supervised run of a variant, from its plan to its end."""
    trial = _supervised(context, bench, comparison.variants[name], name, when)
    if trial.run is not None:
        _refuse_other_data(context, bench, comparison, name, trial.run)
    return trial


def _refuse_other_data(
    context: Context, bench: Bench, comparison: PairedComparison, name: str, run: int
) -> None:
    """Raises if a run of a variant read other data than the variant's first run."""
    is_baseline = name == comparison.baseline
    pairs = [one for one in benches.pairs(context.conn, bench.id) if is_baseline or one.variant == name]
    first = (pairs[0].baseline_run if is_baseline else pairs[0].variant_run) if pairs else None
    if first is None:
        return
    changed = changes(data_digests(context.conn, first), data_digests(context.conn, run))
    if changed:
        raise KgopsError(
            f"the data of {name} have changed since run {first} of this benchmark: {changed[0]}",
            "put them back and repeat the command, or start a new benchmark with --afresh",
        )


def _supervised(context: Context, bench: Bench, job: Job, name: str, when: str) -> _Trial:
    label = f"bench {bench.id}: {name}"[:LONGEST_LABEL]
    # Exclusive: no other run uses the GPU meanwhile; for CPU runs the queue ensures it.
    job = replace(job, label=label, gpu=replace(job.gpu, exclusive=True))
    resolved = resolve(job)
    with temporary_variables(for_worker(resolved.environment, os.environ)):
        planned = plan(resolved, context.home, context.conn)
        try:
            refuse_what_cannot_fit(planned)
        except WontFit as error:
            return _Trial(None, {"state": "refused", "trouble": error.message})
        number = launch(context.home, context.conn, planned)
    reports.change_tags(context.conn, number, add=[_tag(bench)], remove=[])
    try:
        run = wait_for_end(context.home, context.conn, number, context.tell)
    except KeyboardInterrupt:
        _stop(context, number)
        raise
    values = read_run(context.conn, run)
    seconds = values["seconds"]
    context.tell(
        f"{when} · {name}: "
        + (
            f"{seconds:.4g} s, {values['seconds_of']}"
            if seconds is not None and not values["trouble"]
            else run.state
        )
        + f" (run {number})"
    )
    if run.state in ("cancelled", "interrupted"):
        raise Usage(
            f"run {number} was {run.state}: the benchmark is not finished",
            "run the same command to resume; finished pairs are kept",
        )
    return _Trial(number, values)


def _end_leftovers(context: Context, bench: Bench) -> None:
    """Stops the run that a killed benchmark was waiting for: it belongs to no pair."""
    for run in run_list.page(context.conn, run_list.Filter(states=runs.UNFINISHED, tag=_tag(bench))):
        context.tell(f"Note: stopping run {run.id}, left over from an interrupted benchmark.")
        _stop(context, run.id)


def _stop(context: Context, number: int) -> None:
    run = runs.get(context.conn, number)
    if run is not None:
        stop_run(context.home, context.conn, run, 5.0)
        wait_for_end(context.home, context.conn, number, context.tell)


def _tag(bench: Bench) -> str:
    return f"bench-{bench.id}"
