"""Every file name in a run's folder stands here and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kgops.jobs.files import sync_folder


class RunFolder(NamedTuple):
    """`runs/0042-train-nations`: enough to understand the run ten years later."""

    path: Path

    @property
    def job(self) -> Path:
        return self.path / "job.toml"

    @property
    def plan(self) -> Path:
        """The resolved job and what was decided for it; the supervisor reads this."""
        return self.path / "plan.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def private(self) -> Path:
        """Environment and command with their secrets; removed as soon as the run has ended."""
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
        """Somebody asked for a stop, and how long to wait: a slot."""
        return self.path / "stop.slot"

    @property
    def outcome(self) -> Path:
        return self.path / "outcome.slot"

    @property
    def record(self) -> Path:
        """Of an imported run: the row and all that hangs on it, as `kgops export` writes them."""
        return self.path / "record.json"

    @property
    def origins(self) -> Path:
        """Of a folder that was copied from another home: where from, each time."""
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
        """0 before the first. Numbered from the folder: a power cut can take back a row."""
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
        """Which process the worker is; on disk before any of its code runs."""
        return self.path / "identity.json"

    @property
    def begun(self) -> Path:
        """Exists once the worker's own code may have run."""
        return self.path / "begun"

    @property
    def asked_to_stop(self) -> Path:
        """Exists once a stop was sent: an exit after that is no success of its own."""
        return self.path / "asked-to-stop"

    def reserve_marks(self) -> None:
        """Takes the room of both marks beforehand: on a full disk a file can be renamed and none can be made."""
        for mark in (self.begun, self.asked_to_stop):
            _reserved(mark).touch(0o600)

    def mark_begun(self) -> None:
        _set(self.begun)

    def mark_asked_to_stop(self) -> None:
        _set(self.asked_to_stop)

    @property
    def exit(self) -> Path:
        """How the worker left, written by its gate."""
        return self.path / "exit.slot"

    @property
    def closed(self) -> Path:
        """What its end meant, for whoever has to rebuild the database."""
        return self.path / "closed.json"


def _reserved(mark: Path) -> Path:
    return mark.with_name(f".{mark.name}.reserved")


def _set(mark: Path) -> None:
    try:
        _reserved(mark).rename(mark)
    except FileNotFoundError:  # set already, or removed by whoever owns the folder too
        mark.touch(0o600)
    sync_folder(mark.parent)  # a power cut must not take it back while it keeps what came of it


def folder_name(number: int, workload: str, label: str) -> str:
    """Letters, digits and dashes only, whatever the label or an imported run's workload holds."""
    kind, slug = _slug(workload) or "run", _slug(label)
    return f"{number:04d}-{kind}" + (f"-{slug}" if slug and slug != kind else "")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")


def number_of(name: str) -> int | None:
    head = name.partition("-")[0]
    return int(head) if re.fullmatch(r"[0-9]{4,12}", head) else None
