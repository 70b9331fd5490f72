"""Which edges lie on a simple path between two vertices that is no longer than a limit: exactly.

Paths are never enumerated. A simple path through the edge u - v is two paths from {u, v} to the two
ends that share no vertex, so the shortest such path is a cheapest flow of two units. Most edges need no
flow: if two paths of shortest-path trees happen to share no vertex, that is proof enough.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    search = _Search(graph, head, tail, limit, np.minimum(from_head, from_tail))
    for i in open_.tolist():
        on[i] = search.shortest_through(int(u[i]), int(v[i])) <= limit
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


class _Search:
    """Two paths from {u, v} to {head, tail} that share no vertex, of least total length."""

    def __init__(self, graph: Csr, head: int, tail: int, limit: int, to_end: Ints) -> None:
        self.graph, self.head, self.tail, self.limit, self.to_end = graph, head, tail, limit, to_end

    def shortest_through(self, u: int, v: int) -> int:
        """Edges of the shortest simple path that uses u - v; more than the limit if there is none."""
        budget = self.limit - 1
        first = self._first(u, v, budget)
        if first is None:
            return FAR
        used = len(first) - 1
        start = v if first[0] == u else u
        goal = self.tail if first[-1] == self.head else self.head
        rest = self._second(start, goal, first, budget - used)
        return FAR if rest is None else 1 + used + rest

    def _first(self, u: int, v: int, budget: int) -> list[int] | None:
        """The shortest of all paths from u or v to one of the ends."""
        came = {u: -1, v: -1}
        layer = [u, v]
        for depth in range(1, budget + 1):
            after = []
            for x in layer:
                for y in self._towards(x, budget - depth):
                    if y in came:
                        continue
                    came[y] = x
                    if y in (self.head, self.tail):
                        path = [y]
                        while came[path[-1]] >= 0:
                            path.append(came[path[-1]])
                        return path[::-1]
                    after.append(y)
            layer = after
        return None

    def _towards(self, x: int, left: int) -> list[int]:
        """Neighbours from which an end may be `left` edges away."""
        near = self.graph.of(x)
        found: list[int] = near[self.to_end[near] <= left].tolist()
        return found

    def _second(self, start: int, goal: int, first: list[int], budget: int) -> int | None:
        """What a second path adds, where it may take over parts of the first (residual network).

        Entering a vertex of the first path means to go back along it, at -1 an edge. States are
        (vertex, whether it may be left by any edge), and costs are corrected until none improves.
        """
        before = dict(zip(first[1:], first, strict=False))
        best: dict[tuple[int, bool], int] = {(start, True): 0}
        waiting = deque([(start, True)])
        # Each step back gains an edge and may lead an edge away from the goal.
        slack = 2 * (len(first) - 1)

        def reach(state: tuple[int, bool], cost: int) -> None:
            if cost < best.get(state, FAR):
                best[state] = cost
                waiting.append(state)

        while waiting:
            x, free = waiting.popleft()
            cost = best[x, free]
            if x in before and not free:
                reach((before[x], True), cost - 1)
                continue
            if x in before:
                reach((before[x], True), cost - 1)
            if x == goal or x == first[-1]:
                continue
            follows = first[first.index(x) + 1] if x in first else -1
            for y in self._towards(x, budget + slack - cost - 1):
                if y == follows or y == first[0]:
                    continue
                reach((y, y not in before), cost + 1)
        found = best.get((goal, True))
        return found if found is not None and found <= budget else None
