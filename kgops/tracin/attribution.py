"""Test triples traced tile by tile: filtered, scored against the union of what is left, and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.tracin.blocks import Point, Settings
from kgops.tracin.finished_tests import Part, Parts
from kgops.tracin.loss import TracinLoss
from kgops.tracin.scan import AllScores, Sink, TopTriples, scan
from kgops.tracin.test_triples import TestTriple
from kgops.training.memory_cleanup import OFF, MemoryCleanup
from kgops.training.reporter import Report

__all__ = ["Scorer", "Scoring", "candidates", "tiles", "trace"]

# Scores of a tile of tests with all training triples, where all are kept.
_SCORES_BYTES = 256 << 20
_MOST_TESTS = 4096


@dataclass(frozen=True)
class Scoring:
    """How pairs are scored: exactly, over these checkpoints."""

    points: Sequence[Point]
    loss: TracinLoss
    settings: Settings
    names: Collection[str] | None = None  # parameters that take part; None: all
    cleanup: MemoryCleanup = OFF

    @property
    def device(self) -> torch.device:
        return next(self.points[0].model.parameters()).device

    def __call__(
        self,
        train: torch.Tensor,
        tests: torch.Tensor,
        sink: Sink,
        report: Report | None,
        stop: Callable[[], bool],
    ) -> None:
        scan(
            self.points,
            self.loss,
            train,
            tests,
            sink,
            settings=self.settings,
            names=self.names,
            report=report,
            stop_requested=stop,
            cleanup=self.cleanup,
        )


Scorer = Callable[[torch.Tensor, torch.Tensor, Sink, "Report | None", Callable[[], bool]], None]


def trace(
    scorer: Scorer | None,
    train: torch.Tensor,
    tests: Sequence[TestTriple],
    parts: Parts,
    *,
    top_k: int | None,
    near: tuple[Neighbourhood, NeighbourhoodFilter] | None,
    report: Report,
    stop_requested: Callable[[], bool],
    when_done: Callable[[Sequence[Part]], None],
    tests_at_once: int | None = None,
) -> int:
    """Every test that `parts` lacks is traced and added there; the number of pairs that were scored.

    `near` leaves each test the training triples around it; without a `scorer` those are all that is found.
    Of a tile's tests one union is scored, and each reads its own part. `when_done` hears of each tile.
    """
    done, pairs = sum(test.number in parts for test in tests), 0
    for tile in tiles(tests, parts, len(train), top_k if near is None else None, tests_at_once):
        telling = _TileReport(report, done, len(tile), len(tests))
        found = [Part(t.number, _none(), torch.empty(0), 0, t.trouble) for t in tile if t.ids is None]
        asked = [test for test in tile if test.ids is not None]
        if asked:
            ids = torch.tensor([test.ids for test in asked])
            if near is None and top_k is not None and scorer is not None:
                scored = _strongest(scorer, train, asked, ids, top_k, telling, stop_requested)
                pairs += len(train) * len(asked)
            else:
                rows, union = candidates(near, asked, len(train))
                scored = _each_its_own(scorer, train, asked, ids, rows, union, top_k, telling, stop_requested)
                pairs += len(union) * len(asked) if scorer is not None else 0
            found = sorted(found + scored, key=lambda part: part.number)
        parts.add(found)
        done += len(tile)
        when_done(found)
    return pairs


def tiles(
    tests: Sequence[TestTriple], parts: Parts, trains: int, top_k: int | None, most: int | None
) -> list[Sequence[TestTriple]]:
    """Of what `parts` lacks: as many tests as scores are kept of; where only the `top_k` are, they take next to
    nothing. `top_k` None: all scores are kept."""
    missing = [test for test in tests if test.number not in parts]
    kept = min(most or _MOST_TESTS, max(1, _SCORES_BYTES // (8 * trains)))
    size = _MOST_TESTS if top_k is not None else min(_MOST_TESTS, kept)
    return [missing[start : start + size] for start in range(0, len(missing), size)]


def _strongest(
    scorer: Scorer,
    train: torch.Tensor,
    tests: Sequence[TestTriple],
    ids: torch.Tensor,
    top_k: int,
    report: Report,
    stop: Callable[[], bool],
) -> list[Part]:
    sink = TopTriples(top_k)
    scorer(train, ids, sink, report, stop)
    (high, high_ids), (low, low_ids) = sink.proponents, sink.opponents
    # The strongest by absolute score are among the highest and the lowest; few triples are in both.
    found = []
    for i, test in enumerate(tests):
        rows, scores = torch.cat([high_ids[i], low_ids[i]]).cpu(), torch.cat([high[i], low[i]]).cpu()
        rows, first = _distinct(rows)
        found.append(_part(test, rows, scores[first], len(train), top_k))
    return found


def _each_its_own(
    scorer: Scorer | None,
    train: torch.Tensor,
    tests: Sequence[TestTriple],
    ids: torch.Tensor,
    rows: Sequence[torch.Tensor],
    union: torch.Tensor,
    top_k: int | None,
    report: Report,
    stop: Callable[[], bool],
) -> list[Part]:
    if scorer is None or not len(union):
        return [
            Part(test.number, own, torch.full((len(own),), torch.nan), len(own))
            for test, own in zip(tests, rows, strict=True)
        ]
    sink = _Grown(len(tests), len(union))
    scorer(train[union], ids, sink, report, stop)
    found = []
    for i, (test, own) in enumerate(zip(tests, rows, strict=True)):
        scores = sink.scores[i, torch.searchsorted(union, own)]
        found.append(_part(test, own, scores, len(own), top_k))
    return found


class _Grown:
    """All scores, in the number format they come in."""

    def __init__(self, tests: int, trains: int) -> None:
        self._shape = tests, trains
        self._all: AllScores | None = None

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None:
        self._all = self._all or AllScores(*self._shape, like=scores)
        self._all.add(first, ids, scores)

    def finish(self) -> None:
        pass

    @property
    def scores(self) -> torch.Tensor:
        assert self._all is not None
        return self._all.scores


def _part(
    test: TestTriple, rows: torch.Tensor, scores: torch.Tensor, candidates: int, top_k: int | None
) -> Part:
    """Strongest first by absolute score; of equal ones the earlier row."""
    by_row = rows.argsort()
    rows, scores = rows[by_row], scores[by_row]
    order = scores.abs().argsort(descending=True, stable=True)[:top_k]
    return Part(test.number, rows[order].clone(), scores[order].clone(), candidates)


def _distinct(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row once, and where it first stood."""
    order = rows.argsort(stable=True)
    ordered = rows[order]
    first = torch.ones(len(rows), dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first], order[first]


def candidates(
    near: tuple[Neighbourhood, NeighbourhoodFilter] | None, tests: Sequence[TestTriple], trains: int
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Rows of the training set for each test, ascending, and their union."""
    if near is None:
        everything = torch.arange(trains)
        return [everything] * len(tests), everything
    graph, how = near
    rows = [graph.select(test.ids[0], test.ids[2], how) for test in tests if test.ids is not None]
    return rows, torch.unique(torch.cat(rows))


def _none() -> torch.Tensor:
    return torch.empty(0, dtype=torch.long)


class _TileReport:
    """Progress of one tile's pairs, told as test triples of the whole run."""

    def __init__(self, report: Report, before: int, tests: int, of: int) -> None:
        self._report, self._before, self._tests, self._of = report, before, tests, of

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        each = self._tests / total if total else 0.0
        per_s = None if rate is None else rate * each
        self._report.progress(phase, self._before + done * each, self._of, "test triples", per_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._report, name)
