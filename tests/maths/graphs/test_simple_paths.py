"""Neighbourhood filters, and edges on short simple paths found without listing paths, beside networkx listing them."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.maths.graphs.neighbourhoods import (
    Neighbourhood,
    NeighbourhoodFilter,
    edges_on_short_paths,
    representatives,
)

Edge = tuple[int, int]


def two_cliques(seed: int) -> Any:
    """Joined by few vertices: many short walks, few of them simple."""
    graph: Any = nx.compose(nx.complete_graph(6), nx.complete_graph(range(5 + seed % 2, 11)))
    graph.add_edges_from([(0, 8)] if seed % 2 else [])
    return graph


def with_pendants(seed: int) -> Any:
    """A clique with trees hanging off it, which no simple path comes back from."""
    graph: Any = nx.complete_graph(5)
    for vertex in range(5, 12):
        graph.add_edge(vertex, int(np.random.default_rng((seed, vertex)).integers(vertex)))
    return graph


SHAPES: dict[str, Callable[[int], Any]] = {
    "dense": lambda seed: nx.gnp_random_graph(8, 0.6, seed=seed),
    "sparse": lambda seed: nx.gnm_random_graph(14, 17, seed=seed),
    "between": lambda seed: nx.gnm_random_graph(11, 20, seed=seed),
    "tree": lambda seed: nx.random_labeled_tree(12, seed=seed),
    "tree and an edge or two": lambda seed: nx.compose(
        nx.random_labeled_tree(12, seed=seed), nx.gnm_random_graph(12, 2, seed=seed)
    ),
    "clique with pendants": with_pendants,
    "two cliques": two_cliques,
    "bipartite": lambda seed: nx.bipartite.gnmk_random_graph(5, 6, 17, seed=seed),
    "stars": lambda seed: nx.compose(nx.star_graph(9), nx.gnm_random_graph(10, 4, seed=seed)),
    "long cycle": lambda seed: nx.compose(nx.cycle_graph(10), nx.gnm_random_graph(10, 2, seed=seed)),
    "hubs": lambda seed: nx.barabasi_albert_graph(12, 2, seed=seed),
    "ladder": lambda seed: nx.compose(nx.ladder_graph(6), nx.gnm_random_graph(12, 1, seed=seed)),
}


def listed(graph: Any, head: int, tail: int, limit: int) -> set[Edge]:
    if head == tail:  # networkx lists the path of no edges, or none: no edge either way
        return set()
    paths = nx.all_simple_paths(graph, head, tail, cutoff=limit)
    return {(min(pair), max(pair)) for path in paths for pair in pairwise(path)}


def found(graph: Any, head: int, tail: int, limit: int, trees: int) -> set[Edge]:
    edges = np.array([edge for edge in graph.edges if edge[0] != edge[1]], dtype=np.int64).reshape(-1, 2)
    triples = np.insert(edges, 1, 0, axis=1)
    csr = Neighbourhood(torch.from_numpy(triples), len(graph)).graph
    on = edges_on_short_paths(csr, edges[:, 0], edges[:, 1], head, tail, limit, trees)
    return {(min(pair), max(pair)) for pair in edges[on].tolist()}


# Without trees the families decide every edge, which otherwise only those see that no tree proves.
@pytest.mark.parametrize("trees", [0, 1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_edges_are_those_of_all_simple_paths_listed(shape: str, trees: int) -> None:
    draw = np.random.default_rng(trees)
    for seed in range(6):
        graph = SHAPES[shape](seed)
        for limit in range(1, 8):
            head, tail = draw.choice(len(graph), 2, replace=False).tolist()
            assert found(graph, head, tail, limit, trees) == listed(graph, head, tail, limit)


@pytest.mark.parametrize("limit", [3, 5])
def test_hubs_with_more_neighbours_than_are_tried_first_are_exact_too(limit: int) -> None:
    for seed in range(4):
        graph = nx.compose(nx.barabasi_albert_graph(40, 2, seed=seed), nx.star_graph(30))
        for head, tail in ((1, 2), (0, 39), (35, 37)):
            expected = listed(graph, head, tail, limit)
            assert found(graph, head, tail, limit, 0) == found(graph, head, tail, limit, 4) == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_family_avoids_whatever_some_path_avoids(seed: int) -> None:
    size, avoid, root = 10, 5, 0
    graph = nx.gnm_random_graph(size, 24, seed=seed)
    arcs = sorted((v, u) for x, y in graph.edges if root not in (x, y) for u, v in ((x, y), (y, x)))
    targets, sources = np.array(arcs).T
    everywhere = [np.ones(size, dtype=np.bool_)] * 4
    first = np.array(sorted(graph[root]), dtype=np.int64)
    families = representatives(size, (sources, targets), first, everywhere, avoid)
    for length, family in enumerate(families, 1):
        for vertex in range(1, size):
            paths = nx.all_simple_paths(graph, root, vertex, cutoff=length)
            every = {frozenset(path[1:-1]) for path in paths if len(path) == length + 1}
            kept = {frozenset(x.tolist()) for x in family.sets[vertex][family.filled[vertex]]}
            assert kept <= every
            others = [x for x in range(1, size) if x != vertex]
            for barred in combinations(others, avoid - length):
                assert any(x.isdisjoint(barred) for x in kept) == any(x.isdisjoint(barred) for x in every)


def test_parallel_edges_stay_together_and_loops_never_lie_on_a_path() -> None:
    triples = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 2, 1], [1, 0, 1], [1, 0, 2], [2, 5, 1], [0, 0, 0]])
    how = NeighbourhoodFilter(path_filtering=True, strict_path_filtering=True, max_total_path_length=2)
    graph = Neighbourhood(triples, 3)
    assert graph.select(0, 2, how).tolist() == [0, 1, 2, 4, 5]
    assert graph.select(0, 1, how).tolist() == [0, 1, 2]  # the edge between the two itself
    assert graph.select(1, 1, how).tolist() == []  # no path leads from an entity to itself


def reference(
    triples: list[list[int]], size: int, head: int, tail: int, how: NeighbourhoodFilter
) -> list[int]:
    graph: Any = nx.Graph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from((h, t) for h, _, t in triples)
    balls = [nx.single_source_shortest_path_length(graph, x, cutoff=how.n_hops) for x in (head, tail)]
    near = set(balls[0]) & set(balls[1])
    if not how.strict_hop_constraint:
        near |= {head, tail}
    on = set()
    if how.path_filtering and head != tail:
        for path in nx.all_simple_paths(graph, head, tail, cutoff=how.path_limit):
            on |= {frozenset(pair) for pair in pairwise(path)}
    rows = []
    for row, (h, _, t) in enumerate(triples):
        kept = h in near and t in near
        if not how.strict_path_filtering:
            touches = how.preserve_test_edges and bool({h, t} & {head, tail})
            kept &= touches or max(graph.degree(h), graph.degree(t)) >= how.min_degree
        if how.path_filtering:
            kept &= frozenset((h, t)) in on
        if kept:
            rows.append(row)
    return rows


filters = st.builds(
    lambda strict, paths, **rest: NeighbourhoodFilter(
        path_filtering=paths, strict_path_filtering=strict and paths, **rest
    ),
    strict=st.booleans(),
    paths=st.booleans(),
    n_hops=st.integers(1, 4),
    min_degree=st.integers(0, 5),
    preserve_test_edges=st.booleans(),
    strict_hop_constraint=st.booleans(),
    max_total_path_length=st.sampled_from([None, 1, 2, 3, 4, 5, 6, 7]),
)


@settings(max_examples=400, deadline=None)
@given(
    pairs=st.integers(4, 14).flatmap(
        lambda n: st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=int(2.2 * n)
        )
    ),
    ends=st.tuples(st.integers(0, 13), st.integers(0, 13)),
    how=filters,
)
def test_filters_keep_what_enumerating_all_simple_paths_keeps(
    pairs: list[tuple[int, int]], ends: tuple[int, int], how: NeighbourhoodFilter
) -> None:
    triples = [[h, 0, t] for h, t in pairs]
    graph = Neighbourhood(torch.tensor(triples), 14)
    assert graph.select(*ends, how).tolist() == reference(triples, 14, *ends, how)
