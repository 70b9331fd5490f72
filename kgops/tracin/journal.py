"""Finished parts of a TracIn run, kept for a resume."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, Interrupted
from kgops.jobs.files import read_json, sync_folder, write_durably, write_json
from kgops.tracin.retraining import Outcome, Retrain
from kgops.training.checkpoints import read_saved
from kgops.training.reporter import Progress, Report

__all__ = [
    "FinishedTest",
    "FinishedTests",
    "Journal",
    "Retraining",
    "open_finished_tests",
]


@dataclass(frozen=True)
class FinishedTest:
    """Influences on one test triple: training rows and their scores, strongest first.

    `candidates`: number of training triples scored; `trouble`: why none was.
    """

    number: int
    rows: torch.Tensor
    scores: torch.Tensor
    candidates: int
    trouble: str | None = None


class FinishedTests:
    """The finished test triples of a run, one file for each tile of tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._files: dict[int, Path] = {}
        self._rows: dict[int, int] = {}
        for path in sorted(folder.glob("*.pt")):
            try:
                self._note(path, _read(path))
            except BadInput:
                path.unlink()  # truncated; its tests are scored again
        self._open: tuple[Path, dict[int, FinishedTest]] | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._files

    def __len__(self) -> int:
        return len(self._files)

    def add(self, tests: list[FinishedTest]) -> None:
        path = self._folder / f"{tests[0].number:08}.pt"
        body = io.BytesIO()
        torch.save(_packed(tests), body)
        write_durably(path, body.getvalue())
        self._note(path, tests)

    @property
    def rows(self) -> int:
        """Training rows of all tests."""
        return sum(self._rows.values())

    def _note(self, path: Path, tests: Sequence[FinishedTest]) -> None:
        for test in tests:
            self._files[test.number], self._rows[test.number] = path, len(test.rows)

    def read(self, number: int) -> FinishedTest:
        path = self._files[number]
        if self._open is None or self._open[0] != path:
            self._open = path, {test.number: test for test in _read(path)}
        return self._open[1][number]

    def __iter__(self) -> Iterator[FinishedTest]:
        """By number."""
        return (self.read(number) for number in sorted(self._files))


def open_finished_tests(meaning: dict[str, Any], folder: Path) -> tuple[FinishedTests, bool]:
    """The finished tests in `folder`, and whether others were dropped because their scores mean something else: one
    result may not mix two kinds of scores."""
    meaning_file = folder.with_suffix(".json")
    dropped = folder.exists() and read_json(meaning_file) not in (None, meaning)
    if dropped:
        shutil.rmtree(folder)
    write_json(meaning_file, meaning)
    return FinishedTests(folder), dropped


def _packed(tests: Sequence[FinishedTest]) -> dict[str, Any]:
    """A few large tensors: thousands of small ones cost more time to write and read than their content."""
    scored = [test.scores for test in tests if len(test.scores)] or [torch.empty(0)]
    return {
        "each": [(test.number, len(test.rows), test.candidates, test.trouble) for test in tests],
        "rows": torch.cat([test.rows for test in tests]),
        "scores": torch.cat(scored),
    }


def _read(path: Path) -> list[FinishedTest]:
    try:
        saved = read_saved(path)
        if (saved["rows"].dtype, saved["rows"].dim(), saved["scores"].dim()) != (torch.long, 1, 1):
            raise ValueError("other tensors")
        sizes = [size for _, size, _, _ in saved["each"]]
        slices = zip(saved["each"], saved["rows"].split(sizes), saved["scores"].split(sizes), strict=True)
        return [
            FinishedTest(int(number), rows, scores, int(candidates), trouble)
            for (number, _, candidates, trouble), rows, scores in slices
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise BadInput(f"{path} is no file of finished test triples.") from error


@dataclass(frozen=True)
class Retraining:
    """A retraining on all training triples but `deleted`, whose rows are in ascending order."""

    deleted: tuple[int, ...]
    seed: int
    name: str  # for people who read the journal


class Journal:
    """Retrainings of one training set, measured on the test triples, kept in the file at `path`.

    A line's key is a digest of all that determines its outcomes: data, tests, settings, deleted triples and seed. So
    one file can serve several runs.
    """

    def __init__(
        self,
        path: Path,
        train: torch.Tensor,
        tests: torch.Tensor,
        retrain: Retrain,
        *,
        report: Report | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.path, self.train, self.retrain = path, train, retrain
        self.report, self.stop_requested = report, stop_requested
        self._tests = len(tests)
        about = {"train": train.tolist(), "tests": tests.tolist(), **retrain.about}
        self._about = _digest(about)
        self._torn = False
        self._done = self._read()

    def outcomes(self, wanted: Sequence[Retraining]) -> list[list[Outcome]]:
        """One list for each of `wanted`, in order. Raises `Interrupted` on a stop request; finished retrainings are
        kept."""
        keys = [self._key(one) for one in wanted]
        missing = {key: one for key, one in zip(keys, wanted, strict=True) if key not in self._done}
        total = len(set(keys))
        progress = None if self.report is None else Progress(self.report, "retrain", "retrainings")
        for n, (key, one) in enumerate(missing.items(), total - len(missing)):
            if self.stop_requested():
                raise Interrupted(
                    f"stopped after {n:,} of {total:,} retrainings.", hint="resume the run to go on."
                )
            self._done[key] = self._one(key, one, n, total, progress)
            if progress is not None:
                progress(n + 1, total)
        return [self._done[key] for key in keys]

    def _one(self, key: str, one: Retraining, n: int, total: int, progress: Progress | None) -> list[Outcome]:
        kept = torch.ones(len(self.train), dtype=torch.bool)
        kept[list(one.deleted)] = False

        def on_progress(share: float) -> None:
            if progress is not None and share < 1:
                progress(n + share, total)

        started = time.monotonic()
        outcomes = list(self.retrain(self.train[kept], one.seed, on_progress))
        if len(outcomes) != self._tests:
            raise ValueError(f"a retraining gave {len(outcomes)} outcomes for {self._tests} tests")
        self._append(
            {
                "key": key,
                "name": one.name,
                "seed": one.seed,
                "deleted": len(one.deleted),
                "seconds": round(time.monotonic() - started, 3),
                "outcomes": [outcome.to_dict() for outcome in outcomes],
            }
        )
        return outcomes

    def _key(self, one: Retraining) -> str:
        return _digest({"about": self._about, "deleted": list(one.deleted), "seed": one.seed})

    def _append(self, line: dict[str, Any]) -> None:
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A killed writer may have left a partial line: start a new one.
        with self.path.open("ab") as file:
            file.write(b"\n" * self._torn + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        if new:
            sync_folder(self.path.parent)

    def _read(self) -> dict[str, list[Outcome]]:
        if not self.path.exists():
            return {}
        done, content = {}, self.path.read_bytes()
        self._torn = bool(content) and not content.endswith(b"\n")
        for text in content.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # empty or a partial line: that retraining is repeated
            done[line["key"]] = [Outcome(**outcome) for outcome in line["outcomes"]]
        return done


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
