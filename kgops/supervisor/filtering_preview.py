"""Counts the training triples that filtering keeps for a TracIn run's test triples, before the run is planned."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json, write_json
from kgops.jobs.job import Job
from kgops.options.tracin import FILES
from kgops.planning.speed import rates_of, seconds
from kgops.settings import Home
from kgops.supervisor.plan_job import Planned, remembered_in

_MODULE = "kgops.workers.tracin_filter_counts"
_TIMEOUT_S = 120.0
_CACHED = 64


@dataclass(frozen=True, slots=True)
class FilteringPreview:
    """`left`: training triples (of `train`) kept by each of the `counted` test triples; `together`: their union, which
    a run scores. `times_as_fast`: modelled speedup over a run on all training triples."""

    tests: int
    counted: int
    train: int
    left: tuple[int, ...]
    together: int
    times_as_fast: float | None
    all_s: float | None  # expected seconds over all triples; None without past runs here
    is_asked: bool  # the job requests filtering

    @property
    def filtered_s(self) -> float | None:
        return self.all_s / self.times_as_fast if self.all_s is not None and self.times_as_fast else None


def preview_filtering(planned: Planned, home: Home) -> FilteringPreview | str | None:
    """None if there is nothing to filter; a text with the reason if counting failed."""
    job, suggestion = planned.job, planned.suggestion
    if job.workload != "tracin" or suggestion is None or suggestion.job_size.counts.published:
        return None
    if any(job.settings[name] for name in ("self_influence", "skip_tracin")):
        return None
    counted = _count_in_subprocess(job, home)
    if isinstance(counted, str):
        return counted
    counts = suggestion.job_size.counts
    filtered_subject = replace(suggestion.job_size, counts=replace(counts, train=max(counted["together"], 1)))
    facts, rates = planned.target.facts, rates_of(planned.target)
    shapes_all = suggestion.job_size.shapes({**job.options, "filtering": False}, facts)
    shapes_filtered = filtered_subject.shapes({**job.options, "filtering": True}, facts)
    all_s, filtered_s = (
        sum(seconds(shape, rates) for shape in shapes) for shapes in (shapes_all, shapes_filtered)
    )
    correction = suggestion.corrections.time
    is_asked = bool(job.options.get("filtering", bool(job.settings["test_triples"])))
    return FilteringPreview(
        counted["tests"],
        counted["counted"],
        counted["train"],
        tuple(counted["left"]),
        counted["together"],
        all_s / filtered_s if filtered_s else None,
        correction.expected(all_s).s if correction is not None else None,
        is_asked,
    )


def _count_in_subprocess(job: Job, home: Home) -> dict[str, Any] | str:
    """Runs the filtering code in a subprocess; caches the counts by files and settings."""
    cache = remembered_in(home, "filtered.json")
    key = json.dumps([job.settings, [_identity(job.settings.get(name)) for name in FILES]], sort_keys=True)
    cached = read_json(cache) if cache is not None else None
    entries: dict[str, Any] = cached if isinstance(cached, dict) else {}
    entry = entries.get(key)
    if isinstance(entry, dict) and {"tests", "counted", "train", "left", "together"} <= entry.keys():
        return entry
    command = [sys.executable, "-P", "-m", _MODULE]
    job_json = json.dumps(job.as_table())
    try:
        done = subprocess.run(
            command, input=job_json, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"filtering could not be previewed within {_TIMEOUT_S:.0f} s"
    if done.returncode != 0:
        stderr_lines = done.stderr.strip().splitlines()
        return f"filtering could not be previewed: {stderr_lines[-1] if stderr_lines else 'no reason given'}"
    counts: dict[str, Any] = json.loads(done.stdout)
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, {**dict([*entries.items()][1 - _CACHED :]), key: counts})
    return counts


def _identity(name: str | None) -> list[Any] | None:
    try:
        stat = Path(name).stat() if name else None
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns] if stat is not None else None
