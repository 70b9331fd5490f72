"""Finds exactly the edges that lie on a simple path of bounded length between two vertices.

Paths are never enumerated. A simple path through the edge u - v is a path from the head to one of them and
one from the tail to the other that share no vertex. For most edges two paths of shortest-path trees happen
to share none, which is proof; for the others, representative families of paths to each vertex decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from kgops.graphs.families import Families, representatives

__all__ = ["Csr", "distances", "edges_on_short_paths"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FAR = 1 << 30


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
    distances = np.full(graph.size, FAR, dtype=np.int64)
    if without is not None:
        distances[without] = -1
    distances[start] = 0
    frontier = np.array([start], dtype=np.int64)
    for depth in range(1, limit + 1):
        reached = graph.arcs(frontier)[1]
        distances[reached[distances[reached] == FAR]] = depth
        frontier = np.flatnonzero(distances == depth)
        if not len(frontier):
            break
    if without is not None:
        distances[without] = FAR
    return distances


@dataclass(frozen=True)
class _Question:
    """The query: which arcs a[i] → b[i], both directions of every edge, lie on paths from head to tail?"""

    graph: Csr
    head: int
    tail: int
    limit: int
    from_head: Ints
    from_tail: Ints
    a: Ints
    b: Ints

    def without(self, settled: Bools) -> _Question:
        return replace(self, a=self.a[~settled], b=self.b[~settled])


def edges_on_short_paths(
    graph: Csr, u: Ints, v: Ints, head: int, tail: int, limit: int, trees: int = 4
) -> Bools:
    """For each edge u[i] - v[i] of the graph: does a simple path of at most `limit` edges use it?

    No edge is on a path from an entity to itself, and no loop on any. `trees` says how many pairs of trees are
    tried before families decide; it changes the time, never the answer.
    """
    on = np.zeros(len(u), dtype=np.bool_)
    if head == tail or limit < 1:
        return on
    # A path meets each end once, so what leads to one end avoids the other.
    from_head = distances(graph, head, limit - 1, without=tail)
    from_tail = distances(graph, tail, limit - 1, without=head)
    from_head[tail] = from_tail[head] = FAR
    forward = from_head[u] + 1 + from_tail[v] <= limit
    backward = from_head[v] + 1 + from_tail[u] <= limit
    u_is_end, v_is_end = (u == head) | (u == tail), (v == head) | (v == tail)
    # An edge at the head or tail has only one path to check, so length alone decides.
    on |= (u_is_end | v_is_end) & (forward | backward)
    on |= u_is_end & v_is_end
    on &= u != v
    inner = ~u_is_end & ~v_is_end & (u != v)
    there, back = np.flatnonzero(inner & forward), np.flatnonzero(inner & backward)
    edge = np.concatenate([there, back])
    a, b = np.concatenate([u[there], v[back]]), np.concatenate([v[there], u[back]])
    question = _Question(graph, head, tail, limit, from_head, from_tail, a, b)
    for proof in (*_by_trees(question, trees), _by_families):
        if not len(edge):
            break
        on[edge[proof(question)]] = True
        settled = on[edge]
        edge, question = edge[~settled], question.without(settled)
    return on


def _by_trees(question: _Question, rounds: int) -> Iterator[Callable[[_Question], Bools]]:
    """Tests by paths of two shortest-path trees, different trees each time. They can prove but not refute."""
    graph, from_head, from_tail = question.graph, question.from_head, question.from_tail
    near = np.flatnonzero((from_head + from_tail <= question.limit) | (from_head == 0) | (from_tail == 0))
    a, b = graph.arcs(near)
    arcs = []
    for away in (from_head, from_tail):
        down = away[b] == away[a] + 1
        arcs.append((a[down], b[down]))
    generator = np.random.default_rng(0)  # the answer does not depend on the trees
    for taken in range(rounds):
        to_root = []
        for parent, child in arcs:
            tree = np.arange(graph.size)
            # The last write sets the parent. The first two trees use the list in both directions, without shuffling.
            order = slice(None, None, 1 - 2 * taken) if taken < 2 else generator.permutation(len(parent))
            tree[child[order]] = parent[order]
            to_root.append(tree)
        yield partial(_apart, to_root[0], to_root[1])


def _apart(to_head: Ints, to_tail: Ints, question: _Question) -> Bools:
    """Whether the paths from a[i] up one tree and from b[i] up the other share no vertex."""
    ups, downs = [question.a], [question.b]
    # Up to the longest path allowed; a path that reached its root stays there, where the other never comes.
    for _ in range(question.limit - 3):
        ups.append(to_head[ups[-1]])
        downs.append(to_tail[downs[-1]])
    apart = np.ones(len(question.a), dtype=np.bool_)
    for i, x in enumerate(ups):
        for y in downs[: question.limit - 2 - i]:
            apart &= x != y
    return apart


def _by_families(question: _Question) -> Bools:
    """Decides all queries at once, by families of short paths from the head and from the tail."""
    from_head, from_tail, limit = question.from_head, question.from_tail, question.limit
    near = np.flatnonzero((from_head + from_tail <= limit) & (from_head > 0) & (from_tail > 0))
    local = np.full(question.graph.size, -1, dtype=np.int64)
    local[near] = np.arange(len(near))
    sources, targets = question.graph.arcs(near)
    inside = local[targets] >= 0
    # The graph is undirected: sorted by their sources, arcs turned round are sorted by their targets.
    arcs = local[targets[inside]], local[sources[inside]]
    a, b = local[question.a], local[question.b]

    def families(root: int, ends: Ints, longest: Ints, to_other: Ints) -> list[Families]:
        latest = np.zeros(len(near), dtype=np.int64)
        np.maximum.at(latest, ends, longest)
        first = local[question.graph.of(root)]
        wanted = _wanted(arcs, latest, limit - to_other[near], limit - 2)
        return representatives(len(near), arcs, first[first >= 0], wanted, limit - 1)

    heads = families(question.head, a, limit - 1 - from_tail[question.b], from_tail)
    tails = families(question.tail, b, limit - 1 - from_head[question.a], from_head)
    return _disjoint_pairs(heads, tails, a, b, limit)


def _wanted(arcs: tuple[Ints, Ints], latest: Ints, longest: Ints, levels: int) -> list[Bools]:
    """Vertices where paths of length 1, 2, … are needed, up to `latest`, or as prefixes of longer ones."""
    sources, targets = arcs
    wanted: list[Bools] = []
    leads_on = np.zeros(len(latest), dtype=np.bool_)
    for length in range(levels, 0, -1):
        wanted.insert(0, (latest >= length) | (leads_on & (longest >= length)))
        leads_on = np.zeros(len(latest), dtype=np.bool_)
        leads_on[sources[wanted[0][targets]]] = True
    return wanted


def _disjoint_pairs(heads: list[Families], tails: list[Families], a: Ints, b: Ints, limit: int) -> Bools:
    """Which a[i] → b[i] have a path from the head to a and one from the tail to b that share no vertex."""
    disjoint = np.zeros(len(a), dtype=np.bool_)
    for i, head_family in enumerate(heads, 1):
        for tail_family in tails[: limit - 1 - i]:
            for x in range(head_family.filled.shape[1]):
                open_edges = np.flatnonzero(~disjoint & head_family.filled[a, x])
                here = head_family.sets[a[open_edges], x]
                apart = (here != b[open_edges][:, None]).all(axis=1)
                open_edges, here = open_edges[apart], here[apart]
                for y in range(tail_family.filled.shape[1]):
                    there = tail_family.sets[b[open_edges], y]
                    overlaps = (there == a[open_edges][:, None]).any(axis=1)
                    for column in here.T:
                        overlaps |= (there == column[:, None]).any(axis=1)
                    disjoint[open_edges[tail_family.filled[b[open_edges], y] & ~overlaps]] = True
    return disjoint
