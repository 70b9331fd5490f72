"""Scores shards of a TracIn run in one process."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property

import torch

from kgops.errors import Interrupted
from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.tracin.attribution import Scoring, candidates
from kgops.maths.tracin.scan import Scanner
from kgops.maths.tracin.shards import Columns, Shard, Shards, StrongestSoFar, Tile
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.tracin.work import Work
from kgops.maths.worker import fence
from kgops.maths.worker.entry import Stopped

# Environment of such a process: folder of its shards and device; or how many tasks share them by number; or that it
# merges the shards of those tasks.
FOLDER, DEVICE, TASKS, MERGE = "KGOPS_SHARDS", "KGOPS_DEVICE", "KGOPS_TASKS", "KGOPS_MERGE"
_LOOK_S = 0.2


@dataclass
class _OpenTile:
    """A tile whose shards this process scores: the scanner of its training triples, and the ids of its tests."""

    tile: Tile
    scanner: Scanner
    tests: torch.Tensor
    strongest: StrongestSoFar | None = None
    ranked: set[Shard] = field(default_factory=set)

    def sink(self, shard: Shard, top_k: int | None) -> StrongestSoFar | Columns:
        if top_k is None:
            return Columns()
        # A shard that is scored again left some of its scores when it failed.
        if self.strongest is None or shard in self.ranked:
            self.strongest = StrongestSoFar(top_k)
            self.ranked = set()
        self.ranked.add(shard)
        return self.strongest


@dataclass
class ShardWorker:
    """Scores and publishes shards; keeps the factors of the last tile."""

    work: Work
    scoring: Scoring
    shards: Shards
    _last: _OpenTile | None = None

    @cached_property
    def _tests(self) -> dict[int, TestTriple]:
        return {test.number: test for test in self.work.tests}

    @cached_property
    def _near(self) -> tuple[Neighbourhood, NeighbourhoodFilter] | None:
        return self.work.neighbourhood()

    def do_named(self, name: str) -> None:
        shard = next(shard for shard in self.shards if shard.name == name)
        if not self.shards.is_published(shard):
            self.do(shard)

    def do_every(self, which: int, of: int) -> None:
        """Scores shards `which`, `which + of`, …: for tasks that cannot see each other's claims."""
        for index, shard in enumerate(self.shards):
            if index % of == which and not self.shards.is_published(shard):
                self.do(shard)

    def do_every_free(self) -> None:
        """Scores every unclaimed shard until all are published; raises `Stopped` on a stop request."""
        left = list(self.shards)
        try:
            while left := [shard for shard in left if not self._is_done_if_free(shard)]:
                time.sleep(_LOOK_S)  # claimed by others, which may die
        except Interrupted as error:
            raise Stopped from error

    def _is_done_if_free(self, shard: Shard) -> bool:
        """Scores the shard if it is unclaimed; whether it is published."""
        if self.work.stop():
            raise Interrupted("stopped.", "resume the run to go on")
        if self.shards.is_published(shard):
            return True
        with self.shards.claimed(shard) as ours:
            if ours:
                self.do(shard)
        return self.shards.is_published(shard)

    def do(self, shard: Shard) -> None:
        opened, work = self._open(shard.tile), self.work
        sink = opened.sink(shard, self.shards.top_k)
        opened.scanner.scan(
            opened.tests, sink, share=shard.share, report=work.report, stop_requested=work.stop
        )
        fence.check()
        self.shards.publish(shard, sink.scores_of(opened.scanner.ids(shard.share)))

    def _open(self, tile: Tile) -> _OpenTile:
        if self._last is None or self._last.tile != tile:
            self._last = None  # free its test factors before computing others
            tests = [self._tests[number] for number in tile.numbers]
            train, scoring = self.work.graph.train, self.scoring
            if self._near is not None:
                train = train[candidates(self._near, tests, len(train))[1]]
            scanner = Scanner(
                scoring.checkpoints,
                scoring.loss,
                train,
                settings=scoring.settings,
                names=scoring.names,
                cleanup=scoring.cleanup,
            )
            self._last = _OpenTile(tile, scanner, torch.tensor([test.ids for test in tests]))
        return self._last
