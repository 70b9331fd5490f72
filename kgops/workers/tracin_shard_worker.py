"""One process at work on the pieces of a TracIn run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import torch

from kgops.errors import Interrupted
from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.tracin.attribution import Scoring, candidates
from kgops.tracin.scan import Scanner
from kgops.tracin.shards import Piece, Pieces, Tile
from kgops.tracin.test_triples import TestTriple
from kgops.workers import fence
from kgops.workers.entry import Stopped
from kgops.workers.tracin_work import Work

__all__ = ["DEVICE", "FOLDER", "MERGE", "TASKS", "Hand"]

# What such a process is told by whoever starts it: the folder of its pieces and its device; or how many tasks share
# them by number; or that it merges what those have found.
FOLDER, DEVICE, TASKS, MERGE = "KGOPS_PIECES", "KGOPS_DEVICE", "KGOPS_TASKS", "KGOPS_MERGE"
_LOOK_S = 0.2


@dataclass
class Hand:
    """It knows the tests by their numbers, and has the last tile ready."""

    work: Work
    scoring: Scoring
    pieces: Pieces
    _last: tuple[Tile, Scanner, torch.Tensor] | None = None

    @cached_property
    def _tests(self) -> dict[int, TestTriple]:
        return {test.number: test for test in self.work.tests}

    @cached_property
    def _near(self) -> tuple[Neighbourhood, NeighbourhoodFilter] | None:
        return self.work.near()

    def do_named(self, name: str) -> None:
        piece = next(piece for piece in self.pieces if piece.name == name)
        if not self.pieces.is_published(piece):
            self.do(piece)

    def do_every(self, which: int, of: int) -> None:
        """The `which`th, and every `of`th after it: where nobody can see who has claimed what."""
        for place, piece in enumerate(self.pieces):
            if place % of == which and not self.pieces.is_published(piece):
                self.do(piece)

    def do_every_free(self) -> None:
        """One after the other, each that nobody has claimed, until all are published; `Stopped` where it is stopped."""
        left = list(self.pieces)
        try:
            while left := [piece for piece in left if not self._is_done_if_free(piece)]:
                time.sleep(_LOOK_S)  # others have claimed these, and may die
        except Interrupted as error:
            raise Stopped from error

    def _is_done_if_free(self, piece: Piece) -> bool:
        """Whether it is published, by us where nobody else is at it."""
        if self.work.stop():
            raise Interrupted("stopped.", "resume the run to go on")
        if self.pieces.is_published(piece):
            return True
        with self.pieces.claimed(piece) as ours:
            if ours:
                self.do(piece)
        return self.pieces.is_published(piece)

    def do(self, piece: Piece) -> None:
        scanner, ids = self._of(piece.tile)
        sink, work = self.pieces.sink(), self.work
        scanner.scan(ids, sink, share=piece.share, report=work.report, stop_requested=work.stop)
        fence.check()
        self.pieces.publish(piece, sink)

    def _of(self, tile: Tile) -> tuple[Scanner, torch.Tensor]:
        """What streams the training triples that a tile is scored with, and the tile's own ids."""
        if self._last is None or self._last[0] != tile:
            self._last = None  # its test factors go before others are made
            tests = [self._tests[number] for number in tile.numbers]
            train, scoring = self.work.graph.train, self.scoring
            if self._near is not None:
                train = train[candidates(self._near, tests, len(train))[1]]
            scanner = Scanner(
                scoring.points,
                scoring.loss,
                train,
                settings=scoring.settings,
                names=scoring.names,
                cleanup=scoring.cleanup,
            )
            self._last = tile, scanner, torch.tensor([test.ids for test in tests])
        return self._last[1:]
