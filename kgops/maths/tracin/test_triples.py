"""Reads the test triples of a TracIn run: from the command line, a file, or the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.jobs.option import not_a_triple, triple_in
from kgops.maths.graphs.triples import Graph, triple_rows
from kgops.maths.graphs.vocabulary import Vocabulary, is_id, shown


@dataclass(frozen=True)
class TestTriple:
    """Test triple `number`, from 1. `ids` is None if it cannot be scored; `trouble` says why. `asks_head`: it was
    predicted as the answer to a question for heads."""

    __test__ = False  # pytest: not a test class

    number: int
    labels: tuple[str, str, str]
    ids: tuple[int, int, int] | None
    trouble: str | None = None
    asks_head: bool = False


def from_text(text: str, graph: Graph) -> TestTriple:
    """Splits head, relation and tail at tabs. Without tabs it splits at commas, and without commas at spaces."""
    triple = triple_in(text)
    if triple is None:
        raise BadInput(f"the test triple {not_a_triple(text)}.")
    return _named(1, triple, graph)


def from_file(path: Path, graph: Graph) -> list[TestTriple]:
    """All triples of the file, in order; one that cannot be scored has `trouble`."""
    tests: list[TestTriple] = []
    for _, parts in triple_rows(path):
        test = _named(len(tests) + 1, (parts[0], parts[1], parts[2]), graph)
        tests.append(replace(test, asks_head=len(parts) > 3 and parts[3].strip() == "head"))
    if not tests:
        raise BadInput(f"{path} has no triples.", hint="each line is head, relation, tail.")
    return tests


def from_graph(graph: Graph, triples: torch.Tensor) -> list[TestTriple]:
    return [
        TestTriple(
            n, (graph.entities.labels[h], graph.relations.labels[r], graph.entities.labels[t]), (h, r, t)
        )
        for n, (h, r, t) in enumerate(triples.tolist(), 1)
    ]


def _named(number: int, labels: tuple[str, str, str], graph: Graph) -> TestTriple:
    kinds = (("entity", graph.entities), ("relation", graph.relations), ("entity", graph.entities))
    ids = [_id(label, vocabulary) for label, (_, vocabulary) in zip(labels, kinds, strict=True)]
    for label, at, (kind, vocabulary) in zip(labels, ids, kinds, strict=True):
        if at is None:
            trouble = f"{kind} {shown(label.strip())} is not among the {len(vocabulary):,} of the graph"
            return TestTriple(number, labels, None, trouble)
    h, r, t = ids
    assert h is not None and r is not None and t is not None
    canonical = (graph.entities.labels[h], graph.relations.labels[r], graph.entities.labels[t])
    return TestTriple(number, canonical, (h, r, t))


def _id(label: str, vocabulary: Vocabulary) -> int | None:
    """The id of a label. A number means an id if no label is a number."""
    found, bare = vocabulary.id_of(label), label.strip()
    if found is None and is_id(bare) and int(bare) < len(vocabulary) and vocabulary.takes_ids:
        return int(bare)
    return found


def selected(tests: Sequence[TestTriple], start: int, most: int | None) -> list[TestTriple]:
    """At most `most` tests from index `start`; they keep their numbers."""
    end = len(tests) if most is None else start + most
    return list(tests[start:end])
