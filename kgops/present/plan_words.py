"""A plan in the words that every page shows: the sentence that leads it, its verdict, and its options with reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgops.jobs.text import in_bytes, on_or_off, one_line
from kgops.planning.filtering_preview import FilterCount, FilteringPreview
from kgops.planning.plan_job import BY_DEFAULT, Planned, describe_changes
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import Candidate, Suggestion
from kgops.planning.resolve import Choice, requires_gpu
from kgops.present.formats import UNKNOWN, duration
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.registry import workload_of

_BY_PERSON = "person"


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


# --- the sentence that leads a plan ---


def suggested(planned: Planned, filtering: FilteringPreview | None = None) -> str | None:
    """`Suggested for Tesla T4: fp16 on · cleanup on · …`, from the values that the plan applies. None where it has
    none of these options, or no device to run on. Without `filtering` nothing was counted."""
    chosen = {choice.option: choice for choice in planned.choices}
    parts = [
        *(_precision(planned, chosen[name]) for name in ("precision",) if name in chosen),
        *(_cleanup(planned, chosen[name]) for name in ("memory_cleanup",) if name in chosen),
        *(_checkpointing(planned, chosen[name]) for name in ("gradient_checkpointing",) if name in chosen),
        *(_filtering(chosen[name], filtering) for name in ("filtering",) if name in chosen),
    ]
    is_nowhere = requires_gpu(planned.job) and not planned.target.on_gpu
    if not parts or is_nowhere or workload_of(planned.job).is_command:
        return None
    where = one_line(planned.target.title) if planned.target.on_gpu else "this CPU"
    return f"Suggested for {where}: {' · '.join(parts)}"


def saved(count: FilterCount) -> str:
    """`about 220 times faster`; how much longer where it saves nothing."""
    ratio = count.times_as_fast
    shown = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    return f"about {shown} times faster" if ratio >= 1.05 else "no faster"


def about(seconds: float) -> str:
    """`3 s`, `4:10`."""
    return f"{max(seconds, 1):.0f} s" if seconds < 100 else duration(seconds)


def _precision(planned: Planned, choice: Choice) -> str:
    applied = choice.applied
    if applied is None:
        return "fp16 depends on the model"
    if applied != "fp32":
        return f"{one_line(str(applied))} on{_in_brackets(_asked(choice))}"
    return f"fp16 off{_in_brackets(_asked(choice) or _needs_gpu(planned) or choice.reason)}"


def _cleanup(planned: Planned, choice: Choice) -> str:
    why = _asked(choice) or (None if choice.applied is True else _needs_gpu(planned))
    return f"cleanup {on_or_off(choice.applied)}{_in_brackets(why)}"


def _checkpointing(planned: Planned, choice: Choice) -> str:
    suggestion, why = planned.suggestion, _asked(choice)
    if why is None and not workload_of(planned.job).trains:
        why = "TracIn keeps no activations"
    elif why is None and choice.chosen_by == "planner":
        why = "does not fit without"
    elif why is None and suggestion is not None and suggestion.fits and choice.applied is False:
        why = "fits without"
    return f"checkpointing {on_or_off(choice.applied)}{_in_brackets(why)}"


def _filtering(choice: Choice, preview: FilteringPreview | None) -> str:
    asked = _in_brackets(_asked(choice))
    if preview is None:
        return f"filtering {on_or_off(choice.applied)}{asked}"
    if (own := preview.requested) is not None:
        takes = "" if own.takes_s is None else f", about {about(own.takes_s)}"
        return f"filtering {own.name}{asked}: {_left(own, preview)}{takes}"
    if (best := preview.suggested) is not None:
        distant = "triples off these paths" if best.settings["path_filtering"] else "distant triples"
        return (
            f"filtering {best.name}: {_left(best, preview)}, {saved(best)}, leaves out {distant}"
            f" (off; add {best.flags})"
        )
    why = None
    if preview.filters and preview.is_long:
        why = "would save no time"
    elif preview.all_s is not None and not preview.is_long:
        why = f"about {about(preview.all_s)} without"
    elif preview.problem is not None:
        why = "not counted"
    return f"filtering {on_or_off(choice.applied)}{_in_brackets(why)}"


def _left(count: FilterCount, preview: FilteringPreview) -> str:
    each = " for each test" if count.is_estimate else ""
    return f"{count.shown} of {preview.train:,} training triples{each}"


def _asked(choice: Choice) -> str | None:
    """Where the person's own value is applied."""
    return "asked" if choice.chosen_by == _BY_PERSON and choice.requested == choice.applied else None


def _needs_gpu(planned: Planned) -> str | None:
    return None if planned.target.on_gpu else "needs a GPU"


def _in_brackets(why: str | None) -> str:
    return "" if why is None else f" ({one_line(why)})"
