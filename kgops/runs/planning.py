"""A resolved job becomes a plan: what it will need, whether that fits, and what this machine's runs say of it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable, WontFit
from kgops.jobs.cards_asked import asked_with_devices
from kgops.jobs.job import Job
from kgops.jobs.levers import Kind
from kgops.jobs.workloads import WORKLOADS
from kgops.plans import learned, pace
from kgops.plans.planner import Known, Option, Suggestion, need_mib, suggest
from kgops.plans.resolve import Choice, Resolved
from kgops.plans.subject import subject_of
from kgops.plans.targets import Target, processor, target_of_job
from kgops.settings import Home, make_home
from storage import forecasts
from storage.database import Connection

__all__ = [
    "EFFECTS",
    "Planned",
    "device_of",
    "known_of",
    "plan",
    "refuse_what_cannot_fit",
    "remembered_in",
    "told",
]

# What an option does to results, in words.
EFFECTS: dict[Kind, str] = {"exact": "exact", "numeric": "rounding", "approximate": "changes results"}
COUNTED_BEFORE_A_START = 40 << 20  # bytes of triples: some seven seconds, once


@dataclass(frozen=True, slots=True)
class Planned:
    """`job` has the levers as they will be pulled. Where nothing can be predicted, `unknown` says why."""

    job: Job
    choices: tuple[Choice, ...]
    target: Target
    suggestion: Suggestion | None = None
    unknown: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # of its profile, for the worker
    uuids: tuple[str, ...] = ()  # of the GPUs here that it is for
    resolved: Job | None = None  # before the planner chose anything
    picked: bool = False  # its profile, by its GPU: nobody named one

    @property
    def best(self) -> Option | None:
        return self.suggestion.best if self.suggestion else None

    @property
    def predicted_mib(self) -> float | None:
        return self.best.budget.total_mib if self.best else None

    @property
    def predicted_for(self) -> str | None:
        """Of what the prediction is, where it is not all that the run will take."""
        if self.job.levers.get("devices", 1) == 1:
            return None
        return "of one process alone; each of several has all weights, and its part of the work"

    @property
    def entities(self) -> int | None:
        return self.suggestion.subject.counts.entities if self.suggestion else None

    @property
    def gpu(self) -> str | None:
        """The cards that the queue is asked for: a run that will use some gets them from there."""
        asked = self.job.card.gpu
        if self._uses_card:
            return asked_with_devices(asked, self.job.levers.get("devices", 1))
        return asked or ("auto" if self.job.card.memory_mib else None)

    @property
    def reserved_mib(self) -> int | None:
        """Of each of its cards; None: unknown, so it gets them to itself."""
        if self.job.card.memory_mib is not None or self.gpu is None:
            return self.job.card.memory_mib
        return math.ceil(need_mib(self.best.budget)) if self.best else None

    def forecast(self) -> dict[str, Any] | None:
        """For the record: what formulas said, and for what."""
        if self.best is None:
            return None
        budget = self.best.budget
        plain = budget if budget.correction is None else replace(budget, correction=None)
        return {
            "on": _name(self.target),
            "on_card": self.target.on_card,
            "predicted_mib": plain.total_mib,
            "modelled_s": self.best.seconds,
            "usable_mib": self.target.usable_mib,
            "budget": budget.as_table(),
        }

    @property
    def _uses_card(self) -> bool:
        # `--device cuda:1` goes past the queue, as it says: cards are hidden from whoever got one there.
        return (
            WORKLOADS[self.job.workload].module is not None
            and self.target.on_card
            and not device_of(self.job).startswith("cuda:")
        )


def plan(
    resolved: Resolved,
    home: Home,
    conn: Connection | None,
    target: Target | None = None,
    *,
    thorough: bool = False,
) -> Planned:
    """For `target`, else for what this machine would run it on. `thorough`: see `planner.suggest`."""
    job = resolved.job
    if WORKLOADS[job.workload].module is None:
        return Planned(job, resolved.choices, processor(), unknown="only your command knows what it needs")
    if job.on.where == "slurm" and target is None:
        where = "which node Slurm gives it is not known before"
        return Planned(job, resolved.choices, processor(), unknown=where)
    on = target or target_of_job(job.card.gpu, device_of(job))
    remembered = remembered_in(home, "counts.json")
    subject = subject_of(job, remembered, most_bytes=None if thorough else COUNTED_BEFORE_A_START)
    if isinstance(subject, str):
        return Planned(job, resolved.choices, on, unknown=subject)
    known = known_of(conn, on, job.workload) if conn is not None else Known()
    suggestion = suggest(subject, on, known, resolved.environment, thorough=thorough)
    if suggestion is None:
        return Planned(job, resolved.choices, on, unknown="there is no formula for it")
    changes = suggestion.best.changes
    return Planned(
        replace(job, levers={**job.levers, **changes}),
        (*_kept(resolved.choices, changes), *_chosen(resolved.choices, suggestion)),
        on,
        suggestion,
    )


def remembered_in(home: Home, name: str) -> Path | None:
    """Where counts are kept. A folder that a person made for kgops becomes a home by the first thing that is kept
    there; one that can be no home gets nothing of ours."""
    if not home.path.is_dir():
        return None
    try:
        make_home(home)
    except Unavailable:
        return None
    return home.path / name


def known_of(conn: Connection, target: Target, workload: str) -> Known:
    """What runs on this card, or on this machine's processor, have shown so far."""
    seen = forecasts.newest(conn, on=_name(target))
    pairs = [
        learned.Pair(one.predicted_mib, one.measured_mib) for one in seen if one.measured_mib is not None
    ]
    paces = [
        pace.Measured(one.modelled_s, one.measured_s)
        for one in seen
        if one.workload == workload and one.modelled_s and one.measured_s
    ]
    # Beside tensors a process holds labels and libraries: on a processor its size corrects no prediction of tensors.
    return Known(learned.learn(pairs) if target.on_card else None, pace.pace_of(paces))


def refuse_what_cannot_fit(planned: Planned) -> None:
    """Raises WontFit with the numbers and the nearest change that would fit."""
    suggestion = planned.suggestion
    if suggestion is None or suggestion.fits:
        return
    need = suggestion.asked.need_mib
    room = planned.target.room_mib or 0
    near = suggestion.nearest
    smaller = "smaller frames" if planned.job.workload == "regress" else "a smaller model (--embedding-dim)"
    hint = f"no setting kgops knows of would fit; take {smaller}"
    if near is not None:
        hint = f"{told(near.changes)} would need {near.need_mib:,.0f} MiB ({near.kind})"
    raise WontFit(
        f"{planned.job.label} needs about {need:,.0f} MiB on {planned.target.title}, which has {room:,.0f} MiB",
        f"{hint}. --force tries as it is; `kgops suggest` shows more",
    )


def told(changes: Mapping[str, Any]) -> str:
    """`batch_size 512, gradient_checkpointing on`."""
    return ", ".join(
        f"{name} {'on' if v is True else 'off' if v is False else v}" for name, v in changes.items()
    )


def device_of(job: Job) -> str:
    stages = [job.settings]
    if job.workload == "pipeline":
        stages = [job.settings["train"] or {}, job.settings["tracin"] or {}]
    named = [stage.get("device", "auto") for stage in stages]
    return next((device for device in named if device != "auto"), "auto")


def _name(target: Target) -> str:
    return target.title if target.on_card else f"the processor of {platform.node()}"


def _kept(choices: tuple[Choice, ...], changes: Mapping[str, Any]) -> list[Choice]:
    return [choice for choice in choices if choice.lever not in changes]


def _chosen(choices: tuple[Choice, ...], suggestion: Suggestion) -> list[Choice]:
    """What the planner took instead, and why."""
    asked = {choice.lever: choice.requested for choice in choices}
    best, first = suggestion.best, suggestion.asked
    if best.changes and best.need_mib < first.need_mib and not _fitted(suggestion, first):
        why = f"{first.need_mib:,.0f} MiB would be needed without, of {suggestion.target.room_mib:,.0f}"
    else:
        why = f"predicted {first.seconds / best.seconds:.2f}x as fast, by a roofline"
    return [
        Choice(name, asked.get(name, "auto"), value, "planner", why) for name, value in best.changes.items()
    ]


def _fitted(suggestion: Suggestion, option: Option) -> bool:
    usable = suggestion.target.room_mib
    return usable is None or option.need_mib <= usable
