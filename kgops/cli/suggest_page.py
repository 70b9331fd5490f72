"""A plan as a page of text, and how good plans have been."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from kgops.cli.command_line import as_command
from kgops.cli.disk import disk_line
from kgops.cli.output import UNKNOWN, table
from kgops.errors import KgopsError
from kgops.jobs.job import Job
from kgops.jobs.on_device import spelled
from kgops.jobs.options import OPTIONS
from kgops.jobs.text import one_line
from kgops.planning.applied_options import BY_DEFAULT
from kgops.planning.corrections import Accuracy, Pair, accuracy
from kgops.planning.planner import MARGIN, Candidate, Suggestion
from kgops.planning.resolve import Choice
from kgops.supervisor.disk_space import in_bytes
from kgops.supervisor.filtering_preview import FilteringPreview
from kgops.supervisor.launch import as_recorded
from kgops.supervisor.plan_job import Planned, describe_changes
from kgops.supervisor.plan_per_gpu import Placement
from storage.predictions import Forecast

_MIB = 1 << 20
_WORTH_A_LINE = 16 << 20  # bytes: less is written in a moment


def page(
    asked: Job,
    placed: Placement,
    refused: KgopsError | None,
    filtering: FilteringPreview | str | None = None,
    *,
    explain: bool,
) -> list[str]:
    """What to set and why, what it needs, how fast, what else would fit, and the command; `asked` is the job that the
    command starts."""
    planned = placed.planned
    suggestion = planned.suggestion
    head = f"{asked.workload} {one_line(asked.label)} on {_where(planned)}"
    if suggestion is None:
        waits = [one_line(placed.fit.words)] if placed.fit.state == "later" else []
        known = [f"memory: not predicted: {planned.unknown}", *waits, disk_line(planned, before="disk    ")]
        return [head, "", *_options(planned, explain), "", *known, *_machine(placed), *_start(asked, refused)]
    return [
        f"{head}: {_verdict(placed)}",
        *_now(placed),
        "",
        *_options(planned, explain),
        "",
        *(_parts(suggestion) if explain else [_estimate_line(suggestion)]),
        *([f"        {planned.predicted_for}"] if planned.predicted_for else []),
        disk_line(planned, before="disk    "),
        *_graph_line(suggestion),
        _pace_line(planned, suggestion),
        *_writing_line(planned),
        *_more(suggestion),
        *_less_written(planned),
        *_filtering(filtering),
        *_machine(placed),
        *_start(_to_run(asked, suggestion), refused if placed.fit.fits else None),
        *_filtering_command(_to_run(asked, suggestion), filtering),
    ]


def _now(placed: Placement) -> list[str]:
    """What would start at once, where the plan itself would wait."""
    near = placed.nearest_now
    if near is not None:
        return [f"fits now with {describe_changes(near.changes)} ({near.effect}), {near.need_mib:,.0f} MiB"]
    has_to_wait = placed.fit.state == "later" and placed.planned.target.on_gpu
    return ["no option kgops could set makes it fit now"] if has_to_wait else []


def _machine(placed: Placement) -> list[str]:
    """What is otherwise on the other GPUs that the run may get, and whether torch can use those that are here."""
    lines = [f"        {one_line(line)}" for line in placed.differences]
    if placed.unused:
        names = " and ".join(dict.fromkeys(gpu.title for gpu in placed.unused))
        lines.append(
            one_line(f"torch as it is installed here is a build for CPUs: a run does not use the {names}")
        )
    return ["", *lines] if lines else []


def _filtering(found: FilteringPreview | str | None) -> list[str]:
    """What of the training triples it leaves, the time it saves, and that it changes results."""
    if found is None or isinstance(found, str):
        return ["", found] if found else []
    some = "" if found.counted == found.tests else f", counted for {found.counted:,} of them"
    one = found.tests == 1
    mean = sum(found.left) / max(len(found.left), 1)
    keeps = (
        f"the test triple keeps {mean:,.0f}"
        if one
        else f"each of {found.tests:,} test triples keeps {mean:,.0f} on average{some}, together "
        f"{'' if found.counted == found.tests else 'at least '}{found.together:,}"
    )
    share = found.together / max(found.train, 1)
    head = "filtering, as asked:" if found.is_asked else "filtering would leave less:"
    return [
        "",
        f"{head} {keeps} of {found.train:,} training triples ({share:.1%})",
        f"        {_saved(found)}changes results",
    ]


def _saved(found: FilteringPreview) -> str:
    """Against the run over all training triples."""
    if found.times_as_fast is None:
        return ""
    ratio = f"{found.times_as_fast:.3g}x as fast by a roofline"
    if found.times_as_fast <= 1:
        return f"saves no time ({ratio}); "
    if found.all_s is None or found.filtered_s is None:
        return f"{ratio}; "
    return f"saves {found.all_s - found.filtered_s:.3g} s of {found.all_s:.3g} s ({ratio}); "


def _filtering_command(job: Job, found: FilteringPreview | str | None) -> list[str]:
    if not isinstance(found, FilteringPreview) or found.is_asked or (found.times_as_fast or 0) <= 1:
        return []
    words = as_command(replace(job, options={**job.options, "filtering": True}))
    return [shlex.join(words)] if words else []


def as_table(
    asked: Job, placed: Placement, refused: KgopsError | None, filtering: FilteringPreview | str | None = None
) -> dict[str, Any]:
    planned = placed.planned
    suggestion = planned.suggestion
    near = placed.nearest_now
    whole: dict[str, Any] = {
        "workload": asked.workload,
        "label": asked.label,
        "on": planned.target.title,
        "gpu": planned.target.gpu_name,
        "usable_mib": planned.target.usable_mib,
        "free_mib": planned.target.free_mib,
        "profile": planned.job.profile,
        "options": [choice.as_table() for choice in _choices(planned)],
        "unknown": planned.unknown,
        "now": placed.fit.state,
        "verdict": placed.fit.words,
        "elsewhere": placed.differences,
        "filtering": asdict(filtering) if isinstance(filtering, FilteringPreview) else filtering,
        "refused": None if refused is None else refused.message,
        "job": as_recorded(planned.job).as_table(),
        "disk": None if planned.disk is None else {**planned.disk.as_table(), "fits": planned.disk.fits},
    }
    if suggestion is None:
        return {**whole, "command": as_command(asked)}
    found = suggestion.largest_batch
    return {
        **whole,
        "fits": suggestion.fits,
        "estimate": suggestion.best.estimate.as_table(),
        "need_mib": suggestion.best.need_mib,
        "margin": MARGIN,
        "modelled_s": suggestion.best.seconds,
        "expected_s": _expected(suggestion),
        "others": [_option(one, suggestion) for one in suggestion.others],
        "nearest": _option(suggestion.nearest, suggestion) if suggestion.nearest else None,
        "nearest_now": _option(near, suggestion) if near else None,
        "largest_batch": found,
        "command": as_command(_to_run(asked, suggestion)),
    }


def accuracy_page(seen: Iterable[Forecast]) -> list[str]:
    rows = []
    for on, on_gpu, pairs, found in _accuracies(seen):
        errors = (
            (f"{found.median_error:.1%}", f"{found.worst_under:+.1%}", f"{found.worst_over:+.1%}")
            if found
            else (UNKNOWN, UNKNOWN, UNKNOWN)
        )
        rows.append((one_line(on), str(len(pairs)), *errors, _compared(on_gpu)))
    if not rows:
        return ["No run was predicted and measured yet: start one, `kgops run`."]
    heads = ("ON", "RUNS", "MEDIAN ERROR", "WORST UNDER", "WORST OVER", "COMPARED")
    return table(heads, rows, right=frozenset(heads[1:5]))


def accuracy_table(seen: Iterable[Forecast]) -> list[dict[str, Any]]:
    return [
        {
            "on": on,
            "compared": _compared(on_gpu),
            "runs": len(pairs),
            "median_error": found.median_error if found else None,
            "worst_under": found.worst_under if found else None,
            "worst_over": found.worst_over if found else None,
        }
        for on, on_gpu, pairs, found in _accuracies(seen)
    ]


def _accuracies(seen: Iterable[Forecast]) -> list[tuple[str, bool, list[Pair], Accuracy | None]]:
    by: dict[tuple[str, bool], list[Pair]] = defaultdict(list)
    for one in seen:
        if one.measured_mib is not None and one.predicted_mib is not None:
            by[one.on, one.on_gpu].append(Pair(one.predicted_mib, one.measured_mib))
    # A process is measured alone: there no error is somebody else's.
    return [
        (on, on_gpu, pairs, accuracy(pairs) if on_gpu else accuracy(pairs, furthest=math.inf))
        for (on, on_gpu), pairs in sorted(by.items())
    ]


def _compared(on_gpu: bool) -> str:
    if on_gpu:
        return "all that the run held on the GPU"
    return "process memory: the peak of the worker's process above its start"


def _where(planned: Planned) -> str:
    target = planned.target
    name = f"GPU {target.gpu_name} {one_line(target.title)}" if target.gpu_name else one_line(target.title)
    if target.usable_mib is None:
        return f"{name} (its memory is unknown)"
    free = f", {target.free_mib:,.0f} free now" if target.free_mib is not None else ""
    return f"{name} ({target.usable_mib:,.0f} MiB{free})"


def _verdict(placed: Placement) -> str:
    disk = placed.planned.disk
    if placed.fit.fits and disk is not None and not disk.fits:
        return f"does not fit on the disk, writes {in_bytes(disk.use.total)}"
    return one_line(placed.fit.words)


def _options(planned: Planned, explain: bool) -> list[str]:
    rows = []
    for one in _choices(planned):
        why = f"{one.reason} ({one.source})" if explain and one.source else one.reason
        value = f"{one.applied:,}" if type(one.applied) is int else _shown(one.applied)
        rows.append((one.option, _shown(one.requested), value, one.chosen_by, why or ""))
    return table(("OPTION", "ASKED", "VALUE", "BY", "WHY"), rows)


def _shown(value: Any) -> str:
    return UNKNOWN if value is None else str(spelled(value))


def _choices(planned: Planned) -> list[Choice]:
    """Each option as the worker will apply it there, and why."""
    order = list(OPTIONS)
    chosen = sorted(planned.choices, key=lambda one: order.index(one.option) if one.option in OPTIONS else 99)
    return [replace(one, reason=one.reason or _why(one, planned.suggestion)) for one in chosen]


def _why(choice: Choice, suggestion: Suggestion | None) -> str | None:
    """Where neither a rule nor the worker has a reason."""
    option = choice.option
    if choice.chosen_by == BY_DEFAULT and suggestion is not None:
        if option == "batch_size" and suggestion.subject.learns:
            return _largest(suggestion)
        if option == "gradient_checkpointing" and suggestion.subject.learns:
            return _again(suggestion)
        if option == "compile":
            return "nobody measured here that it pays; a profile or --compile turns it on"
    return OPTIONS[option].summary if option in OPTIONS else None


def _again(suggestion: Suggestion) -> str:
    """What keeping all activations costs: it may be more than a larger network takes that computes them again."""
    if not suggestion.fits:
        return "activations are kept"
    told = "not needed: activations fit"
    with_it = [one for one in suggestion.others if one.changes == {"gradient_checkpointing": True}]
    return f"{told}; with it {with_it[0].need_mib:,.0f} MiB would do" if with_it else told


def _largest(suggestion: Suggestion) -> str:
    most = suggestion.largest_batch
    return "changes what is found" + (f"; up to {most:,} would fit" if most else "")


def _estimate_line(suggestion: Suggestion) -> str:
    rows = suggestion.best.estimate.explain()
    told_parts = " · ".join(f"{row.part} {row.size / _MIB:,.0f}" for row in rows if row.size >= _MIB / 2)
    best = suggestion.best
    return f"memory  {best.estimate.total_mib:,.0f} MiB + {MARGIN:.0%} margin = {best.need_mib:,.0f}: {told_parts}"


def _parts(suggestion: Suggestion) -> list[str]:
    best = suggestion.best
    rows = [
        (row.part, f"{row.size / _MIB:,.1f}", "yes" if row.is_measured else "not yet", row.says)
        for row in best.estimate.explain()
    ]
    rows.append(("total", f"{best.estimate.total_mib:,.1f}", "", f"at its peak, while {best.estimate.phase}"))
    rows.append(
        ("with margin", f"{best.need_mib:,.1f}", "", f"{MARGIN:.0%}, against what was predicted too low")
    )
    heads = ("PART", "MIB", "CHECKED", "WHAT IT IS")
    return table(heads, rows, right=frozenset({"MIB"}))


def _graph_line(suggestion: Suggestion) -> list[str]:
    """Of a graph that is not on this machine."""
    counts = suggestion.subject.counts
    if not counts.published:
        return []
    size = f"{counts.entities:,} entities, {counts.relations:,} relations, {counts.train:,} training triples"
    assumed = "; every training triple is planned as a query of its own" if counts.assumed else ""
    return [f"graph   {size}: as published, not downloaded yet{assumed}"]


def _pace_line(planned: Planned, suggestion: Suggestion) -> str:
    what = "an epoch" if planned.job.workload in ("train", "regress") else "all of it"
    expected = _expected(suggestion)
    if expected is None:
        return (
            f"pace    no run was measured on {one_line(suggestion.target.title)} yet: only ratios are known"
        )
    middle, low, high, runs = expected["s"], expected["low_s"], expected["high_s"], expected["runs"]
    return f"pace    {middle:.3g} s {what} ({low:.3g} to {high:.3g}, from {runs} runs here)"


def _writing_line(planned: Planned) -> list[str]:
    """What comes after the TracIn run itself, where it is worth a word."""
    disk = planned.disk
    if disk is None or disk.use.written < _WORTH_A_LINE:
        return []
    size = in_bytes(disk.use.written)
    if disk.write_speed is None or disk.writing_s is None:
        return [f"        and writing {size}: no run has written as much here yet, so how long is not known"]
    rate = f"{disk.write_speed.mib_per_s:,.0f} MiB/s, from {disk.write_speed.samples} runs here"
    return [f"        and {disk.writing_s:.3g} s writing {size} ({rate})"]


def _less_written(planned: Planned) -> list[str]:
    disk = planned.disk
    if disk is None or disk.fits:
        return []
    if disk.nearest is None:
        return ["", "no option makes that fit on the disk: free some room, or name another disk"]
    change, size = disk.nearest
    return ["", f"nearest that fits on the disk: {change}, {in_bytes(size)}"]


def _expected(suggestion: Suggestion) -> dict[str, Any] | None:
    pace = suggestion.known.pace
    if pace is None:
        return None
    middle, low, high = pace.expected_s(suggestion.best.seconds)
    return {"s": middle, "low_s": low, "high_s": high, "runs": pace.samples}


def _more(suggestion: Suggestion) -> list[str]:
    if not suggestion.fits:
        near = suggestion.nearest
        return ["", f"nearest that fits: {_line(near)}" if near else "nothing kgops could set makes it fit"]
    if not suggestion.others:
        return []
    rows = [
        (
            describe_changes(one.changes) or "as asked",
            one.effect,
            f"{one.need_mib:,.0f}",
            _ratio(one, suggestion),
        )
        for one in suggestion.others
    ]
    heads = ("ALSO FITS", "KIND", "MIB", "PACE")
    return ["", *table(heads, rows, right=frozenset({"MIB", "PACE"}))]


def _line(candidate: Candidate) -> str:
    return f"{describe_changes(candidate.changes)} ({candidate.effect}), {candidate.need_mib:,.0f} MiB"


def _ratio(candidate: Candidate, suggestion: Suggestion) -> str:
    return f"{suggestion.best.seconds / candidate.seconds:.2f}x" if candidate.seconds else UNKNOWN


def _option(candidate: Candidate, suggestion: Suggestion) -> dict[str, Any]:
    return {
        "changes": candidate.changes,
        "effect": candidate.effect,
        "need_mib": candidate.need_mib,
        "modelled_pace": suggestion.best.seconds / candidate.seconds if candidate.seconds else None,
    }


def _to_run(asked: Job, suggestion: Suggestion) -> Job:
    """With what was chosen; where nothing fits as it is, with the nearest change that would."""
    candidate = suggestion.best if suggestion.fits else suggestion.nearest or suggestion.best
    return replace(asked, options={**asked.options, **candidate.changes})


def _start(job: Job, refused: KgopsError | None) -> list[str]:
    words = as_command(job)
    command = shlex.join(words) if words else "kgops run FILE.toml: flags cannot say all of this job"
    return [
        *([] if refused is None else ["", one_line(f"would not start here: {refused.message}")]),
        "",
        command,
    ]
