"""What a TracIn run leaves for people: CSV, JSON and a summary, named and headed as the group's scripts did."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import torch

from kgops.graphs.triples import Graph
from kgops.jobs.files import sync_folder
from kgops.tracin.parts import Part
from kgops.tracin.tests_to_trace import TestTriple

__all__ = [
    "CSV_HEADER",
    "Names",
    "Table",
    "as_json",
    "file_stem",
    "found_events",
    "write_csv",
    "write_self_influence",
]

CSV_HEADER = (
    *("TestHead", "TestHead_label", "TestRel", "TestRel_label", "TestTail", "TestTail_label"),
    *("TrainHead", "TrainHead_label", "TrainRel", "TrainRel_label", "TrainTail", "TrainTail_label"),
    "TracInScore",
)


@dataclass(frozen=True)
class Names:
    """What people call labels; who is not named is called by its label."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    edges: Mapping[str, str] = field(default_factory=dict)

    def of(self, triple: tuple[str, str, str]) -> tuple[str, str, str]:
        head, relation, tail = triple
        return self.nodes.get(head, head), self.edges.get(relation, relation), self.nodes.get(tail, tail)

    def known(self, triples: Iterable[tuple[str, str, str]]) -> dict[str, str]:
        """Label → name for those of the triples that have one."""
        found: dict[str, str] = {}
        for head, relation, tail in triples:
            for label, names in ((head, self.nodes), (relation, self.edges), (tail, self.nodes)):
                if label in names and names[label] != label:
                    found[label] = names[label]
        return found


class Table:
    """The training triples as people read them."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self.graph, self.names = graph, names

    def labels(self, rows: torch.Tensor) -> list[tuple[str, str, str]]:
        entities, relations = self.graph.entities.labels, self.graph.relations.labels
        return [(entities[h], relations[r], entities[t]) for h, r, t in self.graph.train[rows].tolist()]

    def csv_rows(self, rows: torch.Tensor) -> list[str]:
        """Head, relation and tail, each beside its name. Millions of rows share few texts, quoted once."""
        entities, relations = self._quoted
        return [f"{entities[h]},{relations[r]},{entities[t]}" for h, r, t in self.graph.train[rows].tolist()]

    @cached_property
    def _quoted(self) -> tuple[list[str], list[str]]:
        graph, names = self.graph, self.names
        return (
            [_csv_line(label, names.nodes.get(label, label)) for label in graph.entities.labels],
            [_csv_line(label, names.edges.get(label, label)) for label in graph.relations.labels],
        )


def write_csv(path: Path, table: Table, tests: Iterable[tuple[TestTriple, Part]]) -> int:
    """Strongest first for each test triple, with every digit of the scores; the number of rows."""
    written = 0
    with _replacing(path) as file:
        file.write(",".join(CSV_HEADER) + "\n")
        for test, part in tests:
            pairs = zip(test.labels, table.names.of(test.labels), strict=True)
            left = _csv_line(*(text for pair in pairs for text in pair))
            digits = "%.17g" if part.scores.dtype == torch.float64 else "%.9g"
            rows = zip(table.csv_rows(part.rows), part.scores.tolist(), strict=True)
            file.writelines(f"{left},{right},{digits % score}\n" for right, score in rows)
            written += len(part.rows)
    return written


def write_self_influence(path: Path, table: Table, rows: torch.Tensor, scores: torch.Tensor) -> None:
    with _replacing(path) as file:
        file.write(",".join(CSV_HEADER[6:]) + "\n")
        rated = zip(table.csv_rows(rows), scores.tolist(), strict=True)
        file.writelines(f"{text},{score:.9g}\n" for text, score in rated)


def as_json(
    table: Table, test: TestTriple, part: Part, about: Mapping[str, Any], most: int
) -> dict[str, Any]:
    """One test triple for a program to read, with its `most` strongest."""
    rows = zip(table.labels(part.rows[:most]), part.scores[:most].tolist(), strict=True)
    return {
        "test_triple": _object(test.labels, table.names),
        "num_training_triples": part.candidates,
        "error": part.trouble,
        **about,
        "influences": [{**_object(labels, table.names), "score": score} for labels, score in rows],
    }


def found_events(table: Table, test: TestTriple, part: Part, most: int) -> dict[str, Any]:
    """The strongest, for the record: at most `most` proponents (1, 2, …) and opponents (-1, -2, …)."""
    order = part.scores.argsort(descending=True, stable=True)
    best = [i for i in order[:most].tolist() if part.scores[i] > 0]
    worst = [i for i in order.flip(0)[:most].tolist() if part.scores[i] < 0]
    ranked = [(n, i) for n, i in enumerate(best, 1)] + [(-n, i) for n, i in enumerate(worst, 1)]
    labels = table.labels(part.rows[[i for _, i in ranked]]) if ranked else []
    found = [[rank, *triple, float(part.scores[i])] for (rank, i), triple in zip(ranked, labels, strict=True)]
    return {
        "test": test.number,
        "triple": list(test.labels),
        "candidates": part.candidates,
        "trouble": part.trouble,
        "found": found,
        "names": table.names.known([test.labels, *labels]),
    }


def file_stem(test: TestTriple) -> str:
    """`triple_001_CHEBI_34911_MONDO_0004525`."""
    head, _, tail = (re.sub(r"[^A-Za-z0-9.-]+", "_", label).strip("_")[:60] for label in test.labels)
    return f"triple_{test.number:03}_{head}_{tail}"


def _csv_line(*fields: str) -> str:
    line = io.StringIO()
    # The end of line it was told of decides which labels the writer quotes: none may break a row.
    csv.writer(line, lineterminator="\r\n").writerow(fields)
    return line.getvalue().removesuffix("\r\n")


def _object(labels: tuple[str, str, str], names: Names) -> dict[str, str]:
    parts = zip(("head", "relation", "tail"), labels, names.of(labels), strict=True)
    return {
        key: value for part, label, name in parts for key, value in ((part, label), (f"{part}_label", name))
    }


class _replacing:
    """A text file that stands under its name only when it is whole and on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._half = path, path.with_name(f".{path.name}.part")

    def __enter__(self) -> IO[str]:
        self._file = self._half.open("w", encoding="utf-8", errors="surrogateescape", newline="")
        return self._file

    def __exit__(self, kind: object, *rest: object) -> None:
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        if kind is None:
            self._half.replace(self._path)
            sync_folder(self._path.parent)
        else:
            self._half.unlink(missing_ok=True)
