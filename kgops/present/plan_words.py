"""A plan in the words that every page shows: its verdict, and its options with the values that are applied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgops.jobs.text import in_bytes, on_or_off, one_line
from kgops.planning.plan_job import BY_DEFAULT, Planned, describe_changes
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import Candidate, Suggestion
from kgops.planning.resolve import Choice
from kgops.present.formats import UNKNOWN
from kgops.workloads.catalog import OPTIONS


def verdict(placed: Placement) -> str:
    """Whether it fits now, later or never, on the disk too."""
    disk = placed.planned.disk
    if placed.fit.fits and disk is not None and not disk.fits:
        return f"does not fit on the disk, writes {in_bytes(disk.use.total)}"
    return one_line(placed.fit.words)


def change_words(near: Candidate) -> str:
    """`batch_size 128 (changes results), 3,011 MiB`: a change, its effect, and the memory with it."""
    return f"{describe_changes(near.changes)} ({near.effect}), {near.need_mib:,.0f} MiB"


def starts_now(placed: Placement) -> str | None:
    """The nearest change with which the job would start now; None if it does, or none is known."""
    near = placed.nearest_now
    return None if near is None else f"fits now with {change_words(near)}"


def planned_options(planned: Planned) -> list[Choice]:
    """Each option as the worker will apply it, in the catalog's order, with the reason."""
    order = list(OPTIONS)
    chosen = sorted(planned.choices, key=lambda one: order.index(one.option) if one.option in OPTIONS else 99)
    return [replace(one, reason=one.reason or _default_reason(one, planned.suggestion)) for one in chosen]


def shown_value(value: Any) -> str:
    """`on`, `65,536`, `fp16`; `n/a` where only the worker will know."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if type(value) is int else one_line(str(on_or_off(value)))


def only_when_empty(suggestion: Suggestion) -> str:
    """What fits is judged by, if the GPU is not as empty now."""
    free, usable = suggestion.target.free_mib, suggestion.target.usable_mib
    taken = suggestion.target.on_gpu and free is not None and usable is not None and free < usable
    return " an empty GPU" if taken else ""


def _default_reason(choice: Choice, suggestion: Suggestion | None) -> str | None:
    """A reason for an option if neither a rule nor the worker gives one."""
    option = choice.option
    if choice.chosen_by == BY_DEFAULT and suggestion is not None:
        if option == "batch_size" and suggestion.job_size.trains:
            return _batch_size_reason(suggestion)
        if option == "gradient_checkpointing" and suggestion.job_size.trains:
            return _checkpointing_reason(suggestion)
        if option == "compile":
            return "no benchmark here shows that it pays; a profile or --compile turns it on"
    return OPTIONS[option].summary if option in OPTIONS else None


def _checkpointing_reason(suggestion: Suggestion) -> str:
    """Why gradient checkpointing is off, and the memory it would save."""
    if not suggestion.fits:
        return "activations are kept"
    text = f"not needed: activations fit{only_when_empty(suggestion)}"
    with_it = [one for one in suggestion.others if one.changes == {"gradient_checkpointing": True}]
    return f"{text}; with it {with_it[0].need_mib:,.0f} MiB would do" if with_it else text


def _batch_size_reason(suggestion: Suggestion) -> str:
    most = suggestion.largest_batch
    if not most:
        return "changes results"
    which = "any" if suggestion.fits_any_batch else f"up to {most:,}"
    return f"changes results; {which} would fit{only_when_empty(suggestion)}"
