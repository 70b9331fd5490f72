"""Scores all training triples against the test triples, block by block, summed over the checkpoints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import torch

from kgops.errors import BadInput
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.engines import AnyEngine, engines_for
from kgops.maths.tracin.loss import TracinLoss
from kgops.maths.tracin.models import Facts, architecture_of, facts_of
from kgops.maths.tracin.results import TopK
from kgops.maths.train.batches import lexicographic
from kgops.maths.worker.entry import Stopped
from kgops.maths.worker.memory_cleanup import OFF, MemoryCleanup
from kgops.maths.worker.report import Progress, Report
from kgops.workloads.tracin.options import TRACIN_MERGED_COLUMNS, TRACIN_TEST_BYTES, TRACIN_TESTS


def trim_heap() -> None:
    """Nothing with other C libraries."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


_TRIMMED_EVERY = 16  # blocks


class Sink(Protocol):
    """Receives blocks of scores: of tests `first`, `first + 1`, … with the training triples `ids`."""

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None: ...

    def finish(self) -> None: ...


class AllScores:
    """All scores (tests, trains) in the dtype of the first block, in memory or in `out`, which may be memory-mapped."""

    def __init__(self, tests: int, trains: int, *, out: torch.Tensor | None = None) -> None:
        self._shape, self._all = (tests, trains), out

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None:
        if self._all is None:
            self._all = torch.zeros(self._shape, dtype=scores.dtype)
        self._all[first : first + len(scores), ids.to(self._all.device)] = scores.to(self._all)

    def finish(self) -> None:
        pass

    @property
    def scores(self) -> torch.Tensor:
        assert self._all is not None
        return self._all


class TopTriples:
    """The k highest and k lowest scores of each test triple; ties go to the smaller id.

    After `finish`, `rankings[i]` holds the tile of tests that begins at i. `proponents` and `opponents` are
    (scores, ids), each (tests, at most k), best first.
    """

    def __init__(self, k: int, *, merge_columns: int = TRACIN_MERGED_COLUMNS) -> None:
        self.k, self._columns = k, merge_columns
        self.rankings: dict[int, TopK] = {}
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._first = 0

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None:
        if first != self._first:
            self.finish()
        self._first = first
        # Each ranking step looks at all candidates again: a few blocks together cost less.
        self._waiting.append((ids, scores))
        if sum(len(waiting) for waiting, _ in self._waiting) >= self._columns:
            self.finish()

    def finish(self) -> None:
        if not self._waiting:
            return
        ids = torch.cat([waiting for waiting, _ in self._waiting])
        scores = torch.cat([waiting for _, waiting in self._waiting], dim=1)
        self._waiting = []
        if self._first not in self.rankings:
            self.rankings[self._first] = TopK(len(scores), self.k, like=scores)
        self.rankings[self._first].add(scores, ids)

    @property
    def proponents(self) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = [self.rankings[first].proponents for first in sorted(self.rankings)]
        return torch.cat([t.scores for t in tiles]), torch.cat([t.ids for t in tiles])

    @property
    def opponents(self) -> tuple[torch.Tensor, torch.Tensor]:
        tiles = [self.rankings[first].opponents for first in sorted(self.rankings)]
        return torch.cat([t.scores for t in tiles]), torch.cat([t.ids for t in tiles])


@dataclass(frozen=True)
class Share:
    """Share `which` of `of` of the training triples, in whole blocks."""

    which: int = 0
    of: int = 1

    def of_blocks(self, triples: int, size: int) -> tuple[int, int]:
        """First block, and one past the last."""
        blocks = -(-triples // size)
        return blocks * self.which // self.of, blocks * (self.which + 1) // self.of

    def triples(self, triples: int, size: int) -> int:
        first, end = self.of_blocks(triples, size)
        return min(triples, end * size) - min(triples, first * size)


ALL = Share()


@dataclass(frozen=True)
class Scoring:
    """Scores all pairs of training and test triples, summed over the checkpoints."""

    checkpoints: Sequence[TracinCheckpoint]
    loss: TracinLoss
    settings: Settings = field(default_factory=Settings)
    names: Collection[str] | None = None  # parameters whose gradients count; None: all
    cleanup: MemoryCleanup = OFF

    @property
    def device(self) -> torch.device:
        return next(self.checkpoints[0].model.parameters()).device

    def __call__(
        self,
        train: torch.Tensor,
        tests: torch.Tensor,
        sink: Sink,
        report: Report | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        Scanner(self, train).scan(tests, sink, report=report, stop_requested=stop)

    def self_influence(
        self,
        triples: torch.Tensor,
        report: Report | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> torch.Tensor:
        """influence(z, z) of every triple, in the order given."""
        engines, facts = self.engines(), facts_of(self.checkpoints[0].model)
        check_ids(facts, triples, "training")
        triples = triples.to(facts.like.device)
        out = facts.like.new_zeros(len(triples))
        progress = None if report is None else Progress(report, "self-influence", "triples")
        done = 0
        for ids in torch.split(lexicographic(triples), self.settings.block):
            if stop():
                raise Stopped
            block = triples[ids]
            for engine in engines:
                out[ids] += engine.self_scores(block)
            done += len(ids)
            self.cleanup.after_step()
            if progress is not None:
                progress(done, len(triples))
        return out

    def engines(self) -> list[AnyEngine]:
        """Of each checkpoint."""
        if not self.checkpoints:
            raise BadInput(
                "there is no checkpoint to score with.", hint="train with --checkpoint-frequency 2."
            )
        architecture = architecture_of(self.checkpoints[0].model)
        if any(architecture_of(checkpoint.model) != architecture for checkpoint in self.checkpoints):
            raise BadInput(
                "the checkpoints are of models of different sizes.", hint="give checkpoints of one training."
            )
        return engines_for(self.checkpoints, self.loss, self.settings, self.names)


class Scanner:
    """The training triples, sorted for scoring against one tile of test triples after another.

    Triples have relation ids as in the files; a sink's `ids` are rows of `train`. The factors of the last test triples
    are kept until other tests come: the next shard often needs them again.
    """

    def __init__(self, scoring: Scoring, train: torch.Tensor) -> None:
        self._settings, self._cleanup = scoring.settings, scoring.cleanup
        self._engines = scoring.engines()
        self._facts = facts_of(scoring.checkpoints[0].model)
        check_ids(self._facts, train, "training")
        self._train = train.to(self._facts.like.device)
        self._order = lexicographic(self._train)
        self._kept: tuple[torch.Tensor, list[Any]] | None = None

    def scan(
        self,
        tests: torch.Tensor,
        sink: Sink,
        *,
        share: Share = ALL,
        report: Report | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        """Sends the scores of all pairs to `sink`, summed over the checkpoints.

        Raises `Stopped` soon after `stop_requested` returns true; the sink's scores are valid then. With a `share`
        of the training triples, each score equals the full scan's bit for bit.
        """
        facts, train, size = self._facts, self._train, self._settings.block
        check_ids(facts, tests, "test")
        tests = tests.to(facts.like.device)
        step = self._settings.tests_at_once or tests_that_fit(
            self._engines, self._settings, facts.like.element_size()
        )
        progress = None if report is None else Progress(report, "tracin", "pairs")
        blocks = range(*share.of_blocks(len(train), size))
        done, total = 0, share.triples(len(train), size) * len(tests)
        for first in range(0, len(tests), step):
            tile = tests[first : first + step]
            kept = self._keep(tile)
            for position in blocks:
                if stop_requested():
                    raise Stopped
                ids = self._order[position * size : (position + 1) * size]
                sink.add(first, ids, _summed(self._engines, kept, train[ids]))
                done += len(tile) * len(ids)
                self._cleanup.after_step()
                if (position + 1) % _TRIMMED_EVERY == 0:
                    trim_heap()
                if progress is not None:
                    progress(done, total)
            del kept  # before the next tile's factors are computed
            self._cleanup.between_phases()
        sink.finish()

    def ids(self, share: Share) -> torch.Tensor:
        """The training triples of a share, as a sink gets them."""
        first, end = share.of_blocks(len(self._train), self._settings.block)
        return self._order[first * self._settings.block : end * self._settings.block]

    def _keep(self, tile: torch.Tensor) -> list[Any]:
        if self._kept is None or not torch.equal(self._kept[0], tile):
            self._kept = None
            trim_heap()
            self._kept = tile, [self._factors(engine, tile) for engine in self._engines]
        return self._kept[1]

    def _factors(self, engine: AnyEngine, tile: torch.Tensor) -> Any:
        kept = engine.keep(tile)
        self._cleanup.between_phases()
        return kept


def _summed(engines: Sequence[AnyEngine], kept: Sequence[Any], triples: torch.Tensor) -> torch.Tensor:
    """Sum over the checkpoints, in their order, so that every process gets equal bits."""
    scores = engines[0].scores(kept[0], triples)
    for engine, factors in zip(engines[1:], kept[1:], strict=True):
        scores += engine.scores(factors, triples)
    return scores


def tests_that_fit(engines: Sequence[AnyEngine], settings: Settings, element_size: int) -> int:
    each = sum(engine.floats_per_test for engine in engines) * element_size
    each *= 2 if settings.both_directions else 1
    return max(1, min(TRACIN_TESTS, TRACIN_TEST_BYTES // each))


def check_ids(facts: Facts, triples: torch.Tensor, what: str) -> None:
    if triples.dim() != 2 or triples.shape[1] != 3 or not len(triples):
        raise BadInput(f"there are no {what} triples.", hint="each is head, relation, tail.")
    sizes = ((0, facts.entities, "entity"), (1, facts.relations, "relation"), (2, facts.entities, "entity"))
    for column, most, kind in sizes:
        low, high = int(triples[:, column].min()), int(triples[:, column].max())
        if low < 0 or high >= most:
            raise BadInput(
                f"the {what} triples name {kind} {high if high >= most else low}; the model has {most:,}.",
                hint="use the vocabulary the model was trained with.",
            )
