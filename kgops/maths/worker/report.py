"""Writes a worker's events as JSON lines to its event file, or to stdout when run by hand."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from kgops.jobs import events
from kgops.jobs.data_digests import changes
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied
from kgops.jobs.option_reading import option_line
from kgops.jobs.text import one_line
from kgops.workloads.pipeline.job import combined_option


class Report(Protocol):
    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None: ...

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None: ...

    def artifact(self, path: Path, kind: str) -> None: ...

    def note(self, text: str) -> None: ...


class Progress:
    """Limits progress reports to two a second and the last; the rate is since the start."""

    def __init__(self, report: Report, phase: str, unit: str, *, done: int = 0) -> None:
        self._report, self._phase, self._unit = report, phase, unit
        self._first = done
        self._started = self._said = time.monotonic()

    def __call__(self, done: float, total: float) -> None:
        now = time.monotonic()
        if done < total and now - self._said < _PROGRESS_EVERY_S:
            return
        self._said = now
        rate = (done - self._first) / (now - self._started) if now > self._started else None
        self._report.progress(self._phase, done, total, self._unit, rate)


_LONGEST_NOTE = 2000  # characters of a line in the log
_LOSS_EVERY_S = 10.0
_PROGRESS_EVERY_S = 0.5


class Reporter:
    """Appends one line per event; each line is one write, so lines of several processes never mix."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.options: dict[str, dict[str, Any]] = {}  # as last reported, for config.json
        self.earlier: dict[str, dict[str, Any]] = {}  # the options that the previous stage reported
        self.requested_before_fallbacks: dict[
            str, Any
        ] = {}  # requests for options that OOM fallbacks changed
        self.requested_options: Mapping[str, Any] | None = None  # the job's options before OOM fallbacks
        self.libraries_mib: float | None = None  # of host memory, before any data was read
        self._logged: dict[str, str] = {}  # by option, of this stage
        self._next_loss = 0.0  # when the log gets another loss; it gets every validation
        self._read_data = False  # whether its digests were reported
        self._reserved = 0  # bytes of the GPU, as last reported
        path = os.environ.get("KGOPS_EVENTS")
        self._fd = (
            os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if path
            else sys.stdout.fileno()
        )

    def send(self, kind: str, /, **fields: Any) -> None:
        line = events.write(kind, time.time(), **fields)
        while line:
            line = line[os.write(self._fd, line) :]

    def sync(self) -> None:
        """Events must be durable before the checkpoint or result that they announce."""
        if self._fd != sys.stdout.fileno():
            os.fsync(self._fd)

    def started(self, **fields: Any) -> None:
        self.send(
            events.STARTED, attempt=int(os.environ.get("KGOPS_ATTEMPT", "1")), pid=os.getpid(), **fields
        )
        if self.libraries_mib is not None:
            self.memory(libraries=self.libraries_mib)

    def graph(self, notes: Iterable[str], digests: Mapping[str, str]) -> None:
        """Notes on the files that the worker read, and digests. A pipeline reports only its first stage's digests."""
        for note in notes:
            self.note(note)
        if self._read_data:
            return
        self._read_data = True
        self.send(events.DATA, **digests)
        before = json.loads(os.environ.get("KGOPS_DATA_BEFORE") or "{}")
        for change in changes(before.get("digests", {}), digests):
            self.note(f"the data have changed since run {before['run']}, which this run repeats: {change}.")

    def option(
        self, name: str, requested: Any, applied: Any, reason: str | None, chosen_by: str | None = None
    ) -> None:
        if name in self.requested_before_fallbacks:
            requested, chosen_by = self.requested_before_fallbacks[name], "OOM fallback"
            reason = "; ".join(filter(None, ["an earlier attempt ran out of memory", reason]))
        self._log(name, option_line(name, requested, applied, reason))
        if name in self.earlier:
            # A later stage does not get every option, so the first one has the request.
            requested = self.earlier[name]["requested"]
            before = self.earlier[name]
            applied, reason = combined_option(
                Applied(name, before["applied"], before["reason"]), Applied(name, applied, reason)
            )
        self.options[name] = {"requested": requested, "applied": applied, "reason": reason}
        fields = {"reason": reason, "chosen_by": chosen_by}
        known = {field: value for field, value in fields.items() if value is not None}
        self.send(events.OPTION, name=name, requested=requested, applied=applied, **known)

    def _log(self, name: str, line: str) -> None:
        """Logs an option line; does not repeat an equal one."""
        if not self._has_log or self._logged.get(name) == line:
            return
        self._logged[name] = line
        print(f"TracIn: {line}" if self.earlier else line, flush=True)

    @property
    def _has_log(self) -> bool:
        """Unless stdout has the events."""
        return "KGOPS_EVENTS" in os.environ

    def next_stage(self) -> None:
        """Options reported from here on are added to the previous stage's options."""
        self.earlier = dict(self.options)
        self._logged = {}

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        self.send(events.PROGRESS, phase=phase, done=done, total=total, unit=unit, rate=rate)
        is_on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if is_on_gpu and (reserved := torch.cuda.memory_reserved()) != self._reserved:
            # The rest of the process's GPU memory is its CUDA context. The supervisor learns it.
            self._reserved = reserved
            self.memory(reserved=reserved / 2**20)

    def metric(self, name: str, value: float, step: int) -> None:
        self.send(events.METRIC, name=name, value=value, step=step)
        due = time.monotonic() >= self._next_loss if name == "loss" else name in ("valid_mrr", "valid_mae")
        if due and self._has_log:
            print(f"epoch {step}: {name} {value:.4g}", flush=True)
            self._next_loss = time.monotonic() + _LOSS_EVERY_S

    def memory(self, **mib: float) -> None:
        self.send(events.MEMORY, mib=mib)

    def artifact(self, path: Path, kind: str) -> None:
        self.sync()
        self.send(
            events.ARTIFACT,
            path=str(path.relative_to(self._folder)),
            kind=kind,
            bytes=path.stat().st_size,
        )

    def note(self, text: str) -> None:
        """In the log as well, which a person who follows the run reads."""
        self.send(events.NOTE, text=text)
        if self._has_log:
            print(f"note: {one_line(text, _LONGEST_NOTE)}", flush=True)

    def result(self, metrics: dict[str, float]) -> None:
        self.send(events.RESULT, metrics=metrics)

    def out_of_memory(self, detail: str) -> None:
        self.send(events.OUT_OF_MEMORY, detail=detail)

    def failed(self, reason: str) -> None:
        self.send(events.FAILED, reason=reason)


def report_applied(
    job: Job, applied_options: Iterable[Applied], report: Reporter, except_for: Collection[str] = ()
) -> None:
    """Reports each option as requested and as applied on the device, except those in `except_for`."""
    for option, value, reason in applied_options:
        if option not in except_for:
            report.option(option, job.options.get(option, _DEFAULTS.get(option, value)), value, reason)


# Requested values of options that nobody set.
_DEFAULTS = {
    "precision": "fp32",
    **dict.fromkeys(("scale_gradients", "optimizer_kernel", "filtering", "block"), "auto"),
}
