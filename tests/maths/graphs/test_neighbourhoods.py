"""Neighbourhood filters beside a reference in networkx that enumerates every path."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter


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


@pytest.mark.parametrize("seed", range(12))
def test_paths_are_exact_where_two_of_them_must_share_a_bottleneck(seed: int) -> None:
    # Two dense parts joined by few vertices: many walks are short enough, few of them are simple.
    g = torch.Generator().manual_seed(seed)
    left = torch.randint(0, 8, (14, 2), generator=g)
    right = torch.randint(6, 15, (16, 2), generator=g)
    triples = [[h, 0, t] for h, t in torch.cat([left, right]).tolist()]
    graph = Neighbourhood(torch.tensor(triples), 15)
    for limit in (3, 4, 5, 6, 8):
        how = NeighbourhoodFilter(
            6, path_filtering=True, strict_path_filtering=True, max_total_path_length=limit
        )
        for head, tail in ((0, 14), (1, 7), (6, 7)):
            assert graph.select(head, tail, how).tolist() == reference(triples, 15, head, tail, how)
