"""The details of one run: attempts, options, curves, metrics, artifacts and notes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from kgops.jobs.data_digests import data_line
from kgops.jobs.events import LIBRARIES, NOTE, PROCESS_PEAK, STARTED, is_metric
from kgops.jobs.numbers import middle
from kgops.present.axes import broken_at, is_by_clock
from kgops.present.formats import off_by, value_text
from kgops.present.quality import quality_rows
from kgops.present.wording import most_important
from kgops.settings import Home
from kgops.supervisor import worker_reports
from kgops.workloads.catalog import OPTIONS, effect_of
from kgops.workloads.results import is_command
from storage import attempts, reports, runs, series
from storage.attempts import Attempt
from storage.database import Connection
from storage.reports import Artifact, Event, Note, Option
from storage.runs import Run
from storage.series import Bucket

_STEPS = ("step_down", "again")
_IMPORTED = "imported"  # as in `supervisor.run_json`, which is not imported for this constant alone
_RELATIONS = 10  # whose quality is shown
_ALWAYS = (LIBRARIES, PROCESS_PEAK, "host_memory_mib", "gpu_memory_mib")  # what the memory chart needs
_MOST_MESSAGES = 30  # newest messages of a worker that are kept


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option's requested and applied value, and the reason for a difference; None where not reported yet."""

    name: str
    requested: str | None
    applied: str | None
    effect: str
    by: str
    why: str

    @property
    def is_changed(self) -> bool:
        """Whether another value was applied than requested."""
        return self.requested not in (None, "auto") and self.applied not in (None, self.requested)


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    n: int
    last: float | None
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class RunDetail:
    run: Run
    path: Path
    attempts: tuple[Attempt, ...]
    steps: tuple[Event, ...]  # OOM fallbacks and retries between attempts
    options: tuple[OptionRow, ...]
    curves: tuple[Curve, ...]
    metrics: tuple[tuple[str, float], ...]
    artifacts: tuple[Artifact, ...]
    tags: tuple[str, ...]
    notes: tuple[Note, ...]
    messages: tuple[tuple[float, str], ...]  # messages of its worker, with their times
    job: Mapping[str, Any]
    environment: Mapping[str, Any]
    forecast: Mapping[str, Any] | None  # the plan's memory estimate, its device and its parts
    process: Mapping[str, Any] | None = None  # on a CPU: the prediction of the whole worker process
    imported: tuple[Event, ...] = ()  # when it was imported, and from where
    quality: tuple[tuple[str, ...], ...] = ()  # rows of `quality.HEADS`
    curves_left_out: int = 0  # of `curves` and `metrics`, above `wording.MOST_SHOWN`
    metrics_left_out: int = 0
    data: str = ""  # what the worker read: sizes, and marks of the content
    device: str | None = None  # that the newest worker used
    disk: Mapping[str, Any] | None = None  # the plan's estimate of what the run writes
    skipped: tuple[Mapping[str, Any], ...] = ()  # OOM fallbacks that the job does not allow

    def last(self, curve: str) -> float | None:
        """The newest value of a curve."""
        return next((one.last for one in self.curves if one.name == curve), None)

    @property
    def libraries_mib(self) -> float | None:
        """Host memory before the worker read any data; None unless a kgops worker reported it."""
        return self.last(LIBRARIES)

    @property
    def process_mib(self) -> float | None:
        """Peak of the worker process, which it reports at its end."""
        return self.last(PROCESS_PEAK)

    @property
    def above_start_mib(self) -> float | None:
        """Growth of the worker process from its start to its peak; None unless a kgops worker ran on a CPU."""
        peak, start = self.process_mib, self.libraries_mib
        if peak is None or start is None or self.process is None:
            return None
        return peak - start if peak > start else None  # the first samples are of before it

    @property
    def predicted_above_start_mib(self) -> float | None:
        """The predicted growth of the worker process."""
        predicted = self.run.predicted_mib
        if self.process is None or predicted is None:
            return None
        return predicted - float(self.process["start_mib"])

    @property
    def prediction_error(self) -> str | None:
        """Relative error of the predicted memory, as in `+3.2%`. Runs that did not succeed may not have reached their
        peak."""
        measured, predicted = self.above_start_mib, self.predicted_above_start_mib
        if self.process is None and self._is_on_gpu:
            measured, predicted = self.run.peak_gpu_mib, self.run.predicted_mib
        if self.run.state != "succeeded" or not measured or not predicted:
            return None
        return off_by(measured, predicted)

    @property
    def _is_on_gpu(self) -> bool | None:
        return (self.forecast or {}).get("on_gpu")

    @property
    def pauses(self) -> tuple[float, ...]:
        """A moment of each time between two attempts, in which no worker ran."""
        return tuple(
            middle(before.ended_at, after.started_at)
            for before, after in pairwise(self.attempts)
            if before.ended_at is not None and before.ended_at < after.started_at
        )

    def drawn(self, curve: Curve) -> Curve:
        """The curve as it is drawn. Samples by the clock have a gap where no worker ran."""
        if len(self.attempts) < 2 or not is_by_clock(curve.buckets, self.run):
            return curve
        return replace(curve, buckets=broken_at(self.pauses, curve.buckets))

    def estimate_mib(self, curve: str) -> float | None:
        """The predicted upper bound of a memory curve."""
        of = "host_memory_mib" if self.process is not None else "gpu_memory_mib" if self._is_on_gpu else None
        return self.run.predicted_mib if curve == of else None

    def limit_mib(self, curve: str) -> float | None:
        """The most that a memory curve can reach: `--memory-limit`, or all memory of the run's GPUs."""
        if curve == "host_memory_mib":
            limits = self.job.get("limits")
            return _number(limits.get("memory_mib")) if isinstance(limits, Mapping) else None
        if curve != "gpu_memory_mib" or self.run.gpu is None:
            return None
        gpus, uuids = self.environment.get("gpus"), self.run.gpu.split(",")
        listed = [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
        totals = {str(gpu.get("uuid")): _number(gpu.get("mib")) for gpu in listed}
        known = [mib for uuid in uuids if (mib := totals.get(uuid)) is not None]
        return sum(known) if len(known) == len(uuids) else None


def read_run_detail(
    home: Home, conn: Connection, number: int, *, points: int = 1024, only: Container[str] | None = None
) -> RunDetail | None:
    """Reads a run's details; None where there is no such run. Each curve has at most about `points` buckets, and none
    of 0. `only`: the curves that are wanted, if not the most important ones."""
    run = runs.get(conn, number)
    if run is None:
        return None
    spec = runs.spec(conn, number)
    events = reports.events(conn, number, kinds=(*_STEPS, _IMPORTED, STARTED))
    devices = [event.body.get("device") for event in events if event.kind == STARTED]
    curves, metrics = series.of_run(conn, number), reports.metrics(conn, number)
    drawn = {*most_important(one.name for one in curves), *_ALWAYS} if only is None else only
    shown = most_important(metrics)
    read = tuple(
        Curve(
            one.name,
            one.n,
            one.last_value,
            tuple(series.curve(conn, number, one.name, at_most=points)) if points else (),
        )
        for one in curves
        if one.name in drawn
    )
    return RunDetail(
        run=run,
        path=home.runs / run.folder,
        attempts=tuple(attempts.of_run(conn, number)),
        steps=tuple(event for event in events if event.kind in _STEPS),
        options=tuple(option_rows(run, reports.options(conn, number), spec.plan.get("choices") or [])),
        curves=read,
        metrics=tuple((name, metrics[name]) for name in shown),
        artifacts=tuple(reports.artifacts(conn, number)),
        tags=tuple(reports.tags(conn, number)),
        notes=tuple(reports.notes(conn, number)),
        messages=worker_messages(conn, number),
        job=spec.job,
        environment=spec.environment,
        forecast=spec.plan.get("forecast"),
        process=spec.plan.get("process"),
        imported=tuple(event for event in events if event.kind == _IMPORTED),
        data=data_line(worker_reports.data_digests(conn, number)),
        quality=tuple(quality_rows(home.runs / run.folder / "results", relations=_RELATIONS)),
        curves_left_out=0 if only is not None else len(curves) - len(read),
        metrics_left_out=len(metrics) - len(shown),
        device=str(devices[-1]) if devices and devices[-1] else None,
        disk=spec.plan.get("disk"),
        skipped=tuple(spec.plan.get("skipped") or ()),
    )


def _number(value: Any) -> float | None:
    """An imported job may have anything there."""
    return float(value) if is_metric(value) else None


def worker_messages(conn: Connection, number: int) -> tuple[tuple[float, str], ...]:
    """The newest messages of the worker, and the number of earlier ones."""
    messages = [
        (event.at, str(event.body.get("text"))) for event in reports.events(conn, number, kinds=(NOTE,))
    ]
    before = len(messages) - _MOST_MESSAGES
    if before <= 0:
        return tuple(messages)
    return ((messages[before][0], f"({before:,} earlier messages)"), *messages[before:])


def option_rows(run: Run, reported: list[Option], choices: list[dict[str, Any]]) -> list[OptionRow]:
    """The options as the newest attempt reported them, with who chose them and why rules changed them."""
    newest = max((option.attempt for option in reported), default=0)
    by_name = {option.name: option for option in reported if option.attempt == newest}
    chosen = {choice["option"]: choice for choice in choices}
    # Defaults are shown once the worker has reported them.
    named = {name for name, choice in chosen.items() if choice["chosen_by"] != "default"}
    return [
        _option_row(name, by_name.get(name), chosen.get(name), run) for name in sorted({*by_name, *named})
    ]


def _option_row(name: str, option: Option | None, choice: dict[str, Any] | None, run: Run) -> OptionRow:
    requested = option.requested if option else None
    if choice:
        requested = None if choice["requested"] is None else value_text(choice["requested"])
    applied = option.applied if option else None
    reasons = [option.reason if option else None]
    if choice is not None and (is_settled := _is_settled(name, choice, run)):
        reasons.insert(0, choice["reason"])
    if option is None and choice is not None:
        if is_settled:
            applied = value_text(choice["applied"])
        elif choice["requested"] is False or choice["requested"] == "off":
            applied = "off"  # also where the worker ended before it reported: nothing turned it on
        elif run.ended:
            reasons.append("the worker did not report it")
    effect = option.effect if option else effect_of(name) if name in OPTIONS else ""
    by = option.chosen_by if option and option.chosen_by else choice["chosen_by"] if choice else ""
    texts = (part for reason in reasons if reason for part in reason.split("; "))
    return OptionRow(name, requested, applied, effect, by, "; ".join(dict.fromkeys(texts)))


def _is_settled(name: str, choice: dict[str, Any], run: Run) -> bool:
    """Whether only the plan settles the option: a rule or the planner set it, or no worker reports it."""
    by_planner = choice["chosen_by"] == "planner"
    return bool(choice.get("source")) or by_planner or is_command(run.workload) or name not in OPTIONS
