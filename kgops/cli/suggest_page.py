"""Format a plan as text or as a table for JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from typing import Any

from kgops.cli.command_line import as_command
from kgops.cli.disk import disk_line
from kgops.errors import KgopsError
from kgops.jobs.job import Job
from kgops.jobs.text import in_bytes, one_line
from kgops.planning.filtering_preview import FilterCount, FilteringPreview
from kgops.planning.plan_job import Planned, describe_changes
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import MARGIN, Candidate, Suggestion
from kgops.planning.resolve import requires_gpu
from kgops.planning.start import as_recorded
from kgops.present.end_time import EndTime
from kgops.present.formats import UNKNOWN, table
from kgops.present.plan_words import (
    change_words,
    only_when_empty,
    planned_options,
    shown_value,
    starts_now,
    verdict,
)
from kgops.present.suggestion import about, suggested
from kgops.present.what_if import predicted_time
from kgops.workloads.registry import workload_of

_MIB = 1 << 20
_WORTH_A_LINE = 16 << 20  # bytes: less is written quickly


def page(
    requested: Job,
    placed: Placement,
    refused: KgopsError | None,
    filtering: FilteringPreview | None = None,
    *,
    explain: bool,
) -> list[str]:
    """Return what is suggested in one sentence, options with reasons, memory, disk, time, alternatives and the command
    that starts `requested`."""
    unusable = [] if placed.unused is None else [one_line(str(placed.unused)), ""]
    sentence = suggested(placed.planned, filtering)
    first = [*unusable, *([] if sentence is None else [sentence])]
    return [*first, *_lines(requested, placed, refused, filtering, explain)]


def _lines(
    requested: Job,
    placed: Placement,
    refused: KgopsError | None,
    filtering: FilteringPreview | None,
    explain: bool,
) -> list[str]:
    planned = placed.planned
    suggestion = planned.suggestion
    head = f"{requested.workload} {one_line(requested.label)}"
    # What requires a GPU and cannot have one runs on no CPU instead.
    head += "" if requires_gpu(requested) and not planned.target.on_gpu else f" on {_where(planned)}"
    if suggestion is None:
        waits = [one_line(placed.fit.words)] if placed.fit.state == "later" else []
        known = [f"memory: not predicted: {planned.unknown}", *waits, disk_line(planned, before="disk    ")]
        return [
            head if placed.fit.fits else f"{head}: {one_line(placed.fit.words)}",
            "",
            *_options(planned, explain),
            "",
            *known,
            *_machine(placed),
            *_start(requested, placed, refused),
        ]
    return [
        f"{head}: {verdict(placed)}",
        *_now(placed),
        "",
        *_options(planned, explain),
        "",
        *(_parts(suggestion) if explain else [_estimate_line(suggestion)]),
        *([f"        {planned.predicted_for}"] if planned.predicted_for else []),
        disk_line(planned, before="disk    "),
        *_graph_line(suggestion),
        _time_line(planned, suggestion, filtering),
        *_retraining_line(suggestion),
        *_writing_line(planned),
        *_alternatives(suggestion),
        *_less_written(planned),
        *_filtering(filtering),
        *_machine(placed),
        *_start(_job_to_run(requested, suggestion), placed, refused),
    ]


def _now(placed: Placement) -> list[str]:
    """Return the nearest change with which the job would start now, if it would have to wait."""
    if (near := starts_now(placed)) is not None:
        return [near]
    has_to_wait = placed.fit.state == "later" and placed.planned.target.on_gpu
    return ["kgops can set no option that makes it fit now"] if has_to_wait else []


def _machine(placed: Placement) -> list[str]:
    """Return differences on other candidate GPUs."""
    lines = [f"        {one_line(line)}" for line in placed.differences]
    return ["", *lines] if lines else []


def _filtering(preview: FilteringPreview | None) -> list[str]:
    """Return the training triples and the time of a run with each filter."""
    if preview is None or (preview.problem is None and not preview.tests):
        return []
    if preview.problem is not None:
        return ["", one_line(preview.problem)]
    own = preview.requested
    every = [own] if own is not None else preview.filters
    whole = () if own is not None else (("none", f"{preview.train:,}", "", _about(preview.all_s), ""),)
    rows = [*whole, *(_filter_row(one) for one in every)]
    heads = ("FILTER, CHANGES RESULTS", "TRIPLES", "EACH TEST", "TIME", "SPEED")
    counted = len(every[0].left)
    some = [] if counted == preview.tests else [f"counted for {counted:,} of {preview.tests:,} test triples"]
    return ["", *table(heads, rows, right=frozenset(heads[1:])), *some]


def _filter_row(count: FilterCount) -> tuple[str, ...]:
    least, most = min(count.left), max(count.left)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    some = "about " if count.is_estimate else ""
    return (
        count.flags,
        f"{some}{count.together:,}",
        each,
        _about(count.takes_s),
        f"{count.times_as_fast:.3g}x",
    )


def _about(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else about(seconds)


def as_table(
    requested: Job,
    placed: Placement,
    refused: KgopsError | None,
    filtering: FilteringPreview | None = None,
    *,
    end: EndTime,
) -> dict[str, Any]:
    planned = placed.planned
    suggestion = planned.suggestion
    near = placed.nearest_now
    whole: dict[str, Any] = {
        "workload": requested.workload,
        "label": requested.label,
        "suggested": suggested(planned, filtering),
        "on": planned.target.title,
        "gpu": planned.target.gpu_name,
        "usable_mib": planned.target.usable_mib,
        "free_mib": planned.target.free_mib,
        "profile": planned.job.profile,
        "options": [choice.as_table() for choice in planned_options(planned)],
        "unknown": planned.unknown,
        "now": placed.fit.state,
        "verdict": verdict(placed),
        "unusable_gpus": None if placed.unused is None else str(placed.unused),
        "begins_in_s": end.begins_in_s,
        "takes_s": end.takes_s,
        "ends_in_s": end.ends_in_s,
        "is_measured": end.is_measured,
        "other_gpus": placed.differences,
        "filtering": None if filtering is None else filtering.as_table(),
        "refused": None if refused is None else refused.message,
        "job": as_recorded(planned.job).as_table(),
        "disk": None if planned.disk is None else {**planned.disk.as_table(), "fits": planned.disk.fits},
    }
    if suggestion is None:
        return {**whole, "command": as_command(requested)}
    largest, again = suggestion.largest_batch, suggestion.retrainings
    return {
        **whole,
        "fits": suggestion.fits,
        "estimate": suggestion.best.estimate.as_table(),
        "need_mib": suggestion.best.need_mib,
        "margin": MARGIN,
        "modelled_s": suggestion.best.seconds,
        "expected_s": _expected(suggestion),
        "retrainings": None if again is None else again.as_table(),
        "predicted_step": None if suggestion.predicted_step is None else asdict(suggestion.predicted_step),
        "others": [_option(one, suggestion) for one in suggestion.others],
        "nearest": _option(suggestion.nearest, suggestion) if suggestion.nearest else None,
        "nearest_now": _option(near, suggestion) if near else None,
        "largest_batch": largest,
        "command": as_command(_job_to_run(requested, suggestion)),
    }


def _where(planned: Planned) -> str:
    target = planned.target
    name = f"GPU {target.gpu_name} {one_line(target.title)}" if target.gpu_name else one_line(target.title)
    if target.usable_mib is None:
        return f"{name} (its memory is unknown)"
    free = f", {target.free_mib:,.0f} free now" if target.free_mib is not None else ""
    limit = f", --memory-limit {target.limit_mib:,}" if target.limit_mib is not None else ""
    return f"{name} ({target.usable_mib:,.0f} MiB{free}{limit})"


def _options(planned: Planned, explain: bool) -> list[str]:
    rows = []
    for one in planned_options(planned):
        why = f"{one.reason} ({one.source})" if explain and one.source else one.reason
        shown = (shown_value(value) for value in (one.requested, one.applied))
        rows.append((one.option, *shown, one.chosen_by, why or ""))
    return table(("OPTION", "REQUESTED", "VALUE", "BY", "WHY"), rows)


def _estimate_line(suggestion: Suggestion) -> str:
    rows = suggestion.best.estimate.explain()
    parts = " · ".join(f"{row.part} {row.size / _MIB:,.0f}" for row in rows if row.size >= _MIB / 2)
    best = suggestion.best
    return f"memory  {best.estimate.total_mib:,.0f} MiB + {MARGIN:.0%} margin = {best.need_mib:,.0f}: {parts}"


def _parts(suggestion: Suggestion) -> list[str]:
    best = suggestion.best
    rows = [
        (row.part, f"{row.size / _MIB:,.1f}", "yes" if row.is_measured else "not yet", row.description)
        for row in best.estimate.explain()
    ]
    rows.append(("total", f"{best.estimate.total_mib:,.1f}", "", f"peak, while {best.estimate.phase}"))
    rows.append(
        ("with margin", f"{best.need_mib:,.1f}", "", f"{MARGIN:.0%}, in case the prediction is too low")
    )
    heads = ("PART", "MIB", "MEASURED", "CONTENT")
    return table(heads, rows, right=frozenset({"MIB"}))


def _graph_line(suggestion: Suggestion) -> list[str]:
    """Return the published size of a graph that is not downloaded."""
    counts = suggestion.job_size.counts
    if not counts.published:
        return []
    size = f"{counts.entities:,} entities, {counts.relations:,} relations, {counts.train:,} training triples"
    assumed = "; planned as one query per training triple" if counts.assumed else ""
    return [f"graph   {size}: as published, not downloaded yet{assumed}"]


def _time_line(planned: Planned, suggestion: Suggestion, filtering: FilteringPreview | None) -> str:
    what = "in total" if workload_of(planned.job).epochs is None else "per epoch"
    expected = _expected(suggestion)
    predicted = predicted_time(suggestion)
    if suggestion.is_filtered and filtering is not None:
        takes_s = None if filtering.requested is None else filtering.requested.takes_s
        return (
            f"time    {'unknown' if takes_s is None else f'about {about(takes_s)} in total'}, with filtering"
        )
    if predicted is not None:
        return f"time    {predicted}"
    if expected is None:
        if workload_of(suggestion.job_size.job).stages is not None:
            return "time    not estimated for a pipeline as a whole; plan its stages one by one"
        where = one_line(suggestion.target.title)
        return f"time    unknown: no run like it was measured on {where} yet; only ratios are known"
    middle, low, high, runs = expected["s"], expected["low_s"], expected["high_s"], expected["runs"]
    return f"time    {middle:.3g} s {what} ({low:.3g} to {high:.3g}, from {runs} runs here)"


def _retraining_line(suggestion: Suggestion) -> list[str]:
    """Return how often the run retrains, and the time of that."""
    again = suggestion.retrainings
    return [] if again is None else [f"        {again}"]


def _writing_line(planned: Planned) -> list[str]:
    """Return the time to write the results, if they are large."""
    disk = planned.disk
    if disk is None or disk.use.written < _WORTH_A_LINE:
        return []
    size = in_bytes(disk.use.written)
    if disk.write_speed is None or disk.writing_s is None:
        return [f"        and writing {size}: time unknown, since no run has written as much here yet"]
    rate = f"{disk.write_speed.mib_per_s:,.0f} MiB/s, from {disk.write_speed.samples} runs here"
    return [f"        and {disk.writing_s:.3g} s writing {size} ({rate})"]


def _less_written(planned: Planned) -> list[str]:
    disk = planned.disk
    if disk is None or disk.fits:
        return []
    if disk.nearest is None:
        return ["", "no option makes it fit on the disk: free some space, or use another disk"]
    change, size = disk.nearest
    return ["", f"nearest change that fits on the disk: {change}, {in_bytes(size)}"]


def _expected(suggestion: Suggestion) -> dict[str, Any] | None:
    return None if suggestion.expected is None else suggestion.expected._asdict()


def _alternatives(suggestion: Suggestion) -> list[str]:
    if not suggestion.fits:
        near = suggestion.nearest
        return [
            "",
            f"nearest change that fits: {change_words(near)}"
            if near
            else "kgops can set no option that makes it fit",
        ]
    if not suggestion.others:
        return []
    rows = [
        (
            describe_changes(one.changes) or "as requested",
            one.effect,
            f"{one.need_mib:,.0f}",
            _speed(one, suggestion),
        )
        for one in suggestion.others
    ]
    heads = (f"ALSO FITS{only_when_empty(suggestion).upper()}", "EFFECT", "MIB", "SPEED")
    return ["", *table(heads, rows, right=frozenset({"MIB", "SPEED"}))]


def _speed(candidate: Candidate, suggestion: Suggestion) -> str:
    return f"{suggestion.best.seconds / candidate.seconds:.2f}x" if candidate.seconds else UNKNOWN


def _option(candidate: Candidate, suggestion: Suggestion) -> dict[str, Any]:
    return {
        "changes": candidate.changes,
        "effect": candidate.effect,
        "need_mib": candidate.need_mib,
        "modelled_speedup": suggestion.best.seconds / candidate.seconds if candidate.seconds else None,
    }


def _job_to_run(requested: Job, suggestion: Suggestion) -> Job:
    """Return the job with the chosen options, or with the nearest change that fits."""
    candidate = suggestion.best if suggestion.fits else suggestion.nearest or suggestion.best
    return replace(requested, options={**requested.options, **candidate.changes})


def _start(job: Job, placed: Placement, refused: KgopsError | None) -> list[str]:
    target, words = placed.planned.target, as_command(job)
    why = "" if workload_of(job).is_command else ": this job needs a job file, flags cannot express it"
    command = shlex.join(words) if words else f"kgops run FILE.toml{why}"
    is_elsewhere = target.on_gpu and target.gpu_name is None and job.on.where is None
    return [
        *(
            ["", one_line(f"would not start here: {refused.message}")]
            if refused is not None and placed.fit.fits
            else []
        ),
        "",
        *([f"on a machine with a {one_line(target.title)}:"] if is_elsewhere else []),
        command,
    ]
