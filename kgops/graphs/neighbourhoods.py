"""Training triples near a test triple: by hops, by degree and by simple paths between its entities.

The graph is undirected and built once; it ignores relations and repeated edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kgops.errors import BadInput, Usage
from kgops.graphs.simple_paths import Bools, Csr, Ints, distances, edges_on_short_paths

__all__ = ["Neighbourhood", "NeighbourhoodFilter"]


@dataclass(frozen=True)
class NeighbourhoodFilter:
    """Filter of the training triples for one test triple.

    An edge is *within the hops* if each of its ends is at most `n_hops` from the test head and from the
    test tail; these two count as within, however far apart, unless `strict_hop_constraint`. Of those,
    the filter keeps edges that touch the test head or tail (`preserve_test_edges`) or have an end with at least
    `min_degree` (distinct neighbours). `path_filtering` also requires a simple path through the edge from
    head to tail of at most `max_total_path_length` edges (None: 2 · n_hops); `strict_path_filtering`
    requires only that path and the hops.
    """

    n_hops: int = 2
    min_degree: int = 2
    preserve_test_edges: bool = True
    strict_hop_constraint: bool = False
    path_filtering: bool = False
    max_total_path_length: int | None = None
    strict_path_filtering: bool = False

    def __post_init__(self) -> None:
        if self.n_hops < 1:
            raise Usage(f"n_hops is {self.n_hops}; it must be at least 1.")
        if self.min_degree < 0:
            raise Usage(f"min_degree is {self.min_degree}; it must be at least 0.")
        if self.max_total_path_length is not None and self.max_total_path_length < 1:
            raise Usage(f"max_total_path_length is {self.max_total_path_length}; it must be at least 1.")
        if self.strict_path_filtering and not self.path_filtering:
            raise Usage(
                "strict_path_filtering without path_filtering has no meaning.",
                hint="pass --path-filtering too.",
            )

    @property
    def path_limit(self) -> int:
        return 2 * self.n_hops if self.max_total_path_length is None else self.max_total_path_length


class Neighbourhood:
    """The training graph, prepared for many queries."""

    def __init__(self, triples: torch.Tensor, num_entities: int) -> None:
        self.num_entities = num_entities
        self._heads: Ints = triples[:, 0].cpu().numpy().astype(np.int64)
        self._tails: Ints = triples[:, 2].cpu().numpy().astype(np.int64)
        low, high = np.minimum(self._heads, self._tails), np.maximum(self._heads, self._tails)
        edges = np.unique((low * num_entities + high)[low != high])
        a, b = edges // num_entities, edges % num_entities
        sources, targets = np.concatenate([a, b]), np.concatenate([b, a])
        order = np.lexsort((targets, sources))
        counts = np.bincount(sources, minlength=num_entities)
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]).astype(np.int64)
        self.graph = Csr(starts, targets[order])
        # A loop counts twice, as networkx and igraph count it.
        self._degree = counts + 2 * np.bincount(
            np.unique(self._heads[self._heads == self._tails]), minlength=num_entities
        )

    def select(self, head: int, tail: int, how: NeighbourhoodFilter) -> torch.Tensor:
        """Rows of the training triples that the filter keeps for the test triple (head, ·, tail), ascending."""
        for entity in (head, tail):
            if not 0 <= entity < self.num_entities:
                raise BadInput(
                    f"test entity {entity} is not in the training vocabulary of {self.num_entities:,}.",
                    hint="use the --entity-to-id file the model was trained with.",
                )
        rows = self._within_hops(head, tail, how)
        if not how.strict_path_filtering:
            rows = rows[self._kept(rows, head, tail, how)]
        if how.path_filtering:
            rows = rows[self._on_paths(rows, head, tail, how.path_limit)]
        return torch.from_numpy(rows)

    def _within_hops(self, head: int, tail: int, how: NeighbourhoodFilter) -> Ints:
        near = distances(self.graph, head, how.n_hops) <= how.n_hops
        near &= distances(self.graph, tail, how.n_hops) <= how.n_hops
        if not how.strict_hop_constraint:
            near[[head, tail]] = True
        return np.flatnonzero(near[self._heads] & near[self._tails])

    def _kept(self, rows: Ints, head: int, tail: int, how: NeighbourhoodFilter) -> Bools:
        heads, tails = self._heads[rows], self._tails[rows]
        kept: Bools = np.maximum(self._degree[heads], self._degree[tails]) >= how.min_degree
        if how.preserve_test_edges:
            kept |= (heads == head) | (heads == tail) | (tails == head) | (tails == tail)
        return kept

    def _on_paths(self, rows: Ints, head: int, tail: int, limit: int) -> Bools:
        heads, tails = self._heads[rows], self._tails[rows]
        low, high = np.minimum(heads, tails), np.maximum(heads, tails)
        edges, which = np.unique(low * self.num_entities + high, return_inverse=True)
        u, v = edges // self.num_entities, edges % self.num_entities
        on = edges_on_short_paths(self.graph, u, v, head, tail, limit)
        return on[which]
