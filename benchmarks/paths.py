"""Path filtering against networkx's path enumeration: `python -m benchmarks.paths --data DIR`.

networkx lists every simple path and is stopped after --patience seconds; the ratio is then a lower bound. Results are
compared if it finished.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, store, table
from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter, edges_on_short_paths
from kgops.graphs.triples import Graph, read_graph
from kgops.jobs.numbers import finite_number

TARGET = 100.0  # at length 4


def edges_of(graph: Neighbourhood) -> tuple[Any, Any]:
    """Both ends of every edge, each edge once."""
    vertices = np.arange(graph.graph.size)
    a, b = graph.graph.arcs(vertices)
    return a[a < b], b[a < b]


def ours(graph: Neighbourhood, head: int, tail: int, limit: int) -> tuple[float, set[tuple[int, int]]]:
    a, b = edges_of(graph)
    begin = time.perf_counter()
    on = edges_on_short_paths(graph.graph, a, b, head, tail, limit)
    seconds = time.perf_counter() - begin
    return seconds, set(zip(a[on].tolist(), b[on].tolist(), strict=True))


def _enumerate(graph: Any, head: int, tail: int, limit: int, answer: Connection) -> None:
    import networkx as nx  # type: ignore[import-untyped]  # ships no types

    begin = time.perf_counter()
    on: set[tuple[int, int]] = set()
    for path in nx.all_simple_paths(graph, head, tail, cutoff=limit):
        on |= {(min(pair), max(pair)) for pair in pairwise(path)}
    answer.send((time.perf_counter() - begin, on))


def theirs(
    graph: Any, head: int, tail: int, limit: int, patience_s: float
) -> tuple[float, set[tuple[int, int]]] | None:
    """Result of networkx; None after a timeout. Runs in a separate process that can be stopped."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_enumerate, args=(graph, head, tail, limit, sender))
    process.start()
    sender.close()
    answer: tuple[float, set[tuple[int, int]]] | None = None
    try:
        if receiver.poll(patience_s):
            answer = receiver.recv()
    finally:
        process.kill()
        process.join()
        receiver.close()
    return answer


def sampled(graph: Graph, many: int) -> list[tuple[int, int]]:
    draw = torch.Generator().manual_seed(0)
    rows = graph.test[torch.randperm(len(graph.test), generator=draw)]
    pairs: list[tuple[int, int]] = [tuple(row) for row in rows[:, [0, 2]].tolist() if row[0] != row[1]]
    return pairs[:many]


def beside_networkx(
    graph: Graph, near: Neighbourhood, many: int, length: int, patience_s: float
) -> list[Line]:
    import networkx as nx

    plain: Any = nx.Graph()
    plain.add_nodes_from(range(near.graph.size))
    a, b = edges_of(near)
    plain.add_edges_from(zip(a.tolist(), b.tolist(), strict=True))
    ratios: list[float] = []
    cut = 0
    for head, tail in sampled(graph, many):
        mine, edges = ours(near, head, tail, length)
        answer = theirs(plain, head, tail, length, patience_s)
        if answer is None:
            cut += 1
            ratios.append(patience_s / mine)
            continue
        if answer[1] != edges:
            raise SystemExit(f"different edges for {head} and {tail}: {len(answer[1])} and {len(edges)}")
        ratios.append(answer[0] / mine)
    which = f"networkx / ours, paths of at most {length}, {many} pairs" + (
        f", {cut} of them cut at {patience_s:g} s" if cut else ""
    )
    return [
        Line("path_filter_ratio", which, "x", tuple(ratios), TARGET if length == 4 else None, at_least=True)
    ]


def own_times(graph: Graph, near: Neighbourhood, many: int) -> list[Line]:
    degrees = np.diff(near.graph.starts)
    hubs = np.argsort(-degrees)[:6].tolist()
    pairs = {
        "test triples": sampled(graph, many),
        "pairs of the six largest hubs": [(a, b) for a in hubs for b in hubs if a < b],
    }
    lines = []
    for limit in (3, 4, 6):
        for which, chosen in pairs.items():
            taken = [ours(near, head, tail, limit)[0] * 1000 for head, tail in chosen]
            lines.append(Line("path_filter_ms", f"at most {limit} edges, {which}", "ms", tuple(taken)))
            worst = (max(taken),)
            lines.append(Line("path_filter_worst_ms", f"at most {limit} edges, {which}, worst", "ms", worst))
    return lines


def whole_filters(graph: Graph, near: Neighbourhood) -> list[Line]:
    built = []
    for _ in range(5):
        begin = time.perf_counter()
        Neighbourhood(graph.train, graph.num_entities)
        built.append((time.perf_counter() - begin) * 1000)
    how = NeighbourhoodFilter(n_hops=2, path_filtering=True, max_total_path_length=3)
    batches = []
    for _ in range(3):
        begin = time.perf_counter()
        for head, tail in sampled(graph, 20):
            near.select(head, tail, how)
        batches.append((time.perf_counter() - begin) * 1000)
    return [
        Line("neighbourhood_build_ms", "the graph, built once", "ms", tuple(built)),
        Line("neighbourhood_batch_ms", "20 test triples, 2 hops, paths of at most 3", "ms", tuple(batches)),
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.txt and test.txt")
    parser.add_argument("--pairs", type=int, default=30, help="number of test triples for networkx")
    parser.add_argument("--length", type=int, default=4, help="longest path that networkx lists")
    parser.add_argument(
        "--patience", type=finite_number, default=20.0, help="seconds before networkx is stopped"
    )
    parser.add_argument("--store", action="store_true", help="keep the values in the database")
    args = parser.parse_args(argv)
    graph = read_graph(args.data / "train.txt", None, args.data / "test.txt")
    near = Neighbourhood(graph.train, graph.num_entities)
    print(f"{graph.num_entities:,} entities, {len(graph.train):,} triples; {quietness()}")
    lines = whole_filters(graph, near) + own_times(graph, near, 100)
    lines += beside_networkx(graph, near, args.pairs, args.length, args.patience)
    print("\n".join(table(lines)))
    ratios = lines[-1].values
    print(
        f"ratios from {min(ratios):.3g} to {max(ratios):.3g}, geometric mean {statistics.geometric_mean(ratios):.3g}"
    )
    if args.store:
        store(lines, f"python -m benchmarks.paths --data DIR --pairs {args.pairs}")
    return 0


if __name__ == "__main__":
    run(main)
