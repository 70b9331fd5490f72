"""Option values that are predicted to fit, and why: what a run takes, and what `kgops suggest` shows beside it.

The options a person or a profile fixed stay. What a worker chooses by itself is kept wherever it fits, since it was
tuned by measurement: the search moves away from it only for room. What a roofline takes for faster is shown, to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from kgops.jobs.options import Effect, effect_of
from kgops.planning import rules
from kgops.planning.corrections import Correction
from kgops.planning.job_size import Subject
from kgops.planning.memory_estimate import MemoryEstimate, predict
from kgops.planning.oom_fallbacks import oom_fallbacks
from kgops.planning.process_memory import ProcessModel, data_bytes
from kgops.planning.regress_sizes import RegressShape
from kgops.planning.resolve import expands_segments, work_of
from kgops.planning.speed import Rates, rates_of, seconds
from kgops.planning.stage_sizes import Shape
from kgops.planning.targets import Target
from kgops.planning.time_corrections import Pace
from kgops.planning.train_sizes import TrainShape

__all__ = ["MARGIN", "Candidate", "Known", "Suggestion", "need_mib", "suggest"]

# Kept free beside a prediction. Under-prediction is what ends a run; on a GPU nothing was measured yet that
# would allow less.
MARGIN = 0.10
_OTHERS = 3
_ALIKE = 3  # of what is looked at for these, so many may be much the same as another
_LARGEST_BATCH = 1 << 20
_ORDER: tuple[Effect, ...] = ("exact", "rounding", "changes results")
_TRAIN_CHUNKS = (512, 2048, 8192, 32768)
_TRACIN_CHUNKS = (512, 1024, 8192, 32768)
_BLOCKS = (32, 64, 128, 512, 1024)


@dataclass(frozen=True, slots=True)
class Known:
    """What this machine's own runs have taught; nothing, before the first."""

    correction: Correction | None = None
    pace: Pace | None = None
    process: ProcessModel | None = None  # of such a worker on the CPU; None: its tensors alone are told


@dataclass(frozen=True, slots=True)
class Candidate:
    """`changes` are the options that differ from what was asked, `effect` the strongest of what they change.
    `seconds` is modelled: of an epoch, or of the whole tracing."""

    changes: dict[str, Any]
    effect: Effect
    estimate: MemoryEstimate
    seconds: float

    @property
    def need_mib(self) -> float:
        return need_mib(self.estimate)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`chosen` is None where nothing that may be chosen fits; then `nearest` is what would, if anything does."""

    subject: Subject
    target: Target
    asked: Candidate
    chosen: Candidate | None
    nearest: Candidate | None
    others: tuple[Candidate, ...]
    known: Known
    largest_batch: int | None = (
        None  # that is predicted to fit, for training; None where it was not asked for
    )

    @property
    def fits(self) -> bool:
        return self.chosen is not None

    @property
    def best(self) -> Candidate:
        """What would be run, fitting or not."""
        return self.chosen or self.asked


def need_mib(estimate: MemoryEstimate) -> float:
    """What must be there for a run with this memory estimate."""
    return estimate.total_mib * (1 + MARGIN)


def suggest(
    subject: Subject,
    target: Target,
    known: Known = Known(),
    environment: Mapping[str, str] | None = None,
    *,
    thorough: bool = True,
) -> Suggestion | None:
    """None where the job has no formula. `thorough` also looks for the next best settings and the largest batch."""
    search = _Search(subject, target, known, expands_segments(environment or {}))
    asked = search.candidate({})
    if asked is None:
        return None
    fits = search.fits(asked)
    if fits and not thorough:
        return Suggestion(subject, target, asked, asked, None, (), known)
    # Fastest first, and a memory estimate only where it is asked for: that is what takes time.
    exact = (changes for _, changes in search.by_pace(search.exact_changes()))
    chosen = asked if fits else search.first_that_fits(exact)
    nearest = None if chosen is not None else search.nearest()
    if not thorough:
        return Suggestion(subject, target, asked, chosen, nearest, (), known)
    more = search.by_pace([{}, *search.exact_changes(), *search.numeric_changes()])
    looked_at = (search.candidate(changes) for _, changes in more[: _OTHERS + _ALIKE])
    others = _different((one for one in looked_at if one is not None and search.fits(one)), chosen or asked)
    batch = search.largest_batch(chosen.changes if chosen else {})
    return Suggestion(subject, target, asked, chosen, nearest, others, known, batch)


class _Search:
    def __init__(self, subject: Subject, target: Target, known: Known, expandable: bool) -> None:
        self.subject, self.target, self.known = subject, target, known
        self.job = subject.job
        self.options = dict(self.job.options)
        self.work = work_of(self.job)
        self.rates: Rates = rates_of(target)
        self.expandable = expandable
        self.entities = subject.counts.entities
        counts = subject.counts
        kind, triples = known.process.kind if known.process else "", counts.train + counts.valid + counts.test
        self.data = data_bytes(kind, counts.entities, triples)
        self._predicted: list[tuple[Shape, MemoryEstimate]] = []

    def candidate(self, changes: Mapping[str, Any]) -> Candidate | None:
        """With the asked options changed so; None where rules do not let it stand, or there is no formula."""
        shapes = self._allowed(changes)
        if not shapes:
            return None
        estimate = max((self._estimate(shape) for shape in shapes), key=lambda one: one.total)
        effects: list[Effect] = ["exact", *(effect_of(name) for name in changes)]
        effect = max(effects, key=_ORDER.index)
        return Candidate(dict(changes), effect, estimate, sum(seconds(shape, self.rates) for shape in shapes))

    def by_pace(self, wanted: Iterable[Mapping[str, Any]]) -> list[tuple[float, Mapping[str, Any]]]:
        """Modelled seconds with each of these changes that rules let stand, the fastest first; of those that a
        roofline cannot tell apart the one that changes least."""
        paced = [(self._modelled(changes), changes) for changes in wanted]
        known = [(took, changes) for took, changes in paced if took is not None]
        return sorted(known, key=lambda pair: (round(pair[0], 12), len(pair[1])))

    def first_that_fits(self, wanted: Iterable[Mapping[str, Any]]) -> Candidate | None:
        candidates = (self.candidate(changes) for changes in wanted)
        return next((one for one in candidates if one is not None and self.fits(one)), None)

    def _modelled(self, changes: Mapping[str, Any]) -> float | None:
        shapes = self._allowed(changes)
        return sum(seconds(shape, self.rates) for shape in shapes) if shapes else None

    def _allowed(self, changes: Mapping[str, Any]) -> list[Shape]:
        """None of them where rules do not let the changes stand, or there is no formula."""
        settled, corrections = rules.apply({**self.options, **changes}, self.target.facts, self.work)
        if any(correction.option in changes for correction in corrections):
            return []
        return self.subject.shapes(settled, self.target.facts)

    def fits(self, candidate: Candidate) -> bool:
        """An unknown size of memory is no reason to refuse."""
        usable = self.target.room_mib
        return usable is None or candidate.need_mib <= usable

    def exact_changes(self) -> Iterator[dict[str, Any]]:
        """Values of the options that nobody fixed, which give the same numbers."""
        axes: list[list[tuple[str, Any] | None]] = []
        if self._is_open("entity_chunk"):
            chunks = _TRAIN_CHUNKS if self.subject.train is not None else _TRACIN_CHUNKS
            axes.append([None, *(("entity_chunk", chunk) for chunk in chunks if chunk < self.entities)])
        if self.subject.learns and self._is_open("gradient_checkpointing"):
            axes.append([None, ("gradient_checkpointing", True)])
        if self.subject.tracin is not None and self._is_open("block"):
            axes.append(
                [None, *(("block", block) for block in _BLOCKS if block <= self.subject.counts.train)]
            )
        for combination in product(*axes):
            changes = dict(pair for pair in combination if pair is not None)
            if changes:
                yield changes

    def numeric_changes(self) -> Iterator[dict[str, Any]]:
        """Other number formats: for a person to choose, never chosen for them."""
        if self.subject.learns:
            formats = ("fp32", "tf32", "fp16", "bf16") if self.target.on_gpu else ("fp32", "bf16")
            for precision in formats:
                if precision != self.options.get("precision", "fp32"):
                    yield {"precision": precision}
        elif self.options.get("gram_precision", "fp32") == "fp32":
            yield {"gram_precision": "bf16"}

    def nearest(self) -> Candidate | None:
        """The first fallback of the OOM fallbacks on which it fits, those that change results included."""
        willing = replace(self.job, limits=replace(self.job.limits, allow_approximate=True))
        for fallback in oom_fallbacks(willing, self.target.facts, self.entities):
            candidate = self.candidate(fallback.settings)
            if candidate is not None and self.fits(candidate):
                return candidate
        return None

    def largest_batch(self, changes: Mapping[str, Any]) -> int | None:
        """That fits, by bisection over predictions to 2 %; a batch of all examples at most."""
        usable = self.target.room_mib
        if not self.subject.learns or usable is None:
            return None
        room: float = usable

        def fits(batch: int) -> bool:
            shapes = self._shapes({**changes, "batch_size": batch})
            return max(need_mib(self._estimate(shape)) for shape in shapes) <= room

        shape = next(one for one in self._shapes(changes) if isinstance(one, TrainShape | RegressShape))
        most = max(1, min(_LARGEST_BATCH, shape.examples))
        low, high = 0, min(shape.batch_size, most)
        while fits(high):
            if high == most:
                return most
            low, high = high, min(most, high * 4)
        while high - low > max(1, low // 50):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low or None

    def _shapes(self, changes: Mapping[str, Any]) -> list[Shape]:
        return self.subject.shapes({**self.options, **changes}, self.target.facts)

    def _estimate(self, shape: Shape) -> MemoryEstimate:
        """Few of the shapes that a search looks at differ: an option that only training has changes no tracing."""
        for known, estimate in self._predicted:
            if known == shape:
                return estimate
        estimate = predict(
            shape,
            self.target.facts,
            correction=self.known.correction,
            process=self.known.process,
            data=self.data,
            expandable=self.expandable,
        )
        self._predicted.append((shape, estimate))
        return estimate

    def _is_open(self, option: str) -> bool:
        return str(self.options.get(option, "auto")) == "auto"


def _different(candidates: Iterable[Candidate], best: Candidate) -> tuple[Candidate, ...]:
    """The next ones worth a line: no two of the same need and pace, and none that gives the same numbers as
    another more slowly and for as much memory."""
    seen = {(round(best.need_mib), f"{best.seconds:.2g}")}
    found: list[Candidate] = []
    for candidate in candidates:
        key = (round(candidate.need_mib), f"{candidate.seconds:.2g}")
        is_beaten = any(
            candidate.need_mib >= one.need_mib and candidate.seconds >= one.seconds for one in (best, *found)
        )
        if key in seen or (candidate.effect == "exact" and is_beaten):
            continue
        seen.add(key)
        found.append(candidate)
        if len(found) == _OTHERS:
            break
    return tuple(found)
