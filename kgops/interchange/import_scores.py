"""Import of influences that other programs computed."""

from __future__ import annotations

import csv
import heapq
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgops.errors import BadInput
from kgops.jobs.files import open_regular

_PARTS = ("head", "relation", "tail")
_NO_SCORES = "the folder has no scores of it"
Row = dict[str, Any]


def traces(listed: Sequence[Mapping[str, Any]], scores: Scores) -> tuple[list[Row], list[Row]]:
    """Rows of `test_triple` and of `influence`, numbered as in the summary; unlisted test triples come last."""
    summary = dict(_triples(listed))
    traced: list[Row] = []
    influence: list[Row] = []
    for triple, number in _numbers(summary, scores).items():
        line, scored = summary.get(triple, {}), scores.tests.get(triple)
        candidates = line.get("num_training_triples")
        row = {"test": number, **dict(zip(_PARTS, triple, strict=True))}
        trouble = trouble_of(line) or (None if scored else _NO_SCORES)
        traced.append(
            {**row, "candidates": candidates if _is_count(candidates) else None, "trouble": trouble}
        )
        for rank, trained, score in scored.ranked() if scored else ():
            parts = dict(zip(_PARTS, trained, strict=True))
            influence.append({"test": number, "rank": rank, **parts, "score": score})
    return traced, influence


def trouble_of(line: Mapping[str, Any]) -> str | None:
    """Why a test triple has no scores: the summary's message, or a default one."""
    if isinstance(line.get("error"), str):
        return str(line["error"])
    for name, what in (("filtering_success", "filtering failed"), ("tracin_success", "TracIn failed")):
        if line.get(name) is False:
            return what
    return "it failed" if line.get("success") is False else None


def _triples(listed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Triple, Mapping[str, Any]]]:
    for line in listed:
        parts = line["triple"] if isinstance(line.get("triple"), dict) else line
        head, relation, tail = (parts.get(part) for part in _PARTS)
        if isinstance(head, str) and isinstance(relation, str) and isinstance(tail, str):
            yield (head, relation, tail), line


def _numbers(summary: Mapping[Triple, Mapping[str, Any]], scores: Scores) -> dict[Triple, int]:
    """The summary's numbers; counted from 1 where they are missing or repeated."""
    given = [line.get("index") for line in summary.values()]
    valid = all(map(_is_count, given)) and len(set(given)) == len(given)
    numbers = dict(
        zip(summary, [int(n or 0) for n in given] if valid else range(1, len(given) + 1), strict=True)
    )
    following = max(numbers.values(), default=0) + 1
    unlisted = [triple for triple in scores.tests if triple not in numbers]
    return numbers | {triple: following + i for i, triple in enumerate(unlisted)}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


_TRAIN = ("TrainHead", "TrainHead_label", "TrainRel", "TrainRel_label", "TrainTail", "TrainTail_label")
_TEST = ("TestHead", "TestHead_label", "TestRel", "TestRel_label", "TestTail", "TestTail_label")
HEADER = (*_TEST, *_TRAIN, "TracInScore")
MOST = 50  # proponents, and as many opponents, of each test triple; the files have the rest
MOST_TESTS = 2000
_LONGEST_FIELD = 1 << 20

Triple = tuple[str, str, str]


@dataclass(slots=True)
class Test:
    """The strongest proponents and opponents of a test triple; `rows` counts all influences read."""

    triple: Triple
    rows: int = 0
    best: list[tuple[float, int, Triple]] = field(default_factory=list)  # heap of proponents, weakest first
    worst: list[tuple[float, int, Triple]] = field(default_factory=list)  # heap of opponents, scores negated

    def add(self, triple: Triple, score: float) -> None:
        self.rows += 1
        heap, strength = (self.best, score) if score > 0 else (self.worst, -score)
        entry = (strength, -self.rows, triple)  # of equal scores the first read stays
        if score == 0:
            return
        if len(heap) < MOST:
            heapq.heappush(heap, entry)
        elif entry > heap[0]:
            heapq.heapreplace(heap, entry)

    def ranked(self) -> list[tuple[int, Triple, float]]:
        """(1, 2, … proponents; -1, -2, … opponents), strongest first of each."""
        up = [(n, triple, score) for n, (score, _, triple) in enumerate(sorted(self.best, reverse=True), 1)]
        down = [
            (-n, triple, -score) for n, (score, _, triple) in enumerate(sorted(self.worst, reverse=True), 1)
        ]
        return up + down


@dataclass(slots=True)
class Scores:
    tests: dict[Triple, Test] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # label → readable name
    left_out: int = 0  # rows of test triples beyond the first MOST_TESTS
    not_numbers: int = 0
    is_cut: bool = False  # a file ends within a line

    def read(self, path: Path) -> None:
        """Reads one file. Raises BadInput with the file and line of the first error."""
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                text = io.TextIOWrapper(file, encoding="utf-8", newline="")
                self._read_rows(path, csv.reader(text, strict=True))
                file.seek(-1, os.SEEK_END)
                self.is_cut |= file.read() not in (b"\r", b"\n")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}: not UTF-8") from error

    def _read_rows(self, path: Path, lines: Any) -> None:
        csv.field_size_limit(_LONGEST_FIELD)
        try:
            head: list[str] = next(lines, [])
            if tuple(head) != HEADER:
                raise BadInput(f"{path}, line 1: the header is {','.join(head)[:80]!r}, not TracIn's")
            for row in lines:
                self._add_row(f"{path}, line {lines.line_num}", row)
        except csv.Error as error:
            raise BadInput(f"{path}, line {lines.line_num}: {error}") from error

    def _add_row(self, where: str, row: list[str]) -> None:
        if len(row) != len(HEADER):
            raise BadInput(f"{where}: {len(row)} fields, where TracIn's table has {len(HEADER)}")
        try:
            score = float(row[-1])
        except ValueError:
            raise BadInput(f"{where}: the score is not a number: {row[-1]!r:.40}") from None
        triple = (row[0], row[2], row[4])
        test = self.tests.get(triple)
        if test is None:
            if len(self.tests) >= MOST_TESTS:
                self.left_out += 1
                return
            test = self.tests[triple] = Test(triple)
            self._name(row[0:6])
        if not math.isfinite(score):
            self.not_numbers += 1
            return
        test.add((row[6], row[8], row[10]), score)
        self._name(row[6:12])

    def _name(self, pairs: list[str]) -> None:
        for label, name in zip(pairs[::2], pairs[1::2], strict=True):
            if name and name != label:
                self.names[label] = name

    def kept_names(self) -> Mapping[str, str]:
        """Readable names of the labels that are kept."""
        kept: set[str] = set()
        for test in self.tests.values():
            kept.update(test.triple, *(triple for _, triple, _ in test.ranked()))
        return {label: name for label, name in self.names.items() if label in kept}


def is_scores(path: Path) -> bool:
    """Whether a CSV file has the header of TracIn scores; `tracin_self_influence.csv` and others have another."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.readline(4096).startswith(b",".join(name.encode() for name in HEADER[:6]))
