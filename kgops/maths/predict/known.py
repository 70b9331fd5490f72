"""Which triples are known, and whether a question has anything to go by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph, contained
from kgops.maths.graphs.vocabulary import read_edge_map, read_node_names, shown
from kgops.maths.predict.questions import NamedVocabulary, NodeTypes, read_node_types
from kgops.maths.train.evaluate import KnownAnswers
from kgops.maths.worker.report import Reporter

NEW = "new"
_SPLITS = ("train", "valid", "test")
_ASK = "`kgops predict --best 20` with that relation lists what it does relate"


class KnownTriples:
    """All triples of a graph, on the CPU, sorted to be searched."""

    def __init__(self, graph: Graph) -> None:
        self._entities = graph.num_entities
        self._splits = [
            self._keys(triples).sort().values for triples in (graph.train, graph.valid, graph.test)
        ]
        self._all = torch.cat([graph.train, graph.valid, graph.test])

    def splits_of(self, triples: torch.Tensor) -> list[str]:
        """`train`, `valid`, `test` or `new` for each triple; the first of several."""
        keys = self._keys(triples)
        places = torch.full((len(keys),), len(_SPLITS))
        for place, split in reversed([*enumerate(self._splits)]):
            places[contained(keys, split)] = place
        words = (*_SPLITS, NEW)
        return [words[place] for place in places.tolist()]

    def are_known(self, triples: torch.Tensor) -> torch.Tensor:
        keys = self._keys(triples)
        known = torch.zeros(len(keys), dtype=torch.bool)
        for split in self._splits:
            known |= contained(keys, split)
        return known

    def answers(self, asked: torch.Tensor) -> list[torch.Tensor]:
        """Known heads or tails of each question (known entity, relation, 1 where heads are asked)."""
        rows, found = self._answers.of(asked[:, 0], 2 * asked[:, 1] + asked[:, 2])
        ends = torch.bincount(rows, minlength=len(asked)).cumsum(0).tolist()
        return [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def _answers(self) -> KnownAnswers:
        """Made when asked for: it takes a second of a million triples."""
        keys, n = torch.unique(torch.cat(self._splits)), self._entities
        return KnownAnswers(torch.stack([keys // n % n, keys // (n * n), keys % n], dim=1))

    def pairs(self, relation: int) -> torch.Tensor:
        """Keys head · entities + tail of the known pairs of a relation, sorted."""
        rows = self._all[self._all[:, 1] == relation]
        keys: torch.Tensor = torch.unique(rows[:, 0] * self._entities + rows[:, 2])
        return keys

    def ends(self, relation: int, *, heads: bool) -> torch.Tensor:
        """Heads or tails that the relation has anywhere, without repeats."""
        found: torch.Tensor = torch.unique(self._all[self._all[:, 1] == relation][:, 0 if heads else 2])
        return found

    def _keys(self, triples: torch.Tensor) -> torch.Tensor:
        return (triples[:, 1] * self._entities + triples[:, 0]) * self._entities + triples[:, 2]


@dataclass(frozen=True)
class NamedGraph:
    """A graph with the names and types that a job gives its entities and relations."""

    job: Job
    graph: Graph
    report: Reporter

    @property
    def settings(self) -> dict[str, Any]:
        return self.job.settings

    @cached_property
    def entities(self) -> NamedVocabulary:
        path = self.settings["node_name_dict"]
        return NamedVocabulary("entity", self.graph.entities, read_node_names(Path(path)) if path else {})

    @cached_property
    def relations(self) -> NamedVocabulary:
        path = self.settings["edge_map"]
        return NamedVocabulary("relation", self.graph.relations, read_edge_map(Path(path)) if path else {})

    @cached_property
    def known(self) -> KnownTriples:
        return KnownTriples(self.graph)

    @cached_property
    def types(self) -> NodeTypes | None:
        path = self.settings["node_types"]
        return read_node_types(Path(path), self.graph.entities) if path else None

    def missing_evidence(self, entity: int, relation: int, *, is_head: bool) -> str | None:
        """Why the model can only guess, with what to do; None where some such entity has that relation. Types of
        entities decide. Without types, the relations that entities have decide."""
        ends = self.known.ends(relation, heads=is_head)
        named = shown(self.relations.name(relation))
        if not len(ends):
            return f"no triple has the relation {named}, so the model learnt nothing of it; ask with another"
        if bool((ends == entity).any()):
            return None
        side, name = "head" if is_head else "tail", shown(self.entities.name(entity))
        if self.types is not None:
            own = self.types.of_entity.get(entity, ())
            if own and not set(own) & set(self.types.counts(ends.tolist())):
                return (
                    f"no {side} of {named} has a type of {name} ({', '.join(own)}); its {side}s have: "
                    f"{self.types.listed(ends.tolist())}; {_ASK}"
                )
            return None
        if not self._roles(torch.tensor([entity])) & self._roles(ends):
            return f"no {side} of {named} has any relation in common with {name}; {_ASK}"
        return None

    def _roles(self, entities: torch.Tensor) -> set[tuple[int, int]]:
        """Which relations they have in training, as head (0) or as tail (1)."""
        train = self.graph.train
        found: set[tuple[int, int]] = set()
        for column, side in ((0, 0), (2, 1)):
            relations: list[int] = train[torch.isin(train[:, column], entities), 1].tolist()
            found |= {(relation, side) for relation in relations}
        return found
