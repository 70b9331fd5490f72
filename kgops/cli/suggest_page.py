"""Format a plan as text or as a table for JSON."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from kgops.cli.command_line import as_command
from kgops.errors import KgopsError
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.planning.filtering_preview import FilteringPreview
from kgops.planning.memory_estimate import Accuracy, Pair, accuracy
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import MARGIN, Candidate, Suggestion
from kgops.planning.resolve import requires_gpu
from kgops.planning.start import as_recorded
from kgops.present import plan_sections
from kgops.present.plan_words import planned_options, suggested, verdict
from kgops.present.rows import printed, printed_facts
from kgops.workloads.registry import workload_of
from storage.predictions import Forecast


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
    planned, suggestion = placed.planned, placed.planned.suggestion
    sentence = suggested(planned, filtering)
    lines = [] if placed.unused is None else [one_line(str(placed.unused)), ""]
    lines += [] if sentence is None else [sentence]
    lines += [*_head(requested, placed), *printed(plan_sections.options(planned, with_sources=explain))]
    facts = plan_sections.facts(planned, filtering)
    if explain and suggestion is not None:
        lines += printed(plan_sections.memory(suggestion))
        facts = [one for one in facts if one.name != "memory"]
    lines += ["", *printed_facts(facts, indent="")]
    if suggestion is not None:
        advice = plan_sections.advice(placed)
        lines += ["", advice] if advice is not None and placed.fit.state != "later" else []
        lines += printed(plan_sections.alternatives(suggestion))
        lines += _filtering(filtering)
    lines += ["", *(f"        {one_line(line)}" for line in placed.differences)] if placed.differences else []
    job = requested if suggestion is None else _job_to_run(requested, suggestion)
    return [*lines, *_start(job, placed, refused)]


def _head(requested: Job, placed: Placement) -> list[str]:
    """Return where it is planned and whether it fits; and the change with which it would start now."""
    planned = placed.planned
    head = f"{requested.workload} {one_line(requested.label)}"
    # What requires a GPU and cannot have one runs on no CPU instead.
    if not requires_gpu(requested) or planned.target.on_gpu:
        head += f" on {plan_sections.where(planned.target)}"
    if planned.suggestion is None:
        return [head if placed.fit.state in ("now", "unknown") else f"{head}: {one_line(placed.fit.words)}"]
    advice = plan_sections.advice(placed) if placed.fit.state == "later" else None
    return [f"{head}: {verdict(placed)}", *([advice] if advice is not None else [])]


def _filtering(preview: FilteringPreview | None) -> list[str]:
    if preview is not None and preview.problem is not None:
        return ["", one_line(preview.problem)]
    return printed(plan_sections.filters(preview))


def table_of_plan(
    placed: Placement, refused: KgopsError | None, filtering: FilteringPreview | None
) -> dict[str, Any]:
    """What the JSON of a plan has in common for `kgops suggest` and for --dry-run."""
    planned = placed.planned
    again = None if planned.suggestion is None else planned.suggestion.retrainings
    return {
        "suggested": suggested(planned, filtering),
        "filtering": None if filtering is None else filtering.as_table(),
        "job": as_recorded(planned.job).as_table(),
        "unknown": planned.unknown,
        "retrainings": None if again is None else again.as_table(),
        "now": placed.fit.state,
        "verdict": verdict(placed),
        "unusable_gpus": None if placed.unused is None else str(placed.unused),
        "other_gpus": placed.differences,
        "refused": None if refused is None else refused.message,
    }


def as_table(
    requested: Job,
    placed: Placement,
    refused: KgopsError | None,
    filtering: FilteringPreview | None = None,
) -> dict[str, Any]:
    planned = placed.planned
    suggestion = planned.suggestion
    near = placed.nearest_now
    whole: dict[str, Any] = {
        **table_of_plan(placed, refused, filtering),
        "workload": requested.workload,
        "label": requested.label,
        "on": planned.target.title,
        "gpu": planned.target.gpu_name,
        "usable_mib": planned.target.usable_mib,
        "free_mib": planned.target.free_mib,
        "profile": planned.job.profile,
        "options": [choice.as_table() for choice in planned_options(planned)],
        "disk": None if planned.disk is None else {**planned.disk.as_table(), "fits": planned.disk.fits},
    }
    if suggestion is None:
        return {**whole, "command": as_command(requested)}
    return {
        **whole,
        "fits": suggestion.fits,
        "estimate": suggestion.best.estimate.as_table(),
        "need_mib": suggestion.best.need_mib,
        "margin": MARGIN,
        "modelled_s": suggestion.best.seconds,
        "expected_s": None if suggestion.expected is None else suggestion.expected._asdict(),
        "predicted_step": None if suggestion.predicted_step is None else asdict(suggestion.predicted_step),
        "others": [_option(one, suggestion) for one in suggestion.others],
        "nearest": _option(suggestion.nearest, suggestion) if suggestion.nearest else None,
        "nearest_now": _option(near, suggestion) if near else None,
        "largest_batch": suggestion.largest_batch,
        "command": as_command(_job_to_run(requested, suggestion)),
    }


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
    suggestion = placed.planned.suggestion
    never_fits = suggestion is not None and not suggestion.fits and suggestion.nearest is None
    return [
        *(
            ["", one_line(f"would not start here: {refused.message}")]
            if refused is not None and placed.fit.fits
            else []
        ),
        "",
        *([f"on a machine with a {one_line(target.title)}:"] if is_elsewhere and not never_fits else []),
        *(["only --force starts it:"] if never_fits else []),
        f"{command} --force" if never_fits else command,
    ]


_NO_RUN = "No run has a predicted and a measured peak yet: start one with `kgops run`."


def accuracy_sentences(forecasts: Iterable[Forecast]) -> list[str]:
    """Commands print them, and screens draw them."""
    return [
        f"{one_line(on)}, {len(pairs):,} run{'' if len(pairs) == 1 else 's'}: "
        + (
            f"median error {errors.median_error:.1%}, worst under {errors.worst_under:+.1%}, "
            f"worst over {errors.worst_over:+.1%} "
            if errors
            else "error unknown "
        )
        + f"({_compared(on_gpu)})"
        for on, on_gpu, pairs, errors in _accuracies(forecasts)
    ] or [_NO_RUN]


def accuracy_table(forecasts: Iterable[Forecast]) -> list[dict[str, Any]]:
    return [
        {
            "on": on,
            "compared": _compared(on_gpu),
            "runs": len(pairs),
            "median_error": errors.median_error if errors else None,
            "worst_under": errors.worst_under if errors else None,
            "worst_over": errors.worst_over if errors else None,
        }
        for on, on_gpu, pairs, errors in _accuracies(forecasts)
    ]


def _accuracies(forecasts: Iterable[Forecast]) -> list[tuple[str, bool, list[Pair], Accuracy | None]]:
    by: dict[tuple[str, bool], list[Pair]] = defaultdict(list)
    for one in forecasts:
        if one.measured_mib is not None and one.predicted_mib is not None:
            by[one.on, one.on_gpu].append(Pair(one.predicted_mib, one.measured_mib))
    # The memory of a process is its own: no other process causes an error, so none is dropped.
    return [
        (on, on_gpu, pairs, accuracy(pairs) if on_gpu else accuracy(pairs, furthest=math.inf))
        for (on, on_gpu), pairs in sorted(by.items())
    ]


def _compared(on_gpu: bool) -> str:
    if on_gpu:
        return "GPU memory: all that the run held"
    return "process memory: the peak of the worker process above its start"
