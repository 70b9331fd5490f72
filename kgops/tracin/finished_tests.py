"""Finished test triples on disk, so that a run that goes on later does not score them again."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.files import read_json, write_durably, write_json
from kgops.training.torch_files import read_saved

__all__ = ["Part", "Parts", "parts_meaning"]


@dataclass(frozen=True)
class Part:
    """What one test triple found: rows of the training triples and their scores, strongest first.

    `candidates` is how many were scored, `trouble` why none was.
    """

    number: int
    rows: torch.Tensor
    scores: torch.Tensor
    candidates: int
    trouble: str | None = None


class Parts:
    """The parts of a run, a tile of tests to a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._files: dict[int, Path] = {}
        self._rows: dict[int, int] = {}
        for path in sorted(folder.glob("*.pt")):
            try:
                self._note(path, _read(path))
            except BadInput:
                path.unlink()  # cut short; its tests are scored again
        self._open: tuple[Path, dict[int, Part]] | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._files

    def __len__(self) -> int:
        return len(self._files)

    def add(self, parts: list[Part]) -> None:
        path = self._folder / f"{parts[0].number:08}.pt"
        body = io.BytesIO()
        torch.save(_together(parts), body)
        write_durably(path, body.getvalue())
        self._note(path, parts)

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(self._rows.values())

    def _note(self, path: Path, parts: Sequence[Part]) -> None:
        for part in parts:
            self._files[part.number], self._rows[part.number] = path, len(part.rows)

    def read(self, number: int) -> Part:
        path = self._files[number]
        if self._open is None or self._open[0] != path:
            self._open = path, {part.number: part for part in _read(path)}
        return self._open[1][number]

    def __iter__(self) -> Iterator[Part]:
        """By number."""
        return (self.read(number) for number in sorted(self._files))


def parts_meaning(meaning: dict[str, Any], folder: Path) -> tuple[Parts, bool]:
    """The parts in `folder`, and whether some were thrown away because their scores meant something else:
    a list may not hold scores of two kinds."""
    beside = folder.with_suffix(".json")
    dropped = folder.exists() and read_json(beside) not in (None, meaning)
    if dropped:
        shutil.rmtree(folder)
    write_json(beside, meaning)
    return Parts(folder), dropped


def _together(parts: Sequence[Part]) -> dict[str, Any]:
    """As few large tensors: thousands of small ones take longer to write and to read than what is in them."""
    scored = [part.scores for part in parts if len(part.scores)] or [torch.empty(0)]
    return {
        "each": [(part.number, len(part.rows), part.candidates, part.trouble) for part in parts],
        "rows": torch.cat([part.rows for part in parts]),
        "scores": torch.cat(scored),
    }


def _read(path: Path) -> list[Part]:
    try:
        told = read_saved(path)
        if (told["rows"].dtype, told["rows"].dim(), told["scores"].dim()) != (torch.long, 1, 1):
            raise ValueError("parts of another kind")
        sizes = [size for _, size, _, _ in told["each"]]
        pieces = zip(told["each"], told["rows"].split(sizes), told["scores"].split(sizes), strict=True)
        return [
            Part(int(number), rows, scores, int(candidates), trouble)
            for (number, _, candidates, trouble), rows, scores in pieces
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise BadInput(f"{path} is no part of a TracIn run.") from error
