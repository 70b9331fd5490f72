"""Scores test triples in tiles: filters training triples by neighbourhood, scores their union, saves the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.tracin.finished_tests import FinishedTest, FinishedTests
from kgops.maths.tracin.scan import AllScores, Sink, TopTriples
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.worker.report import Report
from kgops.workloads.tracin.options import LARGEST_ALL_SCORES, TRACIN_TESTS

Scorer = Callable[[torch.Tensor, torch.Tensor, Sink, "Report | None", Callable[[], bool]], None]


def attribute_tests(
    scorer: Scorer | None,
    train: torch.Tensor,
    tests: Sequence[TestTriple],
    finished_tests: FinishedTests,
    *,
    top_k: int | None,
    neighbourhood: tuple[Neighbourhood, NeighbourhoodFilter] | None,
    report: Report,
    stop_requested: Callable[[], bool],
    on_finished: Callable[[Sequence[FinishedTest]], None],
    tests_at_once: int | None = None,
) -> int:
    """Scores every test that `finished_tests` lacks and adds it there; returns the number of pairs scored.

    With `neighbourhood`, each test has only the training triples around it; without `scorer` they get no scores.
    The tests of a tile are scored against the union of their triples. `on_finished` is called after each tile.
    """
    done, pairs = sum(test.number in finished_tests for test in tests), 0
    for tile in tiles(
        tests, finished_tests, len(train), top_k if neighbourhood is None else None, tests_at_once
    ):
        tile_report = _TileReport(report, done, len(tile), len(tests))
        finished = [
            FinishedTest(t.number, _no_rows(), torch.empty(0), 0, t.trouble) for t in tile if t.ids is None
        ]
        known = [test for test in tile if test.ids is not None]
        if known:
            ids = torch.tensor([test.ids for test in known])
            if neighbourhood is None and top_k is not None and scorer is not None:
                scored = _strongest(scorer, train, known, ids, top_k, tile_report, stop_requested)
                pairs += len(train) * len(known)
            else:
                rows, union = candidates(neighbourhood, known, len(train))
                scored = _score_candidates(
                    scorer, train, known, ids, rows, union, top_k, tile_report, stop_requested
                )
                pairs += len(union) * len(known) if scorer is not None else 0
            finished = sorted(finished + scored, key=lambda test: test.number)
        finished_tests.add(finished)
        done += len(tile)
        on_finished(finished)
    return pairs


def tiles(
    tests: Sequence[TestTriple],
    finished_tests: FinishedTests,
    trains: int,
    top_k: int | None,
    most: int | None,
) -> list[Sequence[TestTriple]]:
    """Splits the tests that `finished_tests` lacks so that a tile's scores fit in memory.

    `top_k` None: all scores are kept. Keeping only the top k needs almost no memory.
    """
    missing = [test for test in tests if test.number not in finished_tests]
    fitting = min(most or TRACIN_TESTS, max(1, LARGEST_ALL_SCORES // (8 * trains)))
    size = TRACIN_TESTS if top_k is not None else min(TRACIN_TESTS, fitting)
    return [missing[start : start + size] for start in range(0, len(missing), size)]


def _strongest(
    scorer: Scorer,
    train: torch.Tensor,
    tests: Sequence[TestTriple],
    ids: torch.Tensor,
    top_k: int,
    report: Report,
    stop: Callable[[], bool],
) -> list[FinishedTest]:
    sink = TopTriples(top_k)
    scorer(train, ids, sink, report, stop)
    (high, high_ids), (low, low_ids) = sink.proponents, sink.opponents
    # The largest absolute scores are among the highest and the lowest; few triples are in both.
    finished = []
    for i, test in enumerate(tests):
        rows, scores = torch.cat([high_ids[i], low_ids[i]]).cpu(), torch.cat([high[i], low[i]]).cpu()
        rows, first = _distinct(rows)
        finished.append(_finished(test, rows, scores[first], len(train), top_k))
    return finished


def _score_candidates(
    scorer: Scorer | None,
    train: torch.Tensor,
    tests: Sequence[TestTriple],
    ids: torch.Tensor,
    rows: Sequence[torch.Tensor],
    union: torch.Tensor,
    top_k: int | None,
    report: Report,
    stop: Callable[[], bool],
) -> list[FinishedTest]:
    if scorer is None or not len(union):
        return [
            FinishedTest(test.number, own, torch.full((len(own),), torch.nan), len(own))
            for test, own in zip(tests, rows, strict=True)
        ]
    sink = AllScores(len(tests), len(union))
    scorer(train[union], ids, sink, report, stop)
    finished = []
    for i, (test, own) in enumerate(zip(tests, rows, strict=True)):
        scores = sink.scores[i, torch.searchsorted(union, own)]
        finished.append(_finished(test, own, scores, len(own), top_k))
    return finished


def _finished(
    test: TestTriple, rows: torch.Tensor, scores: torch.Tensor, candidates: int, top_k: int | None
) -> FinishedTest:
    """Largest absolute score first; ties by row."""
    by_row = rows.argsort()
    rows, scores = rows[by_row], scores[by_row]
    order = scores.abs().argsort(descending=True, stable=True)[:top_k]
    return FinishedTest(test.number, rows[order].clone(), scores[order].clone(), candidates)


def _distinct(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Unique rows, and the index of the first occurrence of each."""
    order = rows.argsort(stable=True)
    ordered = rows[order]
    first = torch.ones(len(rows), dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first], order[first]


def candidates(
    neighbourhood: tuple[Neighbourhood, NeighbourhoodFilter] | None, tests: Sequence[TestTriple], trains: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Training rows to score for each test, ascending, and their union."""
    if neighbourhood is None:
        everything = torch.arange(trains)
        return [everything] * len(tests), everything
    graph, neighbourhood_filter = neighbourhood
    rows = [
        graph.select(test.ids[0], test.ids[2], neighbourhood_filter) for test in tests if test.ids is not None
    ]
    return rows, torch.unique(torch.cat(rows))


def _no_rows() -> torch.Tensor:
    return torch.empty(0, dtype=torch.long)


class _TileReport:
    """Reports the progress of one tile's pairs as test triples of the whole run."""

    def __init__(self, report: Report, before: int, tests: int, total_tests: int) -> None:
        self._report, self._before, self._tests, self._of = report, before, tests, total_tests

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        each = self._tests / total if total else 0.0
        per_s = None if rate is None else rate * each
        self._report.progress(phase, self._before + done * each, self._of, "test triples", per_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._report, name)
