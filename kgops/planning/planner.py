"""The planner: options that fit a GPU, and alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any

from kgops.jobs.option import Effect
from kgops.planning import rules
from kgops.planning.memory_estimate import (
    Correction,
    ExpectedTime,
    JobSize,
    MemoryEstimate,
    TimeCorrection,
    predict,
)
from kgops.planning.oom_fallbacks import oom_fallbacks
from kgops.planning.process_memory import ProcessModel, data_bytes
from kgops.planning.resolve import expands_segments, work_of
from kgops.planning.speed import Retrainings, rates_of, retrainings_of, seconds, step_time
from kgops.planning.targets import Target
from kgops.workloads.catalog import effect_of
from kgops.workloads.plan import Filtering, Rates, Retraining, Shape, StepTime, Training, plan_of
from kgops.workloads.registry import devices_of, workload_of

# Share of memory kept free: a prediction that is too low ends a run. No GPU measurement allows less yet.
MARGIN = 0.10
_OTHERS = 3
_ALIKE = 3  # further candidates looked at, since some are nearly equal
_LARGEST_BATCH = 1 << 20
_MIB = 1 << 20
_ORDER: tuple[Effect, ...] = ("exact", "rounding", "changes results")


@dataclass(frozen=True, slots=True)
class MachineCorrections:
    """Corrections of predictions, learned from runs on this machine; None before the first runs."""

    correction: Correction | None = None
    time: TimeCorrection | None = None
    process: ProcessModel | None = None  # of the worker on a CPU; None: only tensors are predicted
    context_mib: float | None = None  # of CUDA, on this GPU with this driver
    training: TimeCorrection | None = None  # of trainings that a job of another workload repeats


@dataclass(frozen=True, slots=True)
class Candidate:
    """`changes` are the options that differ from the request, `effect` their strongest effect. `seconds` is the
    modelled time of an epoch, or of the whole TracIn run. `step` is one step or block of training triples, None in a
    pipeline."""

    changes: dict[str, Any]
    effect: Effect
    estimate: MemoryEstimate
    seconds: float
    step: StepTime | None = None

    @property
    def need_mib(self) -> float:
        return need_mib(self.estimate)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`chosen` None: no exact change fits; then `nearest` is the first OOM fallback that fits, if any."""

    job_size: JobSize
    target: Target
    requested: Candidate
    chosen: Candidate | None
    nearest: Candidate | None
    others: tuple[Candidate, ...]
    corrections: MachineCorrections
    # That is predicted to fit, for training, at most all examples; None where it was not asked for.
    largest_batch: int | None = None
    fits_any_batch: bool = False

    @property
    def fits(self) -> bool:
        return self.chosen is not None

    @property
    def retrainings(self) -> Retrainings | None:
        """Of `--validate` or `--verify`, after what they check; None where nothing is retrained."""
        size, on = self.job_size, self.target
        job = size.retrains
        if job is None:
            return None
        shapes = size.shapes(size.job.options, on.facts)
        again = next((shape.retrained for shape in shapes if isinstance(shape, Retraining)), None)
        return retrainings_of(job, again, rates_of(on), self.corrections.training)

    @property
    def is_filtered(self) -> bool:
        """Whether it scores what filtering leaves, so that only counting tells how long it takes."""
        shapes = self.job_size.shapes(self.job_size.job.options, self.target.facts)
        return any(isinstance(shape, Filtering) and shape.filtered for shape in shapes)

    @property
    def expected(self) -> ExpectedTime | None:
        """Of an epoch or a run, by runs measured here; None without any."""
        time = None if self.is_filtered else self.corrections.time
        return None if time is None else time.expected(self.best.seconds)

    @property
    def predicted_step(self) -> StepTime | None:
        """Only by the model, where no such run was measured: on a known GPU, and of a TracIn run on the CPU."""
        is_unmeasured = self.corrections.time is None and not self.is_filtered
        return self.best.step if is_unmeasured and self._is_modelled else None

    def seconds_for(self, modelled_s: float) -> float | None:
        """What work of so many modelled seconds takes: by runs measured here, otherwise by the model. None: unknown."""
        if self.corrections.time is not None:
            return self.corrections.time.expected(modelled_s).s
        return modelled_s if self._is_modelled else None

    @property
    def _is_modelled(self) -> bool:
        if self.target.on_gpu:
            return self.target.known is not None
        job = self.job_size.job
        return workload_of(job).timed_on_cpu and devices_of(job) == 1

    @property
    def best(self) -> Candidate:
        """The candidate to run, whether it fits or not."""
        return self.chosen or self.requested


def need_mib(estimate: MemoryEstimate) -> float:
    """MiB that a run with this memory estimate needs, margin included."""
    return estimate.total_mib * (1 + MARGIN)


def suggest(
    job_size: JobSize,
    target: Target,
    corrections: MachineCorrections = MachineCorrections(),
    environment: Mapping[str, str] | None = None,
    *,
    thorough: bool = True,
) -> Suggestion | None:
    """None where the job has no memory formula. `thorough` also searches other candidates and the largest batch."""
    search = _Search(job_size, target, corrections, expands_segments(environment or {}))
    requested = search.candidate({})
    if requested is None:
        return None
    chosen: Candidate | None = requested
    if not search.fits(requested):
        # Fastest first; memory is estimated lazily, since that takes the time.
        exact = (changes for _, changes in search.fastest_first(search.exact_changes()))
        chosen = search.first_that_fits(exact)
    nearest = None if chosen is not None else search.nearest()
    if not thorough:
        return Suggestion(job_size, target, requested, chosen, nearest, (), corrections)
    more = search.fastest_first([{}, *search.exact_changes(), *search.precision_changes()])
    candidates = (search.candidate(changes) for _, changes in more[: _OTHERS + _ALIKE])
    others = _distinct(
        (one for one in candidates if one is not None and search.fits(one)), chosen or requested
    )
    batch, is_any = search.largest_batch(chosen.changes if chosen else {})
    return Suggestion(job_size, target, requested, chosen, nearest, others, corrections, batch, is_any)


class _Search:
    def __init__(
        self, job_size: JobSize, target: Target, corrections: MachineCorrections, expandable: bool
    ) -> None:
        self.job_size, self.target, self.corrections = job_size, target, corrections
        self.job = job_size.job
        self.options = dict(self.job.options)
        self.work = work_of(self.job)
        self.rates: Rates = rates_of(target)
        self.expandable = expandable
        self.entities = job_size.counts.entities
        counts = job_size.counts
        triples = counts.train + counts.valid + counts.test
        self.data = data_bytes(counts.entities, triples)
        self._predicted: dict[Shape, MemoryEstimate] = {}

    def candidate(self, changes: Mapping[str, Any]) -> Candidate | None:
        """The requested options with these changes; None where rules forbid them or there is no formula."""
        shapes = self._allowed(changes)
        if not shapes:
            return None
        estimate = max((self._estimate(shape) for shape in shapes), key=lambda one: one.total)
        effects: list[Effect] = ["exact", *(effect_of(name) for name in changes)]
        effect = max(effects, key=_ORDER.index)
        whole = sum(seconds(shape, self.rates) for shape in shapes)
        step = step_time(shapes[0], self.rates) if len(shapes) == 1 else None
        return Candidate(dict(changes), effect, estimate, whole, step)

    def fastest_first(self, choices: Iterable[Mapping[str, Any]]) -> list[tuple[float, Mapping[str, Any]]]:
        """Modelled seconds and changes that rules allow, the fastest first; of equally fast ones the fewest changes."""
        timed = [(self._modelled(changes), changes) for changes in choices]
        allowed = [(took, changes) for took, changes in timed if took is not None]
        return sorted(allowed, key=lambda pair: (round(pair[0], 12), len(pair[1])))

    def first_that_fits(self, choices: Iterable[Mapping[str, Any]]) -> Candidate | None:
        candidates = (self.candidate(changes) for changes in choices)
        return next((one for one in candidates if one is not None and self.fits(one)), None)

    def _modelled(self, changes: Mapping[str, Any]) -> float | None:
        shapes = self._allowed(changes)
        return sum(seconds(shape, self.rates) for shape in shapes) if shapes else None

    def _allowed(self, changes: Mapping[str, Any]) -> list[Shape]:
        """Sizes of all stages; empty where rules forbid the changes or there is no formula."""
        settled, corrections = rules.apply({**self.options, **changes}, self.target.facts, self.work)
        if any(correction.option in changes for correction in corrections):
            return []
        return self.job_size.shapes(settled, self.target.facts)

    def fits(self, candidate: Candidate) -> bool:
        """True also where the memory of the target is unknown."""
        usable = self.target.room_mib
        return usable is None or candidate.need_mib <= usable

    def exact_changes(self) -> Iterator[dict[str, Any]]:
        """Exact changes of options that are not fixed."""
        values: dict[str, Sequence[Any]] = {}
        for stage in self.job_size.stages:  # of an option of several stages, the values of the first
            values = {**plan_of(stage.job.workload).EXACT, **values}
        most = {"entity_chunk": self.entities - 1, "block": self.job_size.counts.train}
        axes: list[list[tuple[str, Any] | None]] = [
            [None, *((name, value) for value in tried if value <= most.get(name, value))]
            for name, tried in values.items()
            if self._is_open(name)
        ]
        for combination in product(*axes):
            changes = dict(pair for pair in combination if pair is not None)
            if changes:
                yield changes

    def precision_changes(self) -> Iterator[dict[str, Any]]:
        """Other number formats: shown to a person, never chosen."""
        stage = next(
            (one for one in self.job_size.stages if workload_of(one.job).trains), self.job_size.stages[-1]
        )
        yield from plan_of(stage.job.workload).rounding_choices(self.options, on_gpu=self.target.on_gpu)

    def nearest(self) -> Candidate | None:
        """The first OOM fallback that fits, those that change results included."""
        willing = replace(self.job, limits=replace(self.job.limits, allow_approximate=True))
        for fallback in oom_fallbacks(willing, self.target.facts, self.entities):
            candidate = self.candidate(fallback.settings)
            if candidate is not None and self.fits(candidate):
                return candidate
        return None

    def largest_batch(self, changes: Mapping[str, Any]) -> tuple[int | None, bool]:
        """Largest batch size that fits, to 2 %, at most all examples; whether all of them fit."""
        usable = self.target.room_mib
        if not self.job_size.trains or usable is None:
            return None, False
        room: float = usable

        def spare(batch: int) -> float:
            shapes = self._shapes({**changes, "batch_size": batch})
            return room - max(need_mib(self._estimate(shape)) for shape in shapes)

        shape = next(one for one in self._shapes(changes) if isinstance(one, Training))
        most = max(1, min(_LARGEST_BATCH, shape.examples))
        largest = largest_where(spare, min(shape.batch_size, most), most)
        return largest, largest == shape.examples

    def _shapes(self, changes: Mapping[str, Any]) -> list[Shape]:
        return self.job_size.shapes({**self.options, **changes}, self.target.facts)

    def _estimate(self, shape: Shape) -> MemoryEstimate:
        """Remembers estimates: an option of training changes no size of TracIn."""
        if shape not in self._predicted:
            self._predicted[shape] = predict(
                shape,
                self.target.facts,
                correction=self.corrections.correction,
                process=self.corrections.process,
                data=self.data,
                expandable=self.expandable,
                context=_bytes(self.corrections.context_mib),
            )
        return self._predicted[shape]

    def _is_open(self, option: str) -> bool:
        return str(self.options.get(option, "auto")) == "auto"


def largest_where(spare: Callable[[int], float], start: int, most: int) -> int | None:
    """Largest number up to `most`, to 2 %, for which `spare` is not negative; None if there is none.

    `spare` falls along nearly straight lines. So the next guess is where the line between the last two reaches 0. As it
    may also fall in steps, every third guess is the middle.
    """
    low, high, at_low = 0, start, math.inf
    while (at_high := spare(high)) >= 0:
        if high == most:
            return most
        low, at_low, high = high, at_high, min(most, high * 4)
    for number in count():
        step = max(1, low // 50)
        if high - low <= step:
            break
        if number % 3 == 2 or math.isinf(at_low):
            guess = (low + high) // 2
        else:
            guess = low + int((high - low) * at_low / (at_low - at_high))
        guess = min(max(guess, low + step), high - step)
        value = spare(guess)
        if value >= 0:
            low, at_low = guess, value
        else:
            high, at_high = guess, value
    return low or None


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else round(mib * _MIB)


def _distinct(candidates: Iterable[Candidate], best: Candidate) -> tuple[Candidate, ...]:
    """Candidates worth showing: no two with equal memory and time, and no exact one that is slower than another
    without needing less memory."""
    seen = {(round(best.need_mib), f"{best.seconds:.2g}")}
    distinct: list[Candidate] = []
    for candidate in candidates:
        key = (round(candidate.need_mib), f"{candidate.seconds:.2g}")
        is_beaten = any(
            candidate.need_mib >= one.need_mib and candidate.seconds >= one.seconds
            for one in (best, *distinct)
        )
        if key in seen or (candidate.effect == "exact" and is_beaten):
            continue
        seen.add(key)
        distinct.append(candidate)
        if len(distinct) == _OTHERS:
            break
    return tuple(distinct)
