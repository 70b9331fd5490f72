"""Names every file in a run's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kgops.jobs.files import sync_folder


class RunFolder(NamedTuple):
    """A run's folder, such as `runs/0042-train-nations`."""

    path: Path

    @property
    def job(self) -> Path:
        return self.path / "job.toml"

    @property
    def plan(self) -> Path:
        """The resolved plan, which the supervisor reads."""
        return self.path / "plan.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def private(self) -> Path:
        """Unmasked environment and command; removed when the run ends."""
        return self.path / "private.json"

    @property
    def log(self) -> Path:
        return self.path / "worker.log"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def supervisor_lock(self) -> Path:
        return self.path / "supervisor.lock"

    @property
    def worker_lock(self) -> Path:
        return self.path / "worker.lock"

    @property
    def stop(self) -> Path:
        """Slot with the stop request and its grace."""
        return self.path / "stop.slot"

    @property
    def outcome(self) -> Path:
        return self.path / "outcome.slot"

    @property
    def record(self) -> Path:
        """Of an imported run: its rows, in the format of `kgops export`."""
        return self.path / "record.json"

    @property
    def origins(self) -> Path:
        """Of a folder copied from another home: each import's origin."""
        return self.path / "imported.json"

    @property
    def results(self) -> Path:
        """The output folder as the group's scripts write it: models, metrics and `checkpoints/`."""
        return self.path / "results"

    @property
    def manifest(self) -> Path:
        return self.results / "manifest.json"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(self.attempts / str(number))

    def last_attempt(self) -> int:
        """Highest attempt number, 0 if none. From the folder: a power cut can undo a row."""
        if not self.attempts.is_dir():
            return 0
        return max(
            (int(p.name) for p in self.attempts.iterdir() if re.fullmatch(r"[1-9][0-9]{0,5}", p.name)),
            default=0,
        )


class AttemptFolder(NamedTuple):
    path: Path

    @property
    def identity(self) -> Path:
        """The gate's process identity; on disk before the worker runs."""
        return self.path / "identity.json"

    @property
    def begun(self) -> Path:
        """Exists once the worker's code may have run."""
        return self.path / "begun"

    @property
    def asked_to_stop(self) -> Path:
        """Exists once a stop was sent: exit code 0 after that is not a success."""
        return self.path / "asked-to-stop"

    def reserve_marks(self) -> None:
        """Creates both marks beforehand: on a full disk a file can be renamed but not created."""
        for mark in (self.begun, self.asked_to_stop):
            _reserved(mark).touch(0o600)

    def mark_begun(self) -> None:
        _set(self.begun)

    def mark_asked_to_stop(self) -> None:
        _set(self.asked_to_stop)

    @property
    def exit(self) -> Path:
        """The worker's exit, written by its gate."""
        return self.path / "exit.slot"

    @property
    def closed(self) -> Path:
        """The attempt's outcome, to restore the database from."""
        return self.path / "closed.json"


def _reserved(mark: Path) -> Path:
    return mark.with_name(f".{mark.name}.reserved")


def _set(mark: Path) -> None:
    try:
        _reserved(mark).rename(mark)
    except FileNotFoundError:  # set already, or removed by the worker
        mark.touch(0o600)
    sync_folder(mark.parent)  # a power cut must not undo the mark but keep its effects


def folder_name(number: int, workload: str, label: str) -> str:
    """Letters, digits and dashes only, for any label and workload."""
    kind, slug = _slug(workload) or "run", _slug(label)
    return f"{number:04d}-{kind}" + (f"-{slug}" if slug and slug != kind else "")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def number_of(name: str) -> int | None:
    head = name.partition("-")[0]
    return int(head) if re.fullmatch(r"[0-9]{4,12}", head) else None
