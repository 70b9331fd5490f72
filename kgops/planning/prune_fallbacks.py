"""Which rungs of a ladder are worth an attempt: those with which a job is predicted to need less.

Each attempt loads its libraries and its graph anew. What saves nothing by itself may do so with what comes next,
as where two moments of a run take as much as each other: if it changes no numbers, it goes along with that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.options import kind_of
from kgops.planning.memory_estimate import predict
from kgops.planning.oom_fallbacks import Change, Rung
from kgops.planning.planner import Suggestion
from kgops.planning.stage_sizes import Shape

__all__ = ["Skipped", "worth_an_attempt"]

_NOTICEABLY = 0.99  # of what was needed: a smaller difference is none that a prediction can tell
# What filtering leaves the data say: it is predicted as if it left all there is.
_NOT_PREDICTED = frozenset({"filtering"})


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rung without an attempt of its own, and why."""

    rung: Rung
    why: str

    def as_table(self) -> dict[str, Any]:
        return {**self.rung.as_table(), "skipped": self.why}


def worth_an_attempt(
    rungs: Sequence[Rung], job: Job, suggestion: Suggestion
) -> tuple[list[Rung], list[Skipped]]:
    """Those to try, and those not. `job` has the levers that it starts with, `suggestion` how it is predicted."""
    start = {c.lever: c.before for rung in reversed(rungs) for c in reversed(rung.changes)}
    predicted = _Predicted(job, suggestion)
    tried: list[Rung] = []
    skipped: list[Skipped] = []
    waiting: list[Skipped] = []
    settings: dict[str, Any] = {}
    need = predicted.mib(settings)
    for rung in rungs:
        alone = _joined([rung], start | settings, settings)
        together = _joined([*(one.rung for one in waiting), rung], start | settings, settings)
        helps = predicted.mib(together.settings) < predicted.mib(alone.settings) * _NOTICEABLY
        best = together if helps else alone
        then = predicted.mib(best.settings)
        if then >= need * _NOTICEABLY and predicted.knows(rung, best.settings):
            left = Skipped(rung, _beside(then, need))
            (waiting if rung.kind == "exact" and then <= need else skipped).append(left)
            continue
        tried.append(best)
        need, settings = then, best.settings
        why = "; it goes with the next one" if helps else ""
        skipped += [replace(one, why=one.why + why) for one in waiting if one.rung.levers & best.levers]
        waiting = [one for one in waiting if not one.rung.levers & best.levers]
    return tried, skipped + waiting


class _Predicted:
    def __init__(self, job: Job, suggestion: Suggestion) -> None:
        self._job, self._suggestion = job, suggestion
        self._known: list[tuple[Shape, float]] = []

    def mib(self, settings: Mapping[str, Any]) -> float:
        return max(map(self._mib_of, self._shapes(settings)))

    def knows(self, rung: Rung, settings: Mapping[str, Any]) -> bool:
        """Whether the formula sees what a rung changes, which `settings` have."""
        levers = {change.lever: change.before for change in rung.changes}
        seen = self._shapes(settings) != self._shapes({**settings, **levers})
        return seen and not levers.keys() & _NOT_PREDICTED

    def _mib_of(self, shape: Shape) -> float:
        """Most rungs change one stage of two, and the same is asked again while rungs wait."""
        for known, mib in self._known:
            if known == shape:
                return mib
        card, correction = self._suggestion.target.facts, self._suggestion.known.correction
        # Of tensors alone: what a process takes beside them no rung changes.
        self._known.append((shape, predict(shape, card, correction=correction).total_mib))
        return self._known[-1][1]

    def _shapes(self, settings: Mapping[str, Any]) -> list[Shape]:
        subject, card = self._suggestion.subject, self._suggestion.target.facts
        return subject.shapes({**self._job.levers, **settings}, card)


def _joined(rungs: Sequence[Rung], now: Mapping[str, Any], settings: Mapping[str, Any]) -> Rung:
    """All of these as one, from where levers are `now`, of which `settings` were changed before."""
    after = {change.lever: change.after for rung in rungs for change in rung.changes}
    changes = tuple(Change(name, now[name], value, kind_of(name)) for name, value in after.items())
    reasons = dict.fromkeys(rung.reason for rung in rungs)
    return Rung(rungs[-1].kind, "; ".join(reasons), changes, {**settings, **after})


def _beside(then: float, need: float) -> str:
    same = f"{then:,.0f}" == f"{need:,.0f}"
    return f"{then:,.0f} MiB predicted with it, {'as much as' if same else f'{need:,.0f} MiB'} without"
