"""`python -m kgops.workers.tracin_pieces job.toml`: does pieces of a tracing until none is left, or those it is given.

What it says goes to a file of its own, which whoever started it reads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from kgops.errors import Interrupted
from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.jobs.job import Job
from kgops.tracin.pieces import Piece, Pieces, Tile
from kgops.tracin.scan import scan
from kgops.tracin.tests_to_trace import TestTriple
from kgops.tracin.trace import Scoring, candidates
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.report import Reporter
from kgops.workers.tracin_work import Work, load_graph
from kgops.workers.train import find_device

__all__ = ["DEVICE", "FOLDER", "ONLY"]

FOLDER, DEVICE, ONLY = "KGOPS_PIECES", "KGOPS_DEVICE", "KGOPS_ONLY_PIECES"
_LOOK_S = 0.2  # while others have claimed what is left: one of them may die


def pieces(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(os.environ.get(DEVICE) or job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    work = Work(job, load_graph(job.settings), folder, report, stop)
    hand = _Hand(work, work.scoring(work.load(device), device), Pieces.open(Path(os.environ[FOLDER])))
    only = json.loads(os.environ.get(ONLY, "null"))
    try:
        hand.do_all() if only is None else hand.do(only)
    except Interrupted as error:
        raise Stopped from error


@dataclass
class _Hand:
    """One process at work on pieces; it knows the tests by their numbers, and the triples of the last tile."""

    work: Work
    scoring: Scoring
    pieces: Pieces
    _last: tuple[Tile, torch.Tensor, torch.Tensor] | None = None

    @cached_property
    def _tests(self) -> dict[int, TestTriple]:
        return {test.number: test for test in self.work.tests()}

    @cached_property
    def _near(self) -> tuple[Neighbourhood, NeighbourhoodFilter] | None:
        return self.work.near()

    def do(self, names: Iterable[str]) -> None:
        """Those alone, whoever else may be doing them."""
        wanted = frozenset(names)
        for piece in self.pieces:
            if piece.name in wanted and not self.pieces.is_published(piece):
                self._do(piece)

    def do_all(self) -> None:
        """One after the other, each that nobody has claimed, until all are published."""
        while left := [piece for piece in self.pieces if not self.pieces.is_published(piece)]:
            if not any(self._do_if_free(piece) for piece in left):
                time.sleep(_LOOK_S)
            if self.work.stop():
                raise Interrupted("stopped.", "resume the run to go on")

    def _do_if_free(self, piece: Piece) -> bool:
        if self.pieces.is_published(piece):
            return False
        with self.pieces.claimed(piece) as ours:
            if ours:
                self._do(piece)
        return ours

    def _do(self, piece: Piece) -> None:
        train, ids = self._of(piece.tile)
        sink, scoring = self.pieces.sink(), self.scoring
        scan(
            scoring.points,
            scoring.loss,
            train,
            ids,
            sink,
            settings=scoring.settings,
            names=scoring.names,
            share=piece.share,
            report=self.work.report,
            stop_requested=self.work.stop,
        )
        self.pieces.publish(piece, sink)

    def _of(self, tile: Tile) -> tuple[torch.Tensor, torch.Tensor]:
        """The training triples that a tile is scored with, and its own ids."""
        if self._last is None or self._last[0] != tile:
            tests = [self._tests[number] for number in tile.numbers]
            train = self.work.graph.train
            if self._near is not None:
                train = train[candidates(self._near, tests, len(train))[1]]
            self._last = tile, train, torch.tensor([test.ids for test in tests])
        return self._last[1:]


if __name__ == "__main__":
    run_worker(pieces)
