"""Saves finished test triples on disk, so that a resumed run does not score them again."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.files import read_table, write_durably, write_json
from kgops.maths.train.checkpoints import read_saved


@dataclass(frozen=True)
class FinishedTest:
    """Influences on one test triple: training rows and their scores, strongest first.

    `candidates`: number of training triples scored. `trouble`: why none was.
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


def open_finished_tests(meaning: dict[str, Any], folder: Path) -> tuple[FinishedTests, set[str]]:
    """The finished tests in `folder`. If their scores mean something else, drops them and returns what differs: one
    result may not mix two kinds of scores."""
    meaning_file = folder.with_suffix(".json")
    before = read_table(meaning_file) if folder.exists() else {}
    differs = {name for name in meaning if name in before and before[name] != meaning[name]}
    if differs:
        shutil.rmtree(folder)
    write_json(meaning_file, meaning)
    return FinishedTests(folder), differs


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
