"""Shards of a TracIn run, which any process can score, and the folder where they are claimed and published.

A shard depends only on the checkpoints, a tile of test triples and a share of the training triples. A process leaves
out scores that its own earlier shards beat. The first process to finish one publishes it. The merged result equals one
process's bit for bit.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.jobs.files import read_json, sync, write_json
from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.tracin.attribution import candidates
from kgops.maths.tracin.results import TopK
from kgops.maths.tracin.scan import Scanner, Scoring, Share, Sink, TopTriples
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.tracin.work import Work
from kgops.maths.train.checkpoints import read_saved
from kgops.maths.worker.entry import Stopped, check_fence

MERGED_AT_ONCE = 8  # shards: each merge looks again at all earlier scores
_MOST_SHARES = 64  # of a tile: bounds how many processes can work on it, and what a lost one loses
_LEAST_SHARE = 2048  # triples
_TESTS_AT_ONCE = 256  # whose factors each shard computes again
_LEAST_RATIO = 16  # a shard's work is at least this many times the work of those factors


ShardScores = tuple[int, list[torch.Tensor]]
"""First test of a step, and the tensors of its `TopK`; ids and scores where all scores are kept."""


@dataclass(frozen=True)
class Tile:
    """Test triples that are scored together, by number; `digest` of their ids."""

    index: int
    digest: str
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, index: int, tests: Sequence[TestTriple]) -> Tile:
        known = [test for test in tests if test.ids is not None]
        digest = _digest(torch.tensor([test.ids for test in known]))
        return cls(index, digest, tuple(test.number for test in known))


@dataclass(frozen=True)
class Shard:
    tile: Tile
    share: Share

    @property
    def name(self) -> str:
        return f"{self.tile.index:06}-{self.share.which:03}"


class Columns:
    """A sink that keeps all scores of a shard."""

    def __init__(self) -> None:
        self._scores: list[ShardScores] = []

    def add(self, first: int, ids: torch.Tensor, scores: torch.Tensor) -> None:
        self._scores.append((first, [ids.cpu(), scores.cpu()]))

    def finish(self) -> None:
        pass

    def scores_of(self, ids: torch.Tensor) -> list[ShardScores]:
        """`ids`: the training triples of the shard."""
        return self._scores


class StrongestSoFar(TopTriples):
    """A sink for all shards of a tile that one process scores, one after another. No shard may come twice.

    Each shard publishes only its scores among the k strongest so far: a later shard has few. The others are behind k
    scores, so the merged result does not change, whatever other processes scored.
    """

    def scores_of(self, ids: torch.Tensor) -> list[ShardScores]:
        """`ids`: the training triples of the last shard."""
        return [(first, [t.cpu() for t in top.only(ids).tensors()]) for first, top in self.rankings.items()]


class Shards:
    """All shards of a run, in the order of the tiles, and which are published. `top_k` None keeps all scores."""

    def __init__(self, folder: Path, tiles: Sequence[Tile], shares: int, top_k: int | None) -> None:
        self.folder, self.top_k = folder, top_k
        self._tiles, self._shares = list(tiles), shares

    @classmethod
    def plan(cls, folder: Path, tiles: Sequence[Tile], shares: int, top_k: int | None) -> Shards:
        """Writes the plan to the folder, for the other processes."""
        folder.mkdir(parents=True, exist_ok=True)
        listed = [[tile.index, tile.digest, list(tile.numbers)] for tile in tiles]
        write_json(folder / "plan.json", {"tiles": listed, "shares": shares, "top_k": top_k})
        return cls(folder, tiles, shares, top_k)

    @classmethod
    def open(cls, folder: Path) -> Shards:
        try:
            table = read_json(folder / "plan.json") or {}
            tiles = [Tile(index, digest, tuple(numbers)) for index, digest, numbers in table["tiles"]]
            return cls(folder, tiles, table["shares"], table["top_k"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{folder} has no plan of shards.") from error

    def __iter__(self) -> Iterator[Shard]:
        return (shard for tile in self._tiles for shard in self._of(tile))

    def of_tests(self, tests: torch.Tensor, after: int) -> list[Shard]:
        """The shards of the first tile after place `after` that has these test triples, given by their ids."""
        digest = _digest(tests)
        return self._of(next(t for t in self._tiles if t.index > after and t.digest == digest))

    def is_published(self, shard: Shard) -> bool:
        return self._path(shard).exists()

    @contextmanager
    def claimed(self, shard: Shard) -> Iterator[bool]:
        """Whether this process holds the claim. A claim ends with its process."""
        fd = os.open(self.folder / f"{shard.name}.claim", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield not self.is_published(shard)
        finally:
            os.close(fd)

    def publish(self, shard: Shard, scores: list[ShardScores]) -> bool:
        """Atomic, and only once: False if another process was first."""
        body = io.BytesIO()
        torch.save(scores, body)
        # A unique name: a process taken for lost may still be writing this shard.
        draft = self.folder / f".{shard.name}.{uuid.uuid4().hex}"
        try:
            with draft.open("xb") as file:
                file.write(body.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, self._path(shard))
            except FileExistsError:
                return False
        finally:
            draft.unlink(missing_ok=True)
        sync(self.folder)
        return True

    def read(self, shard: Shard) -> list[ShardScores]:
        try:
            return [(first, list(tensors)) for first, tensors in read_saved(self._path(shard))]
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(f"{self._path(shard)} is no shard of a TracIn run.") from error

    def forget(self, tile: Tile) -> None:
        """Empties the files of a merged tile; they stay to show that its shards are done."""
        for shard in self._of(tile):
            os.truncate(self._path(shard), 0)

    def _of(self, tile: Tile) -> list[Shard]:
        return [Shard(tile, Share(which, self._shares)) for which in range(self._shares)]

    def _path(self, shard: Shard) -> Path:
        return self.folder / f"{shard.name}.pt"


def merge_into(sink: Sink, shards: Sequence[Sequence[ShardScores]], top_k: int | None) -> None:
    """Merges some shards of a tile into `sink`; their order does not matter."""
    if top_k is None:
        for first, tensors in chain(*shards):
            sink.add(first, *tensors)
        return
    assert isinstance(sink, TopTriples)
    ranked = defaultdict[int, list[TopK]](list)
    for first, tensors in chain(*shards):
        ranked[first].append(TopK.of_tensors(top_k, tensors))
    for first, tops in ranked.items():
        into = sink.rankings.setdefault(first, tops[0])
        if others := [top for top in tops if top is not into]:
            into.merge(*others)


def shards_per_tile(trains: int, tests: int) -> int:
    """Shards in a tile; independent of the number of processes, which may change during the run."""
    least = max(_LEAST_SHARE, _LEAST_RATIO * min(tests, _TESTS_AT_ONCE))
    return max(1, min(_MOST_SHARES, trains // least))


def _digest(tests: torch.Tensor) -> str:
    return hashlib.sha256(tests.contiguous().numpy().tobytes()).hexdigest()[:16]


# Environment of such a process: folder of its shards, and device. Or how many tasks share them by number. Or that it
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
        while left := [shard for shard in left if not self._is_done_if_free(shard)]:
            time.sleep(_LOOK_S)  # claimed by others, which may die

    def _is_done_if_free(self, shard: Shard) -> bool:
        """Scores the shard if it is unclaimed; whether it is published."""
        if self.work.stop():
            raise Stopped
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
        check_fence()
        self.shards.publish(shard, sink.scores_of(opened.scanner.ids(shard.share)))

    def _open(self, tile: Tile) -> _OpenTile:
        if self._last is None or self._last.tile != tile:
            self._last = None  # free its test factors before computing others
            tests = [self._tests[number] for number in tile.numbers]
            train = self.work.graph.train
            if self._near is not None:
                train = train[candidates(self._near, tests, len(train))[1]]
            self._last = _OpenTile(
                tile, Scanner(self.scoring, train), torch.tensor([test.ids for test in tests])
            )
        return self._last
