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
from typing import Any, NoReturn

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
from kgops.supervisor.machine_load import MachineLoad
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
    throttled = machine_load.ThrottleCounter()
    _Measuring(context, comparison, bench).missing_pairs()
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


@dataclass(frozen=True)
class _Measuring:
    """The runs of one benchmark."""

    context: Context
    comparison: PairedComparison
    bench: Bench

    @property
    def _pairs(self) -> list[Pair]:
        return benches.pairs(self.context.conn, self.bench.id)

    @property
    def _tag(self) -> str:
        return f"bench-{self.bench.id}"

    def missing_pairs(self) -> None:
        self._end_leftovers()
        comparison = self.comparison
        every = range(1, comparison.rounds + 1)
        if not comparison.together and any(map(self._missing, every)):
            self._warm_up()
        for number in every[:: comparison.trials]:
            rounds = range(number, number + comparison.trials)
            if not any(map(self._missing, rounds)):
                continue
            if comparison.together:
                self._rounds_of_one_run(rounds)
            else:
                self._round(number, self._missing(number))

    def _missing(self, number: int) -> list[str]:
        """Variants without a pair in this round, except those that could not be compared in an earlier round."""
        done = {pair.variant for pair in self._pairs if pair.round == number or troubles([pair])}
        return [name for name in self.comparison.others if name not in done]

    def _warm_up(self) -> None:
        comparison = self.comparison
        whole = comparison.warm_all and not self._pairs
        for name in list(comparison.variants) if whole else [comparison.baseline]:
            trial = self._run_trial(name, "warm-up")
            trouble = trial.values.get("trouble")
            if trouble and name == comparison.baseline:
                of = f" (run {trial.run})" if trial.run else ""
                self._fail(
                    f"the baseline {name} failed{of}: {one_line(trouble)}",
                    "no variant can be compared without it; `kgops logs` shows the run's output",
                )

    def _fail(self, message: str, hint: str) -> NoReturn:
        benches.end(self.context.conn, self.bench.id, time.time())
        raise KgopsError(message, hint)

    def _round(self, number: int, missing: Sequence[str]) -> None:
        load = self._check_load(f"round {number}")
        baseline = self.comparison.baseline
        members = [baseline, *missing]
        shift = (number - 1) % len(members)
        trials: dict[str, _Trial] = {}
        for name in members[shift:] + members[:shift]:
            trials[name] = self._run_trial(name, f"round {number} of {self.comparison.rounds}")
            if baseline not in trials:
                continue
            for ready in [one for one in trials if one != baseline]:
                self._keep(number, ready, trials[baseline], trials.pop(ready), load)

    def _rounds_of_one_run(self, rounds: range) -> None:
        """One run that executes all variants. Its command gets the first round's number, which sets their order."""
        comparison = self.comparison
        job = comparison.variants[comparison.baseline]
        first, last = rounds[0], rounds[-1]
        when = f"round{'' if first == last else 's'} {first}{'' if first == last else f'-{last}'}"
        load = self._check_load(when)
        command = fill_in(job.settings["command"], {"round": first, "turns": len(rounds)})
        job = replace(job, settings={**job.settings, "command": command})
        trial = self._supervised(job, comparison.name, f"{when} of {comparison.rounds}")
        run = runs.get(self.context.conn, trial.run) if trial.run is not None else None
        runs_of_home = self.context.home.runs
        values = None if run is None else read_trials(RunFolder(runs_of_home / run.folder).results)
        if values is None or trial.values["trouble"]:
            self._fail(
                f"the command of {comparison.name} failed: {one_line(trial.values['trouble'] or 'no output')}",
                f"`kgops logs {trial.run}` shows its output",
            )
        for index, number in enumerate(rounds):
            for name in self._missing(number):
                base, other = (
                    _Trial(trial.run, trial_of(values, one, index)) for one in (comparison.baseline, name)
                )
                self._keep(number, name, base, other, load)

    def _check_load(self, before: str) -> MachineLoad:
        load = machine_load.measure()
        if not load.is_idle:
            self.context.tell(f"Note: the machine is busy before {before}: {'; '.join(load.warnings)}.")
        return load

    def _keep(self, number: int, name: str, base: _Trial, other: _Trial, load: MachineLoad) -> None:
        pair = Pair(
            *(number, name, base.run, other.run, base.values, other.values),
            *(load.busy, load.warnings, time.time()),
        )
        benches.add_pair(self.context.conn, self.bench.id, pair)

    def _run_trial(self, name: str, when: str) -> _Trial:
        """One supervised run of a variant, from its plan to its end."""
        trial = self._supervised(self.comparison.variants[name], name, when)
        if trial.run is not None:
            self._refuse_other_data(name, trial.run)
        return trial

    def _refuse_other_data(self, name: str, run: int) -> None:
        """Raises if a run of a variant read other data than the variant's first run."""
        conn, is_baseline = self.context.conn, name == self.comparison.baseline
        pairs = [one for one in self._pairs if is_baseline or one.variant == name]
        first = (pairs[0].baseline_run if is_baseline else pairs[0].variant_run) if pairs else None
        if first is None:
            return
        changed = changes(data_digests(conn, first), data_digests(conn, run))
        if changed:
            raise KgopsError(
                f"the data of {name} have changed since run {first} of this benchmark: {changed[0]}",
                "put them back and repeat the command, or start a new benchmark with --afresh",
            )

    def _supervised(self, job: Job, name: str, when: str) -> _Trial:
        home, conn, tell = self.context.home, self.context.conn, self.context.tell
        label = f"bench {self.bench.id}: {name}"[:LONGEST_LABEL]
        # Exclusive: no other run uses the GPU meanwhile; for CPU runs the queue ensures it.
        job = replace(job, label=label, gpu=replace(job.gpu, exclusive=True))
        resolved = resolve(job)
        with temporary_variables(for_worker(resolved.environment, os.environ)):
            planned = plan(resolved, home, conn)
            try:
                refuse_what_cannot_fit(planned)
            except WontFit as error:
                return _Trial(None, {"state": "refused", "trouble": error.message})
            number = launch(home, conn, planned)
        reports.change_tags(conn, number, add=[self._tag], remove=[])
        try:
            run = wait_for_end(home, conn, number, tell)
        except KeyboardInterrupt:
            self._stop(number)
            raise
        values = read_run(conn, run)
        seconds = values["seconds"]
        is_measured = seconds is not None and not values["trouble"]
        reached = f"{seconds:.4g} s, {values['seconds_of']}" if is_measured else run.state
        tell(f"{when} · {name}: {reached} (run {number})")
        if run.state in ("cancelled", "interrupted"):
            raise Usage(
                f"run {number} was {run.state}: the benchmark is not finished",
                "run the same command to resume; finished pairs are kept",
            )
        return _Trial(number, values)

    def _end_leftovers(self) -> None:
        """Stops the run that a killed benchmark was waiting for: it belongs to no pair."""
        wanted = run_list.Filter(states=runs.UNFINISHED, tag=self._tag)
        for run in run_list.page(self.context.conn, wanted):
            self.context.tell(f"Note: stopping run {run.id}, left over from an interrupted benchmark.")
            self._stop(run.id)

    def _stop(self, number: int) -> None:
        context = self.context
        run = runs.get(context.conn, number)
        if run is not None:
            stop_run(context.home, context.conn, run, 5.0)
            wait_for_end(context.home, context.conn, number, context.tell)
