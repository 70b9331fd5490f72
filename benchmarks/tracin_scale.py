"""Scaling of TracIn's cost, time of a filtered batch, and all training triples against all tests."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.measure import Line
from benchmarks.tracin_floor import bare_products
from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvE
from kgops.planning.resolve import TRACIN_KERNELS
from kgops.tracin.blocks import Settings, TracinCheckpoint
from kgops.tracin.loss import ONE_TO_N, TracinLoss
from kgops.tracin.scan import AllScores, TopTriples, ordered_blocks, scan

TOP = 100
AT_ONCE = 3072  # tests of `whole`: more take more memory, and less time
BATCH = 20


def curves(graph: Graph, model: ConvE, rounds: int = 3) -> list[Line]:
    """Seconds against training triples, test triples and checkpoints, with the deviation from a straight line."""
    grown = {
        "training triples": [(n, 64, 1) for n in (1024, 2048, 4096, 8192)],
        "test triples": [(1024, n, 1) for n in (512, 1024, 2048, 4096)],
        "checkpoints": [(1024, 64, n) for n in (1, 2, 4, 8)],
    }
    lines: list[Line] = []
    for what, sizes in grown.items():
        taken = [min(_seconds(graph, model, *size) for _ in range(rounds)) for size in sizes]
        counts = [max(size) if what == "training triples" else size[_VARIED[what]] for size in sizes]
        slope, start = np.polyfit(counts, taken, 1)
        off = max(abs(start + slope * n - s) / s for n, s in zip(counts, taken, strict=True))
        shown = ", ".join(f"{n:,}: {s:.2f} s" for n, s in zip(counts, taken, strict=True))
        lines.append(Line("tracin_linearity", f"farthest from a line in {what} ({shown})", "%", (100 * off,)))
    return lines


_VARIED = {"test triples": 1, "checkpoints": 2}


def _seconds(graph: Graph, model: ConvE, trains: int, tests: int, checkpoints: int) -> float:
    test_triples = graph.test[torch.arange(tests) % len(graph.test)]
    begin = time.perf_counter()
    scan(
        [TracinCheckpoint(model, 1.0)] * checkpoints,
        ONE_TO_N,
        graph.train[:trains],
        test_triples,
        TopTriples(TOP),
    )
    return time.perf_counter() - begin


def filtered_batch(graph: Graph, model: ConvE, name: str, loss: TracinLoss, rounds: int = 3) -> list[Line]:
    """The group's kind of batch after loading: filter each, score the union, read each triple's part."""
    draw = torch.Generator().manual_seed(0)
    tests = graph.test[torch.randperm(len(graph.test), generator=draw)[:BATCH]]
    how = NeighbourhoodFilter(n_hops=2, path_filtering=True, max_total_path_length=3)
    near = Neighbourhood(graph.train, graph.num_entities)
    filtering, scoring, whole_batch, bare, sizes = [], [], [], [], []
    products = bare_products(model, loss, tests, Settings().block, Settings().chunk)
    for _ in range(rounds):
        begin = time.perf_counter()
        rows = [near.select(int(h), int(t), how) for h, _, t in tests]
        union = torch.unique(torch.cat(rows))
        between = time.perf_counter()
        sink = AllScores(len(tests), len(union), like=model.entities)
        scan([TracinCheckpoint(model, 1.0)], loss, graph.train[union], tests, sink)
        for i, own in enumerate(rows):
            sink.scores[i, torch.searchsorted(union, own)].abs().argsort(descending=True)
        end = time.perf_counter()
        filtering.append(between - begin)
        scoring.append(end - between)
        whole_batch.append(end - begin)
        bare.append(_seconds_of_blocks(products, graph.train[union]))
        sizes.append(float(len(union)))
    what = f"{BATCH} test triples, 2 hops, paths of at most 3, {name}"
    return [
        Line("tracin_batch_s", f"{what}: filtering", "s", tuple(filtering)),
        Line("tracin_batch_s", f"{what}: scoring and reading", "s", tuple(scoring)),
        Line("tracin_batch_s", f"{what}: all of it", "s", tuple(whole_batch), 1.0),
        Line("tracin_batch_bare_s", f"{what}: bare products of the scoring", "s", tuple(bare)),
        Line("tracin_batch_union", f"{what}: training triples in the union", "triples", tuple(sizes)),
    ]


def _seconds_of_blocks(products: Callable[[torch.Tensor], object], triples: torch.Tensor) -> float:
    blocks = [block.triples for block in ordered_blocks(triples, Settings().block)]
    begin = time.perf_counter()
    for block in blocks:
        products(block)
    return time.perf_counter() - begin


@dataclass
class _OnStderr:
    """Progress for somebody who waits."""

    said: float = 0.0

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        now = time.monotonic()
        if now - self.said > 30 and rate:
            self.said = now
            left = (total - done) / rate / 60
            print(
                f"{done / total:.1%}, {rate / 1e6:.2f} million pairs/s, {left:.0f} min left", file=sys.stderr
            )

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)


def whole(graph: Graph, model: ConvE, share: float) -> list[Line]:
    """All training triples against `share` of the test triples, the top 100 of each kept.

    With a worker's environment, which oneDNN reads at this process's first product: `whole` has to come first.
    """
    os.environ.update(TRACIN_KERNELS)
    many = max(1, round(share * len(graph.test)))
    settings = Settings(block=512, tests_at_once=AT_ONCE)
    begin = time.perf_counter()
    sink = TopTriples(TOP)
    report = _OnStderr()
    scan(
        [TracinCheckpoint(model, 1.0)],
        ONE_TO_N,
        graph.train,
        graph.test[:many],
        sink,
        settings=settings,
        report=report,  # type: ignore[arg-type]  # says progress alone
    )
    seconds = time.perf_counter() - begin
    pairs = many * len(graph.train)
    what = f"{len(graph.train):,} training x {many:,} test triples, top {TOP} of each"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Line("tracin_whole_s", what, "s", (seconds,), 15 * 60.0),
        Line("tracin_whole_pairs_per_s", what, "pairs/s", (pairs / seconds,)),
        Line("tracin_whole_rss_mib", f"{what}: peak RSS of the process", "MiB", (peak,), 1.2 * 1024),
    ]
