"""How a worker speaks: events to its file, or to stdout where a person runs it by hand."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from kgops.jobs import events
from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, combined_option
from kgops.jobs.option_lines import option_line


class Reporter:
    """Appends one line per event; a line is one write, so that a reader never sees half of one mixed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.options: dict[str, dict[str, Any]] = {}  # as last told of, for the file of results
        self.earlier: dict[str, dict[str, Any]] = {}  # what the stage before this one told of its options
        self.stepped_down: dict[
            str, Any
        ] = {}  # what was asked for of options that the OOM fallbacks has changed
        self.asked: Mapping[str, Any] | None = None  # the job's options, before the OOM fallbacks changed any
        self.libraries_mib: float | None = None  # of host memory, before any data was read
        self._logged: dict[str, str] = {}  # by option, of this stage
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
        """Before a checkpoint or result becomes durable, what was said of it must be."""
        if self._fd != sys.stdout.fileno():
            os.fsync(self._fd)

    def started(self, **fields: Any) -> None:
        self.send(
            events.STARTED, attempt=int(os.environ.get("KGOPS_ATTEMPT", "1")), pid=os.getpid(), **fields
        )
        if self.libraries_mib is not None:
            self.memory(libraries=self.libraries_mib)

    def option(
        self, name: str, requested: Any, applied: Any, reason: str | None, chosen_by: str | None = None
    ) -> None:
        if name in self.stepped_down:
            requested, chosen_by = self.stepped_down[name], "fallbacks"
            reason = "; ".join(filter(None, ["an earlier attempt ran out of memory", reason]))
        self._log(name, option_line(name, requested, applied, reason))
        if name in self.earlier:
            # A stage is not always told of every option, so only the first one knows what was asked for.
            requested = self.earlier[name]["asked"]
            before = self.earlier[name]
            applied, reason = combined_option(
                Applied(name, before["applied"], before["reason"]), Applied(name, applied, reason)
            )
        self.options[name] = {"asked": requested, "applied": applied, "reason": reason}
        fields = {"reason": reason, "chosen_by": chosen_by}
        known = {field: value for field, value in fields.items() if value is not None}
        self.send(events.OPTION, name=name, requested=requested, applied=applied, **known)

    def _log(self, name: str, line: str) -> None:
        """For whoever searches logs, unless stdout has the event itself; the same again is not repeated."""
        if "KGOPS_EVENTS" not in os.environ or self._logged.get(name) == line:
            return
        self._logged[name] = line
        print(f"TracIn: {line}" if self.earlier else line, flush=True)

    def next_stage(self) -> None:
        """What is told of an option from here on stands beside what was told before, not in its place."""
        self.earlier = dict(self.options)
        self._logged = {}

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        self.send(events.PROGRESS, phase=phase, done=done, total=total, unit=unit, rate=rate)

    def metric(self, name: str, value: float, step: int) -> None:
        self.send(events.METRIC, name=name, value=value, step=step)

    def memory(self, **mib: float) -> None:
        self.send(events.MEMORY, mib=mib)

    def predicted(self, mib: float, *, of: str, by: str, operator: str, step_mib: float) -> None:
        """Before the work begins. `operator`: at whose time the most is held; `step_mib`: of a training step alone."""
        self.send(events.PREDICTED, mib=mib, of=of, by=by, operator=operator, step_mib=step_mib)

    def artifact(self, path: Path, kind: str) -> None:
        self.sync()
        self.send(
            events.ARTIFACT,
            path=str(path.relative_to(self._folder)),
            kind=kind,
            bytes=path.stat().st_size,
        )

    def note(self, text: str) -> None:
        self.send(events.NOTE, text=text)

    def result(self, metrics: dict[str, float]) -> None:
        self.send(events.RESULT, metrics=metrics)

    def out_of_memory(self, detail: str) -> None:
        self.send(events.OUT_OF_MEMORY, detail=detail)

    def failed(self, reason: str) -> None:
        self.send(events.FAILED, reason=reason)


def tell_applied(job: Job, found: Iterable[Applied], report: Reporter, but: Collection[str] = ()) -> None:
    """Each option as the device takes it, beside what was asked; `but` those that somebody else speaks of."""
    for option, value, reason in found:
        if option not in but:
            report.option(option, job.options.get(option, _UNASKED.get(option, value)), value, reason)


# What stands for an option that nobody named.
_UNASKED = {
    "precision": "fp32",
    "gram_precision": "fp32",
    **dict.fromkeys(("scale_gradients", "optimizer_kernel", "filtering", "block"), "auto"),
}
