"""The neighbourhood of a test triple: edges within hops, and edges on simple paths.

A small *representative family* of paths (Monien 1985) tells whether a path of a given length avoids a few vertices.
Start with any path. For each of its inner vertices add a path that avoids it. Repeat as deep as there are vertices to
avoid. If any path avoids those vertices, a path of the family does too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from kgops.errors import BadInput

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = -1
_SPARE = 4


@dataclass(frozen=True)
class Families:
    """`sets` (vertices, slots, inner vertices) of paths of one length; a slot may be empty."""

    sets: Ints
    filled: Bools


def representatives(
    size: int, arcs: tuple[Ints, Ints], first: Ints, wanted: list[Bools], avoid: int
) -> list[Families]:
    """Families of the paths of length 1, 2, … from a root whose neighbours are `first`.

    The root and the other end are not among the `arcs` (from, to), which are sorted by where they lead. A
    family of length n keeps what can avoid `avoid` - n vertices; it is made where `wanted[n - 1]` says so.
    """
    direct = Families(np.empty((size, 1, 0), dtype=np.int64), np.zeros((size, 1), dtype=np.bool_))
    direct.filled[first, 0] = wanted[0][first]
    families = [direct]
    sources, targets = arcs
    for length, here in enumerate(wanted[1:], 2):
        used = here[targets] & np.asarray(families[-1].filled.any(axis=1))[sources]
        families.append(_longer(families[-1], size, sources[used], targets[used], avoid - length))
    return families


def _longer(before: Families, size: int, sources: Ints, targets: Ints, avoid: int) -> Families:
    """The families of paths one edge longer, along arcs sorted by their targets."""
    arcs = np.bincount(targets, minlength=size)
    rank = np.arange(len(targets)) - (np.cumsum(arcs) - arcs)[targets]
    # Paths over a few neighbours mostly avoid the given vertices. A family is complete if no pick failed, from
    # whichever neighbours it comes. All neighbours are searched only where a pick failed.
    few = avoid + _SPARE
    at, paths, failed = _family(before, size, sources[rank < few], targets[rank < few], avoid)
    doubtful = failed & (arcs > few)
    if doubtful.any():
        again = doubtful[targets]
        more_at, more_paths, _ = _family(before, size, sources[again], targets[again], avoid)
        sure = ~doubtful[at]
        at, paths = np.concatenate([at[sure], more_at]), np.concatenate([paths[sure], more_paths])
    return _packed(size, at, paths)


def _family(
    before: Families, size: int, sources: Ints, targets: Ints, avoid: int
) -> tuple[Ints, Ints, Bools]:
    """Members of families: their end vertex and inner vertices; and the vertices where a pick failed."""
    arc, slot = np.nonzero(before.filled[sources])
    source, target = sources[arc], targets[arc]
    inner = before.sets[source, slot]
    simple = (inner != target[:, None]).all(axis=1)
    at, paths = target[simple], np.column_stack([inner[simple], source[simple]])
    failed = np.zeros(size, dtype=np.bool_)
    picks = _pick(at, paths, np.arange(len(at)), np.arange(size), avoid, failed)
    chosen = np.unique(np.concatenate(picks))
    return at[chosen], paths[chosen], failed


def _pick(at: Ints, paths: Ints, remaining: Ints, queried: Ints, depth: int, failed: Bools) -> list[Ints]:
    """For every vertex the first path among `remaining`; then, for each of its vertices, of those without it.

    A vertex in `queried` without a path is marked as failed: no path to it avoids the vertices excluded so far.
    """
    there = at[remaining]
    begins = np.ones(len(remaining), dtype=np.bool_)
    begins[1:] = there[1:] != there[:-1]
    reached, first = there[begins], remaining[begins]
    missing = np.zeros(len(failed), dtype=np.bool_)
    missing[queried] = True
    missing[reached] = False
    failed |= missing
    picks = [first]
    if depth <= 0 or not len(reached):
        return picks
    members = np.repeat(first, np.diff(np.append(np.flatnonzero(begins), len(remaining))))
    for column in range(paths.shape[1]):
        spared = (paths[remaining] != paths[members, column, None]).all(axis=1)
        picks += _pick(at, paths, remaining[spared], reached, depth - 1, failed)
    return picks


def _packed(size: int, at: Ints, paths: Ints) -> Families:
    order = np.argsort(at, kind="stable")
    at, paths = at[order], paths[order]
    counts = np.bincount(at, minlength=size)
    slot = np.arange(len(at)) - (np.cumsum(counts) - counts)[at]
    filled = np.arange(counts.max(initial=0)) < counts[:, None]
    sets = np.full((*filled.shape, paths.shape[1]), NONE, dtype=np.int64)
    sets[at, slot] = paths
    return Families(sets, filled)


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
    # An edge at the head or tail has only one path to check, so only length decides.
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


@dataclass(frozen=True)
class NeighbourhoodFilter:
    """Filter of the training triples for one test triple.

    An edge is *within the hops* if each of its ends is at most `n_hops` from the test head and from the test tail.
    Without `strict_hop_constraint`, the test head and tail count as within, however far apart. Of the edges within, the
    filter keeps those that touch the test head or tail (`preserve_test_edges`). It also keeps edges with an end of at
    least `min_degree` distinct neighbours. `path_filtering` also requires a simple path from head to tail through the
    edge. This path has at most `max_total_path_length` edges (None: 2 · n_hops). `strict_path_filtering` requires only
    that path and the hops.
    """

    n_hops: int = 2
    min_degree: int = 2
    preserve_test_edges: bool = True
    strict_hop_constraint: bool = False
    path_filtering: bool = False
    max_total_path_length: int | None = None
    strict_path_filtering: bool = False

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
