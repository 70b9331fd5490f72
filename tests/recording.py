"""What a training says, recorded for a test or by its worker, and ways to stop or kill it."""

import json
from pathlib import Path
from typing import Any

import torch


class Recorder:
    """Takes down what training says; `die_at` raises after that many batches, like a kill."""

    def __init__(self, die_at: int | None = None) -> None:
        self.options: dict[str, tuple[Any, Any, str | None]] = {}
        self.metrics: list[tuple[str, float, int]] = []
        self.notes: list[str] = []
        self.artifacts: list[tuple[Path, str]] = []
        self.mib: dict[str, float] = {}
        self.done: list[float] = []
        self.total = 0.0

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        self.options[name] = (requested, applied, reason)

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        self.done.append(done / total)
        self.total = total

    def metric(self, name: str, value: float, step: int) -> None:
        self.metrics.append((name, value, step))

    def memory(self, **mib: float) -> None:
        self.mib |= mib

    def artifact(self, path: Path, kind: str) -> None:
        self.artifacts.append((path, kind))

    def note(self, text: str) -> None:
        self.notes.append(text)


class Killed(BaseException):
    pass


class Stop:
    """Asks to stop, or dies, the n-th time it is asked."""

    def __init__(self, nth: int, die: bool = False) -> None:
        self.left, self.die = nth, die

    def __call__(self) -> bool:
        self.left -= 1
        if self.left == 0 and self.die:
            raise Killed
        return self.left <= 0


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    """What a worker told of into the folder of its run."""
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def assert_identical(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
