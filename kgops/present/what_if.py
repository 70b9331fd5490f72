"""The plan of a draft while it is edited: applied options, memory estimates, and the job to start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from kgops.errors import KgopsError, Usage, WontFit
from kgops.gpus.known import short_names
from kgops.jobs.bundled import BUNDLED
from kgops.jobs.job import Job
from kgops.jobs.option import Option
from kgops.planning import profiles
from kgops.planning.filtering_preview import FilteringPreview, preview_filtering
from kgops.planning.plan_job import BY_DEFAULT, MAX_TRIPLE_BYTES, Planned, refuse_what_cannot_fit
from kgops.planning.plan_per_gpu import Placement, as_refused, plan_for, plan_here
from kgops.planning.planner import suggest
from kgops.planning.resolve import Choice
from kgops.planning.targets import Target, cpu_target, find_targets, gpus_here
from kgops.present.asking import names_a_run, with_run
from kgops.present.draft_fields import BadField, optimizations
from kgops.present.drafts import Draft, is_what_if, job_of, recent_data, recent_flights, trained_runs
from kgops.present.plan_words import planned_options
from kgops.settings import Home, make_home
from kgops.workloads import configurations
from kgops.workloads.graphs.counts import counts_of
from kgops.workloads.job_files import with_absolute_paths
from kgops.workloads.registry import WORKLOADS, workload_of
from kgops.workloads.shared_options import TRIPLES
from storage.database import Connection, open_reader
from storage.errors import DatabaseMissing, StorageError

BY_HOST = "that host"  # chooses an option


_COUNTED_HERE = 1 << 20  # bytes of triples: below a fifth of a second
_COUNT = """
import json, sys
from pathlib import Path
from kgops.workloads.graphs.counts import counts_of
counts_of(json.load(sys.stdin), Path(sys.argv[1]), most_bytes=int(sys.argv[2]))
"""
_MAKES_FLIGHTS = "`kgops data flights --make DIR` writes small ones"


class Trouble(NamedTuple):
    """Why there is no plan; `field` is the wrong field, where it is one."""

    field: str | None
    message: str
    hint: str | None


class DraftOption(NamedTuple):
    """An option of the draft. `applied` is what the worker will apply, and `now` what a step goes from; `requested` is
    None where unset."""

    name: str
    requested: Any
    applied: Any
    now: Any
    by: str
    why: str
    corrected: bool
    values: tuple[Any, ...] = ()  # possible values on that target, off before on, small before large


@dataclass(frozen=True, slots=True)
class Offers:
    """Choices of the form: this machine's GPUs with their titles, known GPUs, profiles, recent data and runs; for a
    regression, configurations and flight folders."""

    gpus: tuple[tuple[str, str], ...] = ()
    known: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    data: tuple[str, ...] = BUNDLED
    runs: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    flights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan or a problem, or both; `refusal`: the plan does not fit; `impossible`: why the job cannot start here, even
    forced. A job for another host has no plan here: that host plans `sent`."""

    draft: Draft
    requested: Job | None = None
    placed: Placement | None = None
    planned: Planned | None = None
    options: Mapping[str, DraftOption] | None = None
    sent: Job | None = None
    refusal: WontFit | None = None
    impossible: str | None = None
    trouble: Trouble | None = None


class WhatIf:
    """Plans drafts. Not thread-safe. Detects GPUs once; reads what runs have measured each time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._gpus: list[Target] | None = None
        self._counting: list[subprocess.Popen[str]] = []
        self._counted: set[str] = set()
        self._closed = False

    def close(self) -> None:
        """Kills the counting processes, so that closing does not wait."""
        self._closed = True
        for child in tuple(self._counting):
            child.kill()

    def offers(self) -> Offers:
        with self._record() as conn:
            data = recent_data(conn) if conn is not None else []
            trained = trained_runs(conn) if conn is not None else []
            flights = recent_flights(conn) if conn is not None else []
        if self._gpus is None:
            self._gpus = gpus_here()
        return Offers(
            tuple((gpu.gpu_name or "", gpu.title) for gpu in self._gpus),
            tuple(short_names()),
            tuple(profiles.names()),
            tuple(dict.fromkeys((*data, *BUNDLED))),
            tuple(trained),
            tuple(configurations.names()),
            tuple(flights),
        )

    def answer(self, draft: Draft) -> Answer:
        """The plan, or the problem. May count triples first, which takes a while for large files."""
        try:
            with self._record() as conn:
                return self._planned(draft, conn)
        except BadField as error:
            return Answer(draft, trouble=Trouble(error.field, error.message, error.hint))
        except (KgopsError, StorageError) as error:
            field = "run" if WORKLOADS[draft.workload].reads_model else None
            return Answer(draft, trouble=Trouble(field, error.message, error.hint))

    def filtering(self, answer: Answer) -> FilteringPreview | None:
        """What filters leave, the draft's own and common ones. Takes some seconds, in which another thread may plan."""
        if self._closed or answer.planned is None:
            return None
        return preview_filtering(answer.planned, self._home, always=True, children=self._counting)

    def _planned(self, draft: Draft, conn: Connection | None) -> Answer:
        requested = job = job_of(draft)
        if draft.where is not None:
            _check_flights(draft)
            options = {one.name: one for one in _options_there(draft)}
            return Answer(draft, requested, options=options, sent=with_absolute_paths(job, Path.cwd()))
        if names_a_run(job):
            if conn is None:
                raise BadField("run", "there are no runs yet", "train a model first")
            job = with_run(self._home, conn, job)
        self._count_in_background(job)
        target = self._target(draft)
        placed = (
            plan_here(job, self._home, conn) if target is None else plan_for(job, target, self._home, conn)
        )
        planned = _searched(placed.planned)
        placed = replace(placed, planned=planned)
        possible = placed if is_what_if(draft) else as_refused(placed)
        try:
            refuse_what_cannot_fit(planned)
            refusal = None
        except WontFit as error:
            refusal = error
        options = {option.name: option for option in _options(draft, planned)}
        impossible = possible.fit.words if possible is not placed else None
        answer = Answer(draft, requested, possible, planned, options, refusal=refusal, impossible=impossible)
        return answer if is_what_if(draft) else _with_missing_flights(answer)

    def _count_in_background(self, job: Job) -> None:
        """Counts large files once, in a subprocess: a counting thread would block key presses (GIL)."""
        remembered = self._home.path / "counts.json"
        settings = workload_of(job).stage_settings(job.settings).get("train", job.settings)
        data = {name: settings.get(name) for name in ("dataset", *TRIPLES)}
        key = json.dumps(data)
        if not workload_of(job).has_graph or key in self._counted:
            return
        if counts_of(data, remembered if remembered.exists() else None, most_bytes=_COUNTED_HERE) is None:
            make_home(self._home)  # else they would be counted at every key press
            command = [sys.executable, "-P", "-c", _COUNT, str(remembered), str(MAX_TRIPLE_BYTES)]
            devnull = subprocess.DEVNULL
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=devnull, stderr=devnull, text=True
            ) as child:
                self._counting.append(child)
                child.communicate(key)
                self._counting.remove(child)
        if self._closed:
            raise Usage("the form was closed")
        self._counted.add(key)

    def _target(self, draft: Draft) -> Target | None:
        """The device to plan for; None: the one this machine would give the run now."""
        if draft.gpu == "cpu":
            return cpu_target()
        if is_what_if(draft):
            return find_targets(draft.gpu)[0]
        if draft.gpu is None:
            return None
        if self._gpus is None:
            self._gpus = gpus_here()
        if not any(draft.gpu in (gpu.gpu_name, gpu.uuid) for gpu in self._gpus):
            raise BadField("gpu", f"this machine has no GPU {draft.gpu}")
        return None

    def _record(self) -> AbstractContextManager[Connection | None]:
        try:
            return closing(open_reader(self._home.database, busy_timeout_s=1.0))
        except DatabaseMissing:
            return nullcontext()


def startable(home: Home, conn: Connection, draft: Draft) -> Job:
    """The draft's job on this machine. Raises Usage for a what-if."""
    if (absent := absent_gpu(draft)) is not None:
        raise Usage(absent, "choose a GPU of this machine, or start it on one with that GPU")
    _check_flights(draft)
    job = job_of(draft)
    return with_run(home, conn, job) if names_a_run(job) else job


def absent_gpu(draft: Draft) -> str | None:
    """Why a what-if is not started here."""
    return f"this is a what-if: this machine has no {draft.gpu}" if is_what_if(draft) else None


def _check_flights(draft: Draft) -> None:
    if "data_directory" in WORKLOADS[draft.workload].folders and not draft.text("data_directory").strip():
        raise BadField("data_directory", "the folder of flights is missing", _MAKES_FLIGHTS)


def _with_missing_flights(answer: Answer) -> Answer:
    """A regression is planned without its data too, but not started."""
    try:
        _check_flights(answer.draft)
    except BadField as error:
        return replace(answer, trouble=Trouble(error.field, error.message, error.hint))
    return answer


def _searched(planned: Planned) -> Planned:
    """With the other candidates that reasons name; the data were counted within the limit of a form."""
    suggestion = planned.suggestion
    if suggestion is None:
        return planned
    size, target, known = suggestion.job_size, suggestion.target, suggestion.corrections
    return replace(planned, suggestion=suggest(size, target, known, planned.environment, thorough=True))


def _values(option: Option, on_gpu: bool) -> tuple[Any, ...]:
    named = [value for value in option.choices if value is not int]
    if option.name == "precision" and not on_gpu:
        named = [value for value in named if value not in ("tf32", "fp16")]  # a CPU has neither
    if option.is_switch:
        return (False, True)
    if option.steps:
        return (*(value for value in named if value != "auto"), *option.steps)
    return tuple(named)


def step(option: DraftOption, by: int) -> Any:
    """The next smaller or larger value; unchanged at either end."""
    values = option.values
    now = option.now
    if now in values:
        return values[min(max(values.index(now) + by, 0), len(values) - 1)]
    if isinstance(now, int):
        numbers = [v for v in values if isinstance(v, int) and (v > now if by > 0 else v < now)]
        return (numbers[0] if by > 0 else numbers[-1]) if numbers else now
    return values[0]


def _options(draft: Draft, planned: Planned) -> Iterator[DraftOption]:
    chosen = {choice.option: choice for choice in planned_options(planned)}
    for name, option in optimizations(draft.workload).items():
        now = planned.job.options.get(name, option.default)
        choice = chosen.get(name) or Choice(name, None, now, BY_DEFAULT, option.summary)
        yield DraftOption(
            name,
            draft.options.get(name),
            choice.applied,
            _first_stage(option, choice.applied),
            choice.chosen_by,
            choice.reason or option.summary,
            choice.is_corrected,
            _values(option, planned.target.on_gpu),
        )


def _first_stage(option: Option, applied: Any) -> Any:
    """The training's part of a pipeline's value, such as `65536, then 2048`."""
    first, *then = str(applied).split(", then ")
    if not then:
        return applied
    named = {"on": True, "off": False} if option.is_switch else {}
    return named.get(first, int(first) if first.isdecimal() else first)


def _options_there(draft: Draft) -> Iterator[DraftOption]:
    """The requested part; that host's planner decides the rest."""
    for name, option in optimizations(draft.workload).items():
        requested = draft.options.get(name)
        now = option.default if requested is None else requested
        by = BY_HOST if requested is None else "requested"
        values = _values(option, on_gpu=True)
        yield DraftOption(name, requested, now, now, by, option.summary, False, values)
