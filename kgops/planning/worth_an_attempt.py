"""OOM fallbacks that are worth an attempt: those that are predicted to need noticeably less memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kgops.jobs.job import Job
from kgops.planning.memory_estimate import predict
from kgops.planning.oom_fallbacks import Change, Fallback
from kgops.planning.planner import Suggestion
from kgops.workloads.catalog import effect_of
from kgops.workloads.plan import Shape

_MIB = 1 << 20
_NOTICEABLY = 0.99  # share of the need; predictions cannot resolve a smaller difference
# How much filtering leaves depends on the data: predictions assume all triples.
_NOT_PREDICTED = frozenset({"filtering"})


@dataclass(frozen=True, slots=True)
class Skipped:
    """A fallback that gets no attempt, and why."""

    fallback: Fallback
    why: str

    def as_table(self) -> dict[str, Any]:
        return {**self.fallback.as_table(), "skipped": self.why}


def worth_an_attempt(
    fallbacks: Sequence[Fallback], job: Job, suggestion: Suggestion
) -> tuple[list[Fallback], list[Skipped]]:
    """Fallbacks to try and fallbacks to skip. `job` has the starting options, `suggestion` the prediction's inputs."""
    start = {c.option: c.before for fallback in reversed(fallbacks) for c in reversed(fallback.changes)}
    predicted = _Predicted(job, suggestion)
    tried: list[Fallback] = []
    skipped: list[Skipped] = []
    waiting: list[Skipped] = []
    settings: dict[str, Any] = {}
    need = predicted.mib(settings)
    for fallback in fallbacks:
        alone = _joined([fallback], start | settings, settings)
        together = _joined([*(one.fallback for one in waiting), fallback], start | settings, settings)
        helps = predicted.mib(together.settings) < predicted.mib(alone.settings) * _NOTICEABLY
        best = together if helps else alone
        then = predicted.mib(best.settings)
        if then >= need * _NOTICEABLY and predicted.knows(fallback, best.settings):
            left = Skipped(fallback, _beside(then, need))
            (waiting if fallback.effect == "exact" and then <= need else skipped).append(left)
            continue
        tried.append(best)
        need, settings = then, best.settings
        why = "; tried with the next one" if helps else ""
        skipped += [replace(one, why=one.why + why) for one in waiting if one.fallback.options & best.options]
        waiting = [one for one in waiting if not one.fallback.options & best.options]
    return tried, skipped + waiting


class _Predicted:
    def __init__(self, job: Job, suggestion: Suggestion) -> None:
        self._job, self._suggestion = job, suggestion
        self._known: dict[Shape, float] = {}

    def mib(self, settings: Mapping[str, Any]) -> float:
        return max(map(self._mib_of, self._shapes(settings)))

    def knows(self, fallback: Fallback, settings: Mapping[str, Any]) -> bool:
        """Whether the memory formula depends on the options of a fallback, which `settings` include."""
        options = {change.option: change.before for change in fallback.changes}
        seen = self._shapes(settings) != self._shapes({**settings, **options})
        return seen and not options.keys() & _NOT_PREDICTED

    def _mib_of(self, shape: Shape) -> float:
        """Remembers predictions: most fallbacks change one stage of two."""
        if shape not in self._known:
            gpu, learned = self._suggestion.target.facts, self._suggestion.corrections
            # Tensors only: fallbacks do not change the rest of the process.
            context = None if learned.context_mib is None else round(learned.context_mib * _MIB)
            estimate = predict(shape, gpu, correction=learned.correction, context=context)
            self._known[shape] = estimate.total_mib
        return self._known[shape]

    def _shapes(self, settings: Mapping[str, Any]) -> list[Shape]:
        job_size, gpu = self._suggestion.job_size, self._suggestion.target.facts
        return job_size.shapes({**self._job.options, **settings}, gpu)


def _joined(fallbacks: Sequence[Fallback], now: Mapping[str, Any], settings: Mapping[str, Any]) -> Fallback:
    """These fallbacks as one, from options `now`; `settings` are the changes before."""
    after = {change.option: change.after for fallback in fallbacks for change in fallback.changes}
    changes = tuple(Change(name, now[name], value, effect_of(name)) for name, value in after.items())
    reasons = dict.fromkeys(fallback.reason for fallback in fallbacks)
    return Fallback(fallbacks[-1].effect, "; ".join(reasons), changes, {**settings, **after})


def _beside(then: float, need: float) -> str:
    same = f"{then:,.0f}" == f"{need:,.0f}"
    return f"{then:,.0f} MiB predicted with it, {'as much as' if same else f'{need:,.0f} MiB'} without"
