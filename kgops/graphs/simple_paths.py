"""Which edges lie on a simple path between two vertices that is no longer than a limit: exactly.

Paths are never enumerated. A simple path through the edge u - v is a path from the head to one of them and
one from the tail to the other that share no vertex. For most edges two paths of shortest-path trees happen
to share none, and that is proof enough; for the others a few representative paths to each vertex decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgops.graphs.families import Families, representatives

__all__ = ["Csr", "distances", "edges_on_short_paths"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FAR = 1 << 30
_ROUNDS = 4


@dataclass(frozen=True)
class Csr:
    """An undirected graph without loops and parallel edges: the neighbours of every vertex, sorted."""

    starts: Ints
    neighbours: Ints

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    def of(self, vertex: int) -> Ints:
        return self.neighbours[self.starts[vertex] : self.starts[vertex + 1]]

    def arcs(self, vertices: Ints) -> tuple[Ints, Ints]:
        """(from, to) of every arc that leaves one of `vertices`."""
        counts = self.starts[vertices + 1] - self.starts[vertices]
        before = np.cumsum(counts) - counts
        place = np.arange(int(counts.sum())) + np.repeat(self.starts[vertices] - before, counts)
        return np.repeat(vertices, counts), self.neighbours[place]


def distances(graph: Csr, start: int, limit: int, without: int | None = None) -> Ints:
    """Edges from `start` to every vertex, in the graph without vertex `without`; FAR beyond `limit`."""
    found = np.full(graph.size, FAR, dtype=np.int64)
    if without is not None:
        found[without] = -1
    found[start] = 0
    frontier = np.array([start], dtype=np.int64)
    for depth in range(1, limit + 1):
        reached = graph.arcs(frontier)[1]
        found[reached[found[reached] == FAR]] = depth
        frontier = np.flatnonzero(found == depth)
        if not len(frontier):
            break
    if without is not None:
        found[without] = FAR
    return found


def edges_on_short_paths(graph: Csr, u: Ints, v: Ints, head: int, tail: int, limit: int) -> Bools:
    """For each edge u[i] - v[i] of the graph: does a simple path of at most `limit` edges use it?"""
    on = np.zeros(len(u), dtype=np.bool_)
    if head == tail or limit < 1:
        return on
    # A path meets each end once, so what leads to one end avoids the other.
    from_head = distances(graph, head, limit - 1, without=tail)
    from_tail = distances(graph, tail, limit - 1, without=head)
    from_head[tail] = from_tail[head] = FAR
    ends = np.isin(u, (head, tail)) & np.isin(v, (head, tail))
    on |= ends & (u != v)
    for a, b in ((u, v), (v, u)):
        on |= (a == head) & (1 + from_tail[b] <= limit)
        on |= (a == tail) & (1 + from_head[b] <= limit)
    inner = ~np.isin(u, (head, tail)) & ~np.isin(v, (head, tail)) & (u != v)
    forward = from_head[u] + 1 + from_tail[v] <= limit
    backward = from_head[v] + 1 + from_tail[u] <= limit
    open_ = np.flatnonzero(inner & (forward | backward))
    open_ = _prove_by_trees(graph, u, v, on, open_, from_head, from_tail, limit)
    _decide(graph, u, v, on, open_, head, tail, from_head, from_tail, limit)
    return on


def _prove_by_trees(
    graph: Csr,
    u: Ints,
    v: Ints,
    on: Bools,
    open_: Ints,
    from_head: Ints,
    from_tail: Ints,
    limit: int,
) -> Ints:
    """Marks edges whose tree paths are disjoint; returns those still open. Trees differ by the round."""
    if not len(open_):
        return open_
    near = np.flatnonzero((from_head + from_tail <= limit) | (from_head == 0) | (from_tail == 0))
    a, b = graph.arcs(near)
    down_head, down_tail = from_head[b] == from_head[a] + 1, from_tail[b] == from_tail[a] + 1
    arcs = [(a[down_head], b[down_head]), (a[down_tail], b[down_tail])]
    generator = np.random.default_rng(0)  # any trees do; the answer does not depend on them
    for _ in range(_ROUNDS):
        parents = []
        for parent, child in arcs:
            tree = np.arange(graph.size)
            order = generator.permutation(len(parent))
            tree[child[order]] = parent[order]
            parents.append(tree)
        for one, other in ((u, v), (v, u)):
            fits = from_head[one[open_]] + 1 + from_tail[other[open_]] <= limit
            tried = open_[fits]
            apart = _disjoint(parents[0], parents[1], one[tried], other[tried], limit - 1)
            on[tried[apart]] = True
        open_ = open_[~on[open_]]
        if not len(open_):
            break
    return open_


def _disjoint(to_head: Ints, to_tail: Ints, a: Ints, b: Ints, steps: int) -> Bools:
    """Whether the way from a[i] up one tree and from b[i] up the other share no vertex."""
    ups, downs = [a], [b]
    for _ in range(steps):
        ups.append(to_head[ups[-1]])
        downs.append(to_tail[downs[-1]])
    apart = np.ones(len(a), dtype=np.bool_)
    for x in ups:
        for y in downs:
            apart &= x != y
    return apart


def _decide(
    graph: Csr,
    u: Ints,
    v: Ints,
    on: Bools,
    open_: Ints,
    head: int,
    tail: int,
    from_head: Ints,
    from_tail: Ints,
    limit: int,
) -> None:
    """Marks the edges among `open_` that are on a path: two families of short paths tell for all at once."""
    if not len(open_):
        return
    near = np.flatnonzero((from_head + from_tail <= limit) & (from_head > 0) & (from_tail > 0))
    local = np.full(graph.size, -1, dtype=np.int64)
    local[near] = np.arange(len(near))
    sources, targets = graph.arcs(near)
    inside = local[targets] >= 0
    # The graph is undirected: sorted by their sources, arcs turned round are sorted by their targets.
    arcs = local[targets[inside]], local[sources[inside]]
    asked = np.zeros(len(near), dtype=np.bool_)
    asked[local[u[open_]]] = asked[local[v[open_]]] = True
    levels = limit - 2  # the edge itself, and at least one on its other side

    def families(root: int, to_other: Ints) -> list[Families]:
        first = local[graph.of(root)]

        def useful(length: int) -> Bools:
            fits: Bools = to_other[near] + length <= limit
            return fits & asked if length == levels else fits

        return representatives(len(near), arcs, first[first >= 0], levels, useful, limit - 1)

    sides = families(head, from_tail), families(tail, from_head)
    for one, other in ((u, v), (v, u)):
        _meet(sides, local[one], local[other], on, open_, limit)


def _meet(
    sides: tuple[list[Families], list[Families]], a: Ints, b: Ints, on: Bools, open_: Ints, limit: int
) -> None:
    """Marks edges with a path from the head to a and one from the tail to b that share no vertex."""
    for i, heads in enumerate(sides[0], 1):
        for tails in sides[1][: limit - 1 - i]:
            for x in range(heads.filled.shape[1]):
                left = open_[~on[open_]]
                left = left[heads.filled[a[left], x]]
                ours = heads.sets[a[left], x]
                apart = ~(ours == b[left][:, None]).any(1)
                left, ours = left[apart], ours[apart]
                for y in range(tails.filled.shape[1]):
                    theirs = tails.sets[b[left], y]
                    meets = (theirs == a[left][:, None]).any(1)
                    for column in range(ours.shape[1]):
                        meets |= (theirs == ours[:, column, None]).any(1)
                    on[left[tails.filled[b[left], y] & ~meets]] = True
