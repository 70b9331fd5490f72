"""What filtering would leave a TracIn run: really counted, for its own test triples, before it is planned so."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json, write_json
from kgops.jobs.job import Job
from kgops.jobs.tracin import FILES
from kgops.planning.speed import rates_of, seconds
from kgops.settings import Home
from kgops.supervisor.plan_job import Planned, remembered_in

__all__ = ["Filtered", "filtered"]

_MODULE = "kgops.workers.tracin_filter_counts"
_PATIENCE_S = 120.0
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Filtered:
    """`left` are the training triples that each of the `counted` test triples keeps, of `train`; `together` is what a
    run scores, their union. `times_as_fast` is modelled against the same run over all training triples."""

    tests: int
    counted: int
    train: int
    left: tuple[int, ...]
    together: int
    times_as_fast: float | None
    all_s: float | None  # seconds that are expected over all triples, where runs here have taught any
    is_asked: bool  # the job filters already

    @property
    def filtered_s(self) -> float | None:
        return self.all_s / self.times_as_fast if self.all_s is not None and self.times_as_fast else None


def filtered(planned: Planned, home: Home) -> Filtered | str | None:
    """None where there is nothing to filter; a text where it could not be counted, and why."""
    job, suggestion = planned.job, planned.suggestion
    if job.workload != "tracin" or suggestion is None or suggestion.subject.counts.published:
        return None
    if any(job.settings[name] for name in ("self_influence", "build_index", "use_index", "skip_tracin")):
        return None
    told = _counted(job, home)
    if isinstance(told, str):
        return told
    counts = suggestion.subject.counts
    near = replace(suggestion.subject, counts=replace(counts, train=max(told["together"], 1)))
    facts, rates = planned.target.facts, rates_of(planned.target)
    every = suggestion.subject.shapes({**job.options, "filtering": False}, facts)
    few = near.shapes({**job.options, "filtering": True}, facts)
    all_s, near_s = (sum(seconds(shape, rates) for shape in shapes) for shapes in (every, few))
    pace = suggestion.known.pace
    is_asked = bool(job.options.get("filtering", bool(job.settings["test_triples"])))
    return Filtered(
        told["tests"],
        told["counted"],
        told["train"],
        tuple(told["left"]),
        told["together"],
        all_s / near_s if near_s else None,
        pace.expected_s(all_s)[0] if pace is not None else None,
        is_asked,
    )


def _counted(job: Job, home: Home) -> dict[str, Any] | str:
    """By the code that filters, in a process of its own; remembered for the same files and the same questions."""
    place = remembered_in(home, "filtered.json")
    key = json.dumps([job.settings, [_identity(job.settings.get(name)) for name in FILES]], sort_keys=True)
    there = read_json(place) if place is not None else None
    known: dict[str, Any] = there if isinstance(there, dict) else {}
    recalled = known.get(key)
    if isinstance(recalled, dict) and {"tests", "counted", "train", "left", "together"} <= recalled.keys():
        return recalled
    command = [sys.executable, "-P", "-m", _MODULE]
    asked = json.dumps(job.as_table())
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"filtering could not be previewed within {_PATIENCE_S:.0f} s"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return f"filtering could not be previewed: {said[-1] if said else 'no reason given'}"
    found: dict[str, Any] = json.loads(done.stdout)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_json(place, {**dict([*known.items()][1 - _REMEMBERED :]), key: found})
    return found


def _identity(name: str | None) -> list[Any] | None:
    try:
        stat = Path(name).stat() if name else None
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns] if stat is not None else None
