"""A plan as a verdict, named facts and titled tables: `kgops suggest` prints them, New run draws them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kgops.jobs.text import in_bytes, one_line
from kgops.planning.filtering_preview import FilterCount, FilteringPreview
from kgops.planning.fit import State
from kgops.planning.plan_job import Planned, describe_changes
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import MARGIN, Candidate, Suggestion
from kgops.planning.targets import Target
from kgops.present.formats import UNKNOWN, amount, duration, small_duration
from kgops.present.plan_words import (
    about,
    change_words,
    only_when_empty,
    planned_options,
    shown_value,
    starts_now,
    verdict,
)
from kgops.present.rows import Column, Fact, Section, section
from kgops.workloads.plan import DiskUse
from kgops.workloads.registry import workload_of

_MIB = 1 << 20
_LEAST_SHARE = 0.02  # of the disk; smaller parts are not named
_TONES: dict[State, str] = {
    "now": "good",
    "empty": "good",
    "later": "warn",
    "never": "bad",
    "unknown": "text",
}


# --- whether it fits ---


def headline(placed: Placement) -> Fact:
    """The verdict, and how much is needed of what there is."""
    planned, state = placed.planned, placed.fit.state
    if planned.suggestion is None and placed.fit.state != "never":
        return Fact("plan", f"no memory estimate: {planned.unknown}", "dim")
    disk_is_full = planned.disk is not None and not planned.disk.fits
    tone = "bad" if disk_is_full else "warn" if placed.fit.is_tight else _TONES[state]
    return Fact("plan", verdict(placed), tone)


def needed_of(placed: Placement) -> str:
    """`needs 3,312 of 14,909 MiB`, where the verdict does not say it."""
    best, room = placed.planned.best, placed.planned.target.room_mib
    disk = placed.planned.disk
    if best is None or room is None or placed.fit.state in ("never", "unknown"):
        return ""
    return "" if disk is not None and not disk.fits else f"needs {best.need_mib:,.0f} of {room:,.0f} MiB"


def where(target: Target) -> str:
    """`GPU 0 Tesla T4 (14,909 MiB, 9,000 free now)`."""
    name = f"GPU {target.gpu_name} {one_line(target.title)}" if target.gpu_name else one_line(target.title)
    if target.usable_mib is None:
        return f"{name} (its memory is unknown)"
    free = f", {target.free_mib:,.0f} free now" if target.free_mib is not None else ""
    limit = f", --memory-limit {target.limit_mib:,}" if target.limit_mib is not None else ""
    return f"{name} ({target.usable_mib:,.0f} MiB{free}{limit})"


def advice(placed: Placement) -> str | None:
    """The nearest change with which it would fit, or would start now; None where it does."""
    planned, suggestion = placed.planned, placed.planned.suggestion
    if suggestion is not None and not suggestion.fits:
        near = suggestion.nearest
        return "no option makes it fit" if near is None else f"nearest change that fits: {change_words(near)}"
    if placed.fit.state == "later" and planned.target.on_gpu:
        return starts_now(placed) or "no option makes it fit now"
    if planned.disk is not None and not planned.disk.fits:
        if planned.disk.nearest is None:
            return "no option makes it fit on the disk: free some space, or use another disk"
        change, size = planned.disk.nearest
        return f"nearest change that fits on the disk: {change}, {in_bytes(size)}"
    return None


# --- facts ---


def facts(planned: Planned, filtering: FilteringPreview | None) -> list[Fact]:
    """Memory, disk, graph and time."""
    suggestion = planned.suggestion
    if suggestion is None:
        return [Fact("memory", f"not predicted: {planned.unknown}"), Fact("disk", disk_text(planned))]
    best = suggestion.best
    parts = " · ".join(part_texts(suggestion))
    total = f"{best.estimate.total_mib:,.0f} MiB + {MARGIN:.0%} margin = {best.need_mib:,.0f}: {parts}"
    return [
        Fact("memory", total),
        *([Fact("", planned.predicted_for)] if planned.predicted_for else []),
        Fact("disk", disk_text(planned)),
        *_graph(suggestion),
        Fact("time", time_text(suggestion, filtering)),
    ]


def disk_text(planned: Planned) -> str:
    """`21 MiB predicted: CSV 6 MiB · …; 74,000 MiB free in …/runs`, or why it is not predicted."""
    disk = planned.disk
    if disk is None:
        return "not predicted: its output size is unknown before it starts"
    use = disk.use
    sizes = sorted([*use.parts.items(), *_copies(use)], key=lambda part: -part[1])
    named = [(name, size) for name, size in sizes if size >= _LEAST_SHARE * use.total]
    parts = " · ".join(f"{one_line(name)} {in_bytes(size)}" for name, size in named)
    room = "; ".join(
        f"{in_bytes(place.free)} free in {one_line(str(place.path))}"
        for place in disk.places
        if place.free is not None
    )
    most = "at most " if use.at_most else ""
    return f"{most}{in_bytes(use.total)} predicted: {parts}; {room}"


def _copies(use: DiskUse) -> list[tuple[str, int]]:
    return [(f"{Path(path).name} (a copy)", size) for path, size in use.outside.items()]


def _graph(suggestion: Suggestion) -> Iterator[Fact]:
    """The published size of a graph that is not downloaded."""
    counts = suggestion.job_size.counts
    if counts.published:
        size = (
            f"{counts.entities:,} entities, {counts.relations:,} relations, {counts.train:,} training triples"
        )
        assumed = "; planned as one query per training triple" if counts.assumed else ""
        yield Fact("graph", f"{size}: as published, not downloaded yet{assumed}")


def time_text(suggestion: Suggestion, filtering: FilteringPreview | None) -> str:
    """What it takes by runs here, by the model, or why that is unknown; and the trainings that it repeats."""
    again = suggestion.retrainings
    return _time(suggestion, filtering) + ("" if again is None else f", {again}")


def _time(suggestion: Suggestion, filtering: FilteringPreview | None) -> str:
    job, title = suggestion.job_size.job, one_line(suggestion.target.title)
    if suggestion.is_filtered:
        own = None if filtering is None else filtering.requested
        if own is None or own.takes_s is None:
            return "not counted yet, with filtering"
        return f"about {about(own.takes_s)} in total, with filtering"
    if suggestion.predicted_step is not None:
        return _modelled_time(suggestion)
    if suggestion.expected is None:
        if workload_of(job).stages is not None:
            return "not estimated for a pipeline as a whole; plan its stages one by one"
        return f"unknown: no run like it was measured on {title} yet; only ratios are known"
    middle, low, high, many = suggestion.expected
    runs = "from 1 run here" if many == 1 else f"{amount(low)} to {amount(high)}, from {many} runs here"
    epochs = workload_of(job).epochs
    if epochs is None:
        return f"{amount(middle)} s in total ({runs})"
    whole = duration(middle * job.settings[epochs])
    return f"{whole} for all epochs, {amount(middle)} s each ({runs})"


def _modelled_time(suggestion: Suggestion) -> str:
    """What a step takes at least on a known GPU where no such run was measured, and a whole epoch or run."""
    step, modelled_s = suggestion.predicted_step, suggestion.best.seconds
    assert step is not None
    if not suggestion.target.on_gpu:
        return f"about {amount(round(modelled_s))} s in total: predicted, never measured on this CPU"
    trains = suggestion.job_size.trains
    limit = {"launches": "", "operations": "operations, ", "bytes": "memory bandwidth, "}[step.limit]
    limit += f"{step.launches:,} kernel launches"
    return (
        f"at least {small_duration(step.seconds)} per {'step' if trains else 'block'} (limit: {limit}), "
        f"{amount(modelled_s)} s {'per epoch' if trains else 'in total'}: predicted, never measured on "
        f"{one_line(suggestion.target.title)}"
    )


# --- tables ---


def options(planned: Planned, *, with_sources: bool = False) -> Section:
    """Each option as the worker will apply it, and why. `with_sources`: whose rule that is."""
    columns = [Column("OPTION", 22), Column("requested", 12), Column("value", 12), Column("by", 14)]
    rows = [
        (
            one.option,
            shown_value(one.requested),
            shown_value(one.applied),
            one.chosen_by,
            f"{one.reason} ({one.source})" if with_sources and one.source else one.reason or "",
        )
        for one in planned_options(planned)
    ]
    return section((*columns, Column("why", 20, grows=True)), rows)


def part_texts(suggestion: Suggestion) -> list[str]:
    """`weights 1,204`: the parts that count, largest first, with the GPU context."""
    parts = sorted(suggestion.best.estimate.explain(), key=lambda part: -part.size)
    return [f"{part.part} {part.size / _MIB:,.0f}" for part in parts if abs(part.size) >= _MIB / 2]


def memory(suggestion: Suggestion) -> Section:
    """The estimate by part, its total and the margin."""
    best = suggestion.best
    columns = (
        Column("PART", 14),
        Column("MiB", 9, right=True),
        Column("measured", 8),
        Column("content", 20, grows=True),
    )
    rows = [
        (row.part, f"{row.size / _MIB:,.1f}", "yes" if row.is_measured else "not yet", row.description)
        for row in best.estimate.explain()
    ]
    rows.append(("total", f"{best.estimate.total_mib:,.1f}", "", f"peak, while {best.estimate.phase}"))
    rows.append(
        ("with margin", f"{best.need_mib:,.1f}", "", f"{MARGIN:.0%}, in case the prediction is too low")
    )
    return section(columns, rows)


def alternatives(suggestion: Suggestion) -> Section:
    """Other settings that fit."""
    columns = (
        Column(f"ALSO FITS{only_when_empty(suggestion).upper()}", 24),
        Column("effect", 15),
        Column("MiB", 9, right=True),
        Column("time", 12, right=True),
    )
    rows = [
        (
            describe_changes(one.changes) or "as requested",
            one.effect,
            f"{one.need_mib:,.0f}",
            _speed(one, suggestion),
        )
        for one in (suggestion.others if suggestion.fits else ())
    ]
    return section(columns, rows)


def _speed(candidate: Candidate, suggestion: Suggestion) -> str:
    if not candidate.seconds:
        return UNKNOWN
    ratio = suggestion.best.seconds / candidate.seconds
    return f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"


def filters(preview: FilteringPreview | None) -> Section:
    """Training triples and time of a run with each filter."""
    columns = (
        Column("FILTER, CHANGES RESULTS", 24),
        *(Column(head, 10, right=True) for head in ("triples", "each test", "time", "speed")),
    )
    if preview is None or preview.problem is not None or not preview.tests:
        return section(columns, [])
    own = preview.requested
    every: Sequence[FilterCount] = preview.filters if own is None else [own]
    whole = [] if own is not None else [("none", f"{preview.train:,}", "", _about(preview.all_s), "")]
    counted = len(every[0].left)
    some = [] if counted == preview.tests else [f"counted for {counted:,} of {preview.tests:,} test triples"]
    return section(columns, [*whole, *map(_filter, every)], some)


def _filter(count: FilterCount) -> tuple[str, ...]:
    least, most = min(count.left), max(count.left)
    return (
        count.flags,
        f"{'about ' if count.is_estimate else ''}{count.together:,}",
        f"{least:,}" if least == most else f"{least:,} to {most:,}",
        _about(count.takes_s),
        f"{count.times_as_fast:.3g}x",
    )


def _about(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else about(seconds)
