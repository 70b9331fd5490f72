"""A TracIn run cut into pieces that any process may do, and the folder where they meet.

A piece is a function of the checkpoints, a tile of test triples and a share of the training triples alone. Whoever
finishes one first publishes it. What is merged of them is, bit for bit, what one process alone finds.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.jobs.files import read_json, sync_folder, write_json
from kgops.tracin.ranking import TopK
from kgops.tracin.scan import Share, Sink, TopTriples
from kgops.tracin.test_triples import TestTriple
from kgops.training.torch_files import read_saved

__all__ = ["MERGED_AT_ONCE", "Columns", "Piece", "Pieces", "Tile", "merge_into", "shares_for"]

MERGED_AT_ONCE = 8  # pieces: each merge looks again at all that was found before
_MOST_SHARES = 64  # of a tile: so many processes can work on it, and one that is lost loses so little
_LEAST_SHARE = 2048  # triples
_TESTS_AT_ONCE = 256  # whose factors each piece computes again
_WORTH = 16  # times the work of those factors has to be in a piece


Found = tuple[int, list[torch.Tensor]]
"""The first test of a step, and of the step what a `TopK` is made of, or where all scores are kept, ids and scores."""


@dataclass(frozen=True)
class Tile:
    """Test triples that are traced together, by their numbers; `digest` is of their ids."""

    place: int
    digest: str
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, place: int, tests: Sequence[TestTriple]) -> Tile:
        asked = [test for test in tests if test.ids is not None]
        digest = _digest(torch.tensor([test.ids for test in asked]))
        return cls(place, digest, tuple(test.number for test in asked))


@dataclass(frozen=True)
class Piece:
    tile: Tile
    share: Share

    @property
    def name(self) -> str:
        return f"{self.tile.place:06}-{self.share.which:03}"


class Columns:
    """All scores of some training triples: a sink for where none are left out."""

    def __init__(self) -> None:
        self.found: list[Found] = []

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None:
        self.found.append((first, [ids.cpu(), scores.cpu()]))

    def finish(self) -> None:
        pass


class Pieces:
    """What there is to do, in the order of the tiles, and what is done. `top_k` None keeps all scores."""

    def __init__(self, folder: Path, tiles: Sequence[Tile], shares: int, top_k: int | None) -> None:
        self.folder, self.top_k = folder, top_k
        self._tiles, self._shares = list(tiles), shares

    @classmethod
    def plan(cls, folder: Path, tiles: Sequence[Tile], shares: int, top_k: int | None) -> Pieces:
        """Written down for the others."""
        folder.mkdir(parents=True, exist_ok=True)
        listed = [[tile.place, tile.digest, list(tile.numbers)] for tile in tiles]
        write_json(folder / "plan.json", {"tiles": listed, "shares": shares, "top_k": top_k})
        return cls(folder, tiles, shares, top_k)

    @classmethod
    def open(cls, folder: Path) -> Pieces:
        try:
            table = read_json(folder / "plan.json") or {}
            tiles = [Tile(place, digest, tuple(numbers)) for place, digest, numbers in table["tiles"]]
            return cls(folder, tiles, table["shares"], table["top_k"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{folder} has no plan of pieces.") from error

    def __iter__(self) -> Iterator[Piece]:
        return (piece for tile in self._tiles for piece in self._of(tile))

    def of_tests(self, tests: torch.Tensor, after: int) -> list[Piece]:
        """Of the next tile after that place that has these test triples, given by their ids."""
        digest = _digest(tests)
        return self._of(next(t for t in self._tiles if t.place > after and t.digest == digest))

    def sink(self) -> TopTriples | Columns:
        return Columns() if self.top_k is None else TopTriples(self.top_k)

    def is_published(self, piece: Piece) -> bool:
        return self._path(piece).exists()

    @contextmanager
    def claimed(self, piece: Piece) -> Iterator[bool]:
        """Whether it is ours to do for now. The claim of a process that dies goes with it."""
        fd = os.open(self.folder / f"{piece.name}.claim", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield not self.is_published(piece)
        finally:
            os.close(fd)

    def publish(self, piece: Piece, sink: TopTriples | Columns) -> bool:
        """Whole or not at all, and once: False where another was first, whose piece is as good."""
        found: list[Found]
        if isinstance(sink, Columns):
            found = sink.found
        else:
            found = [(first, [t.cpu() for t in top.tensors()]) for first, top in sink.found.items()]
        body = io.BytesIO()
        torch.save(found, body)
        # A name nobody else has: a process that was given up may be writing the same piece still.
        draft = self.folder / f".{piece.name}.{uuid.uuid4().hex}"
        try:
            with draft.open("xb") as file:
                file.write(body.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, self._path(piece))
            except FileExistsError:
                return False
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self.folder)
        return True

    def read(self, piece: Piece) -> list[Found]:
        try:
            return [(first, list(tensors)) for first, tensors in read_saved(self._path(piece))]
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(f"{self._path(piece)} is no piece of a TracIn run.") from error

    def forget(self, tile: Tile) -> None:
        """What was merged takes no more room; that it was done must stay known."""
        for piece in self._of(tile):
            os.truncate(self._path(piece), 0)

    def _of(self, tile: Tile) -> list[Piece]:
        return [Piece(tile, Share(which, self._shares)) for which in range(self._shares)]

    def _path(self, piece: Piece) -> Path:
        return self.folder / f"{piece.name}.pt"


def merge_into(sink: Sink, pieces: Sequence[Sequence[Found]], top_k: int | None) -> None:
    """What was found in some pieces of a tile, after others or before them: the result is the same."""
    if top_k is None:
        for first, tensors in chain(*pieces):
            sink.add(first, *tensors)
        return
    assert isinstance(sink, TopTriples)
    ranked = defaultdict[int, list[TopK]](list)
    for first, tensors in chain(*pieces):
        ranked[first].append(TopK.of_tensors(top_k, tensors))
    for first, tops in ranked.items():
        into = sink.found.setdefault(first, tops[0])
        if others := [top for top in tops if top is not into]:
            into.merge(*others)


def shares_for(trains: int, tests: int) -> int:
    """How many pieces a tile is cut into; not by who will do them, so that those may come and go."""
    least = max(_LEAST_SHARE, _WORTH * min(tests, _TESTS_AT_ONCE))
    return max(1, min(_MOST_SHARES, trains // least))


def _digest(tests: torch.Tensor) -> str:
    return hashlib.sha256(tests.contiguous().numpy().tobytes()).hexdigest()[:16]
