"""How many training triples filters leave a TracIn run's test triples, and how long the run would take with each."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kgops.jobs.files import read_json, write_json
from kgops.jobs.job import Job
from kgops.planning.plan_job import Planned, remembered_in
from kgops.planning.planner import Suggestion
from kgops.planning.speed import rates_of, seconds
from kgops.settings import Home
from kgops.workloads.tracin.options import FILES, FILTERS, TRACIN_OPTIONS
from kgops.workloads.tracin.sizes import TracinShape

LONG_S = 180.0  # a run that takes longer is told what filtering would save
_MODULE = "kgops.maths.tracin.filter_counts"
_CPU_S = 20  # of a processor, so that a busy machine counts as much
_TIMEOUT_S = 120.0
_CACHED = 192
_DEFAULTS = {option.name: option.default for option in TRACIN_OPTIONS if option.name in FILTERS}
_SUGGESTED: tuple[dict[str, Any], ...] = (
    {"n_hops": 1},
    {"n_hops": 2},
    {"path_filtering": True, "max_total_path_length": 3},
)
_LEAST_SAVED = 2.0  # times as fast; less is not worth other results


@dataclass(frozen=True, slots=True)
class FilterCount:
    """What one filter leaves each of the `counted` test triples; `together` is their union, which a run scores.
    `takes_s` and `times_as_fast` are predicted; None: unknown."""

    settings: dict[str, Any]
    left: tuple[int, ...]
    together: int
    is_estimate: bool  # of all test triples, from those that were counted
    takes_s: float | None
    times_as_fast: float

    @property
    def shown(self) -> str:
        """`1,204`: triples that the run scores; on average for each test, where more tests exist than were
        counted."""
        return f"about {sum(self.left) / len(self.left):,.0f}" if self.is_estimate else f"{self.together:,}"

    @property
    def flags(self) -> str:
        """The words to add to a command, which turn this filter on."""
        words = []
        for name in FILTERS:
            value, flag = self.settings[name], name.replace("_", "-")
            if value != _DEFAULTS[name]:
                words.append(
                    f"--{flag}"
                    if value is True
                    else f"--no-{flag}"
                    if value is False
                    else f"--{flag} {value}"
                )
        return " ".join(words) or f"--n-hops {self.settings['n_hops']}"

    @property
    def name(self) -> str:
        """`2 hops`, `paths of 3 edges`, strict or not."""
        hops, longest = self.settings["n_hops"], self.settings["max_total_path_length"]
        is_strict = self.settings["strict_hop_constraint"] or self.settings["strict_path_filtering"]
        name = f"{hops} hop{'' if hops == 1 else 's'}"
        if self.settings["path_filtering"]:
            edges = f"paths of up to {longest or 2 * hops} edges"
            name = edges if hops == _DEFAULTS["n_hops"] else f"{name}, {edges}"
        return f"{name}, strict" if is_strict else name

    def as_table(self) -> dict[str, Any]:
        return {**asdict(self), "flags": self.flags}


@dataclass(frozen=True, slots=True)
class FilteringPreview:
    """`all_s`: predicted seconds of a run on all `train` training triples; None: unknown. `requested`: the filter of
    the job. `filters`: those that the job could have instead; none where it is short without. `problem`: why there
    are no counts."""

    all_s: float | None = None
    tests: int = 0
    train: int = 0
    requested: FilterCount | None = None
    filters: tuple[FilterCount, ...] = ()
    problem: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether it takes longer than some minutes without filtering, or nobody knows."""
        return self.all_s is None or self.all_s > LONG_S

    @property
    def suggested(self) -> FilterCount | None:
        """Of those that save time: the one that leaves most and makes the run short, otherwise the fastest."""
        if self.requested is not None or not self.is_long:
            return None
        saving = [one for one in self.filters if one.together and one.times_as_fast >= _LEAST_SAVED]
        short = [one for one in saving if one.takes_s is not None and one.takes_s <= LONG_S]
        if short:
            return max(short, key=lambda one: one.together)
        return max(saving, key=lambda one: one.times_as_fast, default=None)

    def as_table(self) -> dict[str, Any]:
        return {
            "all_s": self.all_s,
            "tests": self.tests,
            "train": self.train,
            "requested": self.requested and self.requested.as_table(),
            "filters": [one.as_table() for one in self.filters],
            "suggested": self.suggested and self.suggested.flags,
            "problem": self.problem,
        }


Children = list["subprocess.Popen[str]"]


def preview_filtering(
    planned: Planned, home: Home, *, always: bool = False, children: Children | None = None
) -> FilteringPreview | None:
    """Counts the requested filter; without one those that could be added, if the run is long or `always`. None where
    the plan has nothing to filter, or the person turned filtering off. Takes some seconds; `children` has the process
    that counts, for who may kill it."""
    job, suggestion = planned.job, planned.suggestion
    if "n_hops" not in job.settings or suggestion is None or suggestion.job_size.counts.published:
        return None
    if job.settings["self_influence"] or job.settings["skip_tracin"] or job.options.get("filtering") is False:
        return None
    whole = _modelled(suggestion, job, {"filtering": False})
    preview = FilteringPreview(suggestion.seconds_for(whole))
    own = [{name: job.settings[name] for name in FILTERS}] if suggestion.is_filtered else []
    if not own and not preview.is_long and not always:
        return preview
    others = [{**_DEFAULTS, **one} for one in _SUGGESTED] if always or not own else []
    filters = own + [one for one in others if one not in own]
    counted = _count(job, filters, home, children if children is not None else [])
    if isinstance(counted, str):
        return replace(preview, problem=counted)
    estimates = [
        _estimated(suggestion, job, whole, one, table) for one, table in zip(filters, counted, strict=True)
    ]
    return replace(
        preview,
        tests=counted[0]["tests"],
        train=counted[0]["train"],
        requested=estimates[0] if own else None,
        filters=tuple(estimates[len(own) :]),
    )


def _modelled(suggestion: Suggestion, job: Job, options: dict[str, Any], train: int | None = None) -> float:
    """Modelled seconds with these options, on so many training triples."""
    size, target = suggestion.job_size, suggestion.target
    counts = size.counts if train is None else replace(size.counts, train=train)
    shapes = replace(size, counts=counts).shapes({**job.options, **options}, target.facts)
    return sum(seconds(shape, rates_of(target)) for shape in shapes)


def _estimated(
    suggestion: Suggestion, job: Job, whole: float, settings: dict[str, Any], table: dict[str, Any]
) -> FilterCount:
    """With the time that reading and filtering took when it was counted."""
    tests, train, left, together = (table[name] for name in ("tests", "train", "left", "together"))
    shapes = suggestion.job_size.shapes({**job.options, "filtering": True}, suggestion.target.facts)
    tile = next(shape.tests_of_a_tile for shape in shapes if isinstance(shape, TracinShape))
    scored = _union_of(min(tile, tests), together, len(left), train)
    modelled = _modelled(suggestion, job, {"filtering": True, "tests_at_once": tile}, max(scored, 1))
    before_s = table["reading_s"] + table["filtering_s"] * tests / len(left)
    takes_s, all_s = suggestion.seconds_for(modelled), suggestion.seconds_for(whole)
    ratio = whole / modelled
    if takes_s is not None and all_s is not None:
        takes_s, all_s = takes_s + before_s, all_s + table["reading_s"]
        ratio = all_s / takes_s
    union = _union_of(tests, together, len(left), train)
    return FilterCount(settings, tuple(left), union, len(left) < tests, takes_s, ratio)


def _union_of(tests: int, together: int, counted: int, train: int) -> int:
    """Triples that so many tests have together, where `counted` have `together`: as if each as many had others."""
    if tests <= counted:
        return together
    return int(train * (1 - (1 - together / train) ** (tests / counted)))


def _count(
    job: Job, filters: Sequence[dict[str, Any]], home: Home, children: Children
) -> list[dict[str, Any]] | str:
    """Counts of each filter, by a subprocess where the cache lacks them, or why there are none."""
    cache = remembered_in(home, "filtered.json")
    cached = read_json(cache) if cache is not None else None
    entries: dict[str, Any] = cached if isinstance(cached, dict) else {}
    keys = [_key(job, one) for one in filters]
    missing = [at for at, key in enumerate(keys) if not _is_count(entries.get(key))]
    if missing:
        counted = _count_in_subprocess(job, [filters[at] for at in missing], children)
        if isinstance(counted, str):
            return counted
        entries |= {keys[at]: one for at, one in zip(missing, counted, strict=True)}
        if cache is not None:
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(cache, dict([*entries.items()][-_CACHED:]))
    return [entries[key] for key in keys]


def _count_in_subprocess(
    job: Job, filters: Sequence[dict[str, Any]], children: Children
) -> list[dict[str, Any]] | str:
    command = [sys.executable, "-P", "-m", _MODULE]
    request = {"job": job.as_table(), "filters": filters, "begun": time.monotonic(), "cpu_s": _CPU_S}
    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    except OSError as error:
        return f"filtering was not counted: no process could be started ({error.strerror})"
    with child:
        children.append(child)
        try:
            out, err = child.communicate(json.dumps(request), timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()  # the counts so far
        finally:
            children.remove(child)
    head, *lines = [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")] or [
        None
    ]
    counted = [[line for line in lines if line["filter"] == at] for at in range(len(filters))]
    if head is not None and all(counted):
        return [
            {
                **head,
                "left": [line["left"] for line in each],
                "together": each[-1]["together"],
                "filtering_s": sum(line["filtering_s"] for line in each),
            }
            for each in counted
        ]
    if child.returncode > 0:
        reason = err.strip().splitlines()
        return f"filtering was not counted: {reason[-1].rstrip('.') if reason else 'no reason given'}"
    return (
        f"filtering was not counted: the graph is too large to do so in {_CPU_S} s. "
        "A run with `--n-hops 2 --skip-tracin` counts it without scoring"
    )


def _key(job: Job, settings: dict[str, Any]) -> str:
    """What decides the counts: data and test triples, the files they are in, and the filter."""
    data = {name: value for name, value in job.settings.items() if name not in FILTERS}
    return json.dumps([data, settings, [_identity(data.get(name)) for name in FILES]], sort_keys=True)


def _is_count(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and {"tests", "train", "left", "together", "reading_s", "filtering_s"} <= entry.keys()
    )


def _identity(name: str | None) -> list[Any] | None:
    try:
        stat = Path(name).stat() if name else None
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns] if stat is not None else None
