"""Which triples are known: in the training, validation or test file, or in none of them."""

from __future__ import annotations

import torch

from kgops.maths.graphs.triples import Graph
from kgops.maths.train.evaluate import KnownAnswers

NEW = "new"
_SPLITS = ("train", "valid", "test")


class KnownTriples:
    """All triples of a graph, on the CPU, sorted to be searched."""

    def __init__(self, graph: Graph) -> None:
        self._entities, self._relations = graph.num_entities, graph.num_relations
        self._splits = [
            self._keys(triples).sort().values for triples in (graph.train, graph.valid, graph.test)
        ]
        self._all = torch.cat([graph.train, graph.valid, graph.test])
        self._answers: KnownAnswers | None = (
            None  # made when asked for: it takes a second of a million triples
        )

    def splits_of(self, triples: torch.Tensor) -> list[str]:
        """`train`, `valid`, `test` or `new` for each triple; the first of several."""
        keys = self._keys(triples)
        places = torch.full((len(keys),), len(_SPLITS))
        for place, split in reversed([*enumerate(self._splits)]):
            places[_contained(keys, split)] = place
        words = (*_SPLITS, NEW)
        return [words[place] for place in places.tolist()]

    def are_known(self, triples: torch.Tensor) -> torch.Tensor:
        keys = self._keys(triples)
        known = torch.zeros(len(keys), dtype=torch.bool)
        for split in self._splits:
            known |= _contained(keys, split)
        return known

    def answers(self, asked: torch.Tensor) -> list[torch.Tensor]:
        """Known heads or tails of each question (known entity, relation, 1 where heads are asked)."""
        if self._answers is None:
            self._answers = KnownAnswers(self._distinct())
        rows, found = self._answers.of(asked[:, 0], 2 * asked[:, 1] + asked[:, 2])
        ends = torch.bincount(rows, minlength=len(asked)).cumsum(0).tolist()
        return [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _distinct(self) -> torch.Tensor:
        keys, n = torch.unique(torch.cat(self._splits)), self._entities
        return torch.stack([keys // n % n, keys // (n * n), keys % n], dim=1)

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


def _contained(keys: torch.Tensor, sorted_keys: torch.Tensor) -> torch.Tensor:
    if not len(sorted_keys):
        return torch.zeros(len(keys), dtype=torch.bool)
    at = torch.searchsorted(sorted_keys, keys).clamp_max(len(sorted_keys) - 1)
    return sorted_keys[at] == keys
