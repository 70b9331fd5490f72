"""Imports a worker's events and log metrics into the database, exactly once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kgops.jobs import events
from kgops.jobs.files import size_of
from kgops.jobs.text import from_bytes
from kgops.supervisor import worker_reports
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.worker_reports import CPU_LIMIT_S, LogPatterns, TooSlow, cpu_limit, test_triple_from
from storage import attempts as store
from storage import reports, runs, series
from storage.database import Connection
from storage.reports import Artifact, Option
from storage.series import Point

MOST_NAMES = 1000  # of a run's curves: a name with a counter in it would make a curve of each point
_LONGEST_NAME = 200
_LONGEST_UNIT = 40
_PER_S = "_per_s"  # suffix of a rate curve's name, after its unit
_DISABLED = "gave_up"  # key in a note's body: what was disabled
_LEFT_OUT = "left_out"  # key in a note's body: the first name that was left out
_TORCH_RESERVED = ("reserved_mib", "peak_reserved_mib")  # curves of a worker on a GPU
_LAST_CPU_LIMIT_S = 30.0  # of CPU time for the rest of an ended run's log


class Intake:
    """Reads a run's events and, with log patterns, its log; one transaction per call."""

    def __init__(self, conn: Connection, run: int, folder: RunFolder, patterns: LogPatterns) -> None:
        self._conn = conn
        self._run = run
        self._folder = folder
        self._patterns = patterns
        self._offsets = store.Offsets()
        self._disable_patterns = False  # with the next commit
        # Of the chunk that is read:
        self._batch = store.Batch()
        self._attempt = 0
        self._now = 0.0
        self._points: dict[str, int] = {}  # as _points_by_curve, with those of the batch
        self._left_out: str | None = None  # the first name above the limit
        self._has_noted_names = False
        self.reserved: Point | None = None  # last change of the memory that the worker's torch reserves
        self.most_reserved_mib: float | None = None
        # Points of every curve: the next step for metrics whose lines name none, also after an adoption.
        self._points_by_curve: dict[str, int] = {}
        self._use_patterns = bool(patterns) and not _is_noted(conn, run, _DISABLED)
        self.reload_state()

    def use(self, conn: Connection) -> None:
        """Switches to another connection. The old one's last write may be missing."""
        self._conn = conn
        self.reload_state()

    @property
    def log_read(self) -> int | None:
        """How much of the log was searched for metrics; None where nobody looks for any."""
        return self._offsets.log if self._use_patterns else None

    def has_news(self) -> bool:
        """Whether a file has changed its size; cheap enough for every tick."""
        return size_of(self._folder.events) != self._offsets.events or (
            self._use_patterns and size_of(self._folder.log) != self._offsets.log
        )

    def take(self, attempt: int, samples: Sequence[Point] = (), *, final: bool = False) -> bool:
        """Records one chunk of each file, and the supervisor's samples; True if there may be more.

        After `final` the files must not be written again.
        """
        batch = self._batch = store.Batch()
        self._attempt, self._now, self._left_out = attempt, time.time(), None
        self._points = dict(self._points_by_curve)
        begin = self._start_offset(self._folder.events, self._offsets.events)
        lines, events_at = worker_reports.read_lines(self._folder.events, begin, final=final)
        for line in lines:
            self._read_event(line)
        log_at = self._read_log(final=final) if self._use_patterns else self._offsets.log
        batch.points += samples
        if self._left_out is not None and not self._has_noted_names:
            self._note(_names_left_out(self._left_out))
        upto = store.Offsets(events_at, log_at)
        more = upto != self._offsets
        if batch or more:
            store.write_batch(self._conn, self._run, attempt, batch, upto)
            self._offsets, self._points_by_curve = upto, self._points
            self._use_patterns = self._use_patterns and not self._disable_patterns
            self._has_noted_names = self._has_noted_names or self._left_out is not None
        return more

    def _note(self, body: dict[str, str]) -> None:
        self._batch.events.append((self._now, events.NOTE, body))

    def _start_offset(self, file: Path, at: int) -> int:
        """The last offset, or the end of a file that its writer or a power cut truncated: nothing may be counted
        twice."""
        size = size_of(file)
        if size >= at:
            return at
        text = f"{file.name} shrank from {at:,} to {size:,} bytes: lines written in between may be missing"
        self._note({"text": text})
        return size

    def _read_log(self, *, final: bool) -> int:
        """Matches the patterns; returns the offset reached."""
        begin = self._start_offset(self._folder.log, self._offsets.log)
        lines, upto = worker_reports.read_lines(self._folder.log, begin, final=final)
        try:
            if not self._disable_patterns:
                with cpu_limit():
                    for line in lines:
                        if line:
                            self._read_log_line(from_bytes(line))
        except TooSlow:
            self._disable_patterns = True
        if self._disable_patterns:
            text = (
                f"log patterns are disabled: matching 1 MiB of log took more than {CPU_LIMIT_S:g} s of CPU time;"
                " metrics and progress from the log end here"
            )
            self._note({"text": text, _DISABLED: "patterns"})
        return upto

    def reload_state(self) -> None:
        """Loads offsets and counts from the database: at the start and after a failed transaction."""
        self._offsets = store.offsets(self._conn, self._run)
        curves = series.of_run(self._conn, self._run)
        self._points_by_curve = {curve.name: curve.n for curve in curves}
        self._has_noted_names = len(curves) >= MOST_NAMES and _is_noted(self._conn, self._run, _LEFT_OUT)
        self._rates = {
            curve.name: (curve.n, curve.last_at or 0.0) for curve in curves if curve.name.endswith(_PER_S)
        }

    def take_all(self, attempt: int) -> None:
        """All that an ended worker has written."""
        begun = time.process_time()
        while self.take(attempt, final=True):
            self._disable_patterns = self._disable_patterns or time.process_time() - begun > _LAST_CPU_LIMIT_S
        if (trouble := worker_reports.trouble(self._folder.events)) is not None:
            self._note_once(
                attempt, f"events.jsonl cannot be read: {trouble}; the events in it are not recorded"
            )
        if self._use_patterns and (unused := self._unused_patterns()):
            self._note_once(attempt, f"nothing in the log is what {' and '.join(unused)} asks for")
        if (text := self._patterns.no_number) is not None:
            self._note_once(attempt, f"--metric-regex found {text!r:.60} in the log, which is no number")

    def _unused_patterns(self) -> list[str]:
        run = runs.get(self._conn, self._run)
        found = {
            "--progress-regex": run is None or run.done is not None,
            "--metric-regex": run is None or run.metric is not None,
        }
        asked = self._patterns.asked
        return [flag for flag, is_found in found.items() if flag in asked and not is_found]

    def _note_once(self, attempt: int, text: str) -> None:
        if all(
            event.body.get("text") != text
            for event in reports.events(self._conn, self._run, kinds=(events.NOTE,))
        ):
            reports.add_event(self._conn, self._run, attempt, time.time(), events.NOTE, {"text": text})

    def _read_event(self, line: bytes | None) -> None:
        batch = self._batch
        if line is None:
            text = "(part of a line longer than 1 MiB left out)"
            batch.events.append((self._now, events.LOG, {"text": text}))
            return
        if not line.strip():
            return
        event = events.read(line, self._now)
        fields = event.fields
        if event.kind == events.METRIC:
            value = None if fields.get("value") is None else float(fields["value"])
            step = _float_or_none(fields.get("step"))
            self._add_metric(fields["name"][:_LONGEST_NAME], value, step, event.at)
        elif event.kind == events.MEMORY:
            batch.points += [
                Point(curve, event.at, float(mib), event.at)
                for name, mib in fields["mib"].items()
                if events.is_metric(mib) and self._admits(curve := f"{name[:_LONGEST_NAME]}_mib")
            ]
            self.reserved = next(
                (point for point in reversed(batch.points) if point.name == "reserved_mib"), self.reserved
            )
            torchs = [p.value for p in batch.points if p.name in _TORCH_RESERVED and p.value is not None]
            self.most_reserved_mib = max([*torchs, self.most_reserved_mib or 0.0]) or None
        elif event.kind == events.PROGRESS:
            batch.progress = store.Progress(
                phase=fields.get("phase"),
                done=_if_progress(fields.get("done")),
                total=_if_progress(fields.get("total")) or None,
                rate=_float_or_none(fields.get("rate")),
                unit=fields.get("unit"),
                at=event.at,
            )
            self._record_rate(event)
        elif event.kind == events.ATTRIBUTION and (test_triple := test_triple_from(fields)) is not None:
            batch.test_triples.append(test_triple)
        else:
            batch.events.append((event.at, event.kind, fields))
        if event.kind == events.OPTION:
            from kgops.workloads.catalog import effect_of  # a command of one's own reports no options

            batch.options.append(
                Option(
                    attempt=self._attempt,
                    name=fields["name"],
                    effect=effect_of(fields["name"]),
                    requested=_display(fields.get("requested")),
                    applied=_display(fields.get("applied")),
                    reason=fields.get("reason"),
                    chosen_by=_display(fields.get("chosen_by")),
                )
            )
        elif event.kind == events.ARTIFACT and _is_inside_run(fields["path"]):
            size = fields.get("bytes")
            batch.artifacts.append(
                Artifact(
                    fields["path"],
                    fields.get("kind") or "file",
                    fields.get("sha256"),
                    None if size is None or not 0 <= size < 1 << 60 else int(size),
                    event.at,
                )
            )

    def _record_rate(self, event: events.Event) -> None:
        """One point a second; the interval doubles every thousand points, so months give a few thousand points."""
        rate = _float_or_none(event.fields.get("rate"))
        name = f"{(event.fields.get('unit') or 'it')[:_LONGEST_UNIT]}{_PER_S}"
        if rate is None or not self._admits(name):
            return
        n, last_at = self._rates.get(name, (0, 0.0))
        if abs(event.at - last_at) >= 2 ** (n // 1000):
            self._batch.points.append(Point(name, event.at, rate, event.at))
            self._rates[name] = (n + 1, event.at)

    def _read_log_line(self, line: str) -> None:
        progress = self._patterns.progress(line)
        if progress is not None:
            done, total = _if_progress(progress.done), _if_progress(progress.total) or None
            self._batch.progress = store.Progress(None, done, total, None, None, self._now)
        for name, value, step in self._patterns.metrics(line):
            self._add_metric(name, value, step, self._now)

    def _add_metric(self, name: str, value: float | None, step: float | None, at: float) -> None:
        """Without a step, at the place in its curve."""
        if self._admits(name):
            self._points[name] += 1
            self._batch.points.append(Point(name, self._points[name] if step is None else step, value, at))
            self._batch.metric = (name, value)

    def _admits(self, name: str) -> bool:
        """Whether the run has this curve, or may get one more."""
        if name not in self._points and len(self._points) >= MOST_NAMES:
            self._left_out = self._left_out or name
            return False
        self._points.setdefault(name, 0)
        return True


def _names_left_out(first: str) -> dict[str, str]:
    text = (
        f"a run keeps its first {MOST_NAMES:,} metric names: {first!r:.60} and later ones are in no curve, only in the"
        " files of its folder"
    )
    return {"text": text, _LEFT_OUT: first}


def _is_noted(conn: Connection, run: int, key: str) -> bool:
    return any(key in event.body for event in reports.events(conn, run, kinds=(events.NOTE,)))


def _float_or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def _if_progress(value: Any) -> float | None:
    """None for what no work can be: a bar of it would be drawn backwards."""
    return None if value is None or value < 0 else float(value)


def _display(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return {True: "on", False: "off"}.get(value) if isinstance(value, bool) else str(value)


def _is_inside_run(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts
