"""Discrete-event simulation of a TracIn run by many processes: when each shard starts, is published and merged.

It follows the rules of `kgops.tracin.shards` and its workers; the costs of the steps are given.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["Case", "Costs", "Cut", "Fleet", "Outcome", "simulate"]

POLL_S = 0.05  # poll interval of the merging process
SCORE_BYTES, ID_BYTES = 4, 8  # of what is kept of a pair

Handing = Literal["claims", "numbers", "asked"]
Merging = Literal["beside", "after", "workers"]


@dataclass(frozen=True)
class Costs:
    """Seconds, of one core of the machine where they were measured."""

    start_s: float  # start of a process on a graph without triples
    load_s: float  # more, for each training triple that another process has read
    text_s: float  # for each that it has to read as text
    order_s: float  # for each training triple, whenever a process begins another tile
    keep_s: float  # the factors of a test triple at a checkpoint
    make_s: float  # those of a training triple, for each step of test triples
    pair_s: float  # their product, ranked
    look_s: float  # is a shard published?
    claim_s: float
    publish_s: float  # a shard without scores
    publish_score_s: float  # more, for each score kept
    read_s: float
    read_score_s: float  # a score read and merged
    part_s: float  # a merged score made the result of its test triple, in `parts/`
    write_s: float  # a row of the files for people
    piece_bytes: float  # of a shard without scores
    row_bytes: float  # of the files for people
    test_bytes: float  # of what is kept of a test triple and checkpoint, beside a number for each entity under one-to-n
    triple_bytes: float  # of a process's memory, for each training triple
    crowd: float = 1.0  # how much longer everything takes while the other core works too


@dataclass(frozen=True)
class Case:
    trains: int
    tests: int
    top_k: int
    checkpoints: int = 1
    line_bytes: int = 30  # of a training triple in its file


@dataclass(frozen=True)
class Cut:
    """`tile` test triples are merged together, of which the factors of `step` are kept at once."""

    tile: int
    shares: int
    step: int

    def tiles(self, tests: int) -> list[int]:
        return [min(self.tile, tests - first) for first in range(0, tests, self.tile)]


@dataclass(frozen=True)
class Fleet:
    """`speeds` of the workers' devices, as cores of the measured machine; their CPUs are like its own.

    `handing`: a worker claims shards, has shards by number, or is given one after the other.
    `merging`: by a process beside the workers, by a process after them, or by the worker of a tile's last shard.
    """

    speeds: tuple[float, ...]
    handing: Handing = "claims"
    merging: Merging = "beside"
    latency_s: float = 0.0  # of the shared file system, for each call
    bandwidth: float = float("inf")  # its bytes a second, for all
    ordered_once: bool = False  # the training triples keep their order from tile to tile


@dataclass
class Outcome:
    """`spent` splits `seconds` by activity; for workers it is their mean."""

    seconds: float
    spent: dict[str, float]
    shards: int
    bytes_published: float
    bytes_moved: float
    merged_s: float  # of work in merging and writing, wherever it is done

    @property
    def efficiency(self) -> float:
        return self.spent["scoring"] / self.seconds

    @property
    def bottleneck(self) -> str:
        others = {name: s for name, s in self.spent.items() if name != "scoring"}
        return max(others, key=others.__getitem__)


def simulate(case: Case, cut: Cut, fleet: Fleet, costs: Costs) -> Outcome:
    return _Play(case, cut, fleet, costs).outcome()


class _Event(NamedTuple):
    """Events of equal time are ordered by creation; tuples compare fast."""

    at: float
    made: int
    kind: str
    who: int
    shard: int


class _Play:
    def __init__(self, case: Case, cut: Cut, fleet: Fleet, costs: Costs) -> None:
        self.case, self.cut, self.fleet, self.costs = case, cut, fleet, costs
        self.tiles = cut.tiles(case.tests)
        self.shards = len(self.tiles) * cut.shares
        self.events: list[_Event] = []
        self.made = 0
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.last_tile: dict[int, int] = {}
        self.come_to: dict[int, int] = {}  # position of each claiming worker
        self.assigned = self._assigned()
        self.next = 0  # of those handed out in their order
        self.busy = 0
        self.moved = 0.0
        self.disk_free = 0.0
        self.published: Counter[int] = Counter()  # shards of each tile
        self.tile_now = 0  # that is being merged
        self.merged = 0  # its merged shards
        self.merging_until = 0.0
        self.merged_s = 0.0
        self.ends: list[float] = []

    def outcome(self) -> Outcome:
        steps = {
            "free": self._begin,
            "scored": self._publish,
            "published": self._published,
            "merge": self._merge,
        }
        for who in range(len(self.fleet.speeds)):
            self._at(self._load(who), "free", who)
        while self.events:
            event = heapq.heappop(self.events)
            steps[event.kind](event)
        workers_end = max(self.ends)
        spent = {name: total / len(self.fleet.speeds) for name, total in self.spent.items()}
        spent["waiting for the last"] = workers_end - sum(spent.values())
        seconds = workers_end
        if self.fleet.merging != "workers":
            merged = self.merging_until if self.fleet.merging == "beside" else self._merged_after(workers_end)
            spent["one process merges"] = max(0.0, merged - workers_end)
            spent["one process writes"] = self._write_s(self.case.tests)
            self.merged_s += spent["one process writes"]
            seconds = max(workers_end, merged) + spent["one process writes"]
        size = self.costs.piece_bytes * self.shards + self._kept_bytes(self.case.tests) * self.cut.shares
        return Outcome(seconds, spent, self.shards, size, self.moved, self.merged_s)

    # --- workers

    def _assigned(self) -> list[Iterator[int]]:
        many = len(self.fleet.speeds)
        return [iter(range(who, self.shards, many)) for who in range(many)]

    def _load(self, who: int) -> float:
        """All read the graph at once."""
        ready = self._move(0.0, self.case.trains * self.case.line_bytes)
        self._spend("file system", ready)
        # The tasks of an array start alone: nobody has read the graph for them.
        each = self.costs.text_s if self.fleet.handing == "numbers" else self.costs.load_s
        return ready + self._spend("starting", self.costs.start_s + each * self.case.trains)

    def _begin(self, event: _Event) -> None:
        shard = self._next_shard(event.who)
        if shard is None:
            self.ends.append(event.at)
            return
        self.busy += 1
        at = event.at + self._looked(event.who, shard)
        case, cut = self.case, self.cut
        tile, share = divmod(shard, cut.shares)
        tests, speed = self.tiles[tile], self.fleet.speeds[event.who]
        trains = self._trains(share)
        is_new = self.last_tile.get(event.who) != tile
        self.last_tile[event.who] = tile
        if is_new and not self.fleet.ordered_once:
            at += self._spend("ordering for a tile", self.costs.order_s * case.trains / speed)
        if is_new or tests > cut.step:  # what is kept of the last step alone stays for the next shard
            at += self._spend("keeping tests", self.costs.keep_s * tests * case.checkpoints / speed)
        steps = -(-tests // cut.step)
        made = self.costs.make_s * trains * steps + self.costs.pair_s * trains * tests
        at += self._spend("scoring", made * case.checkpoints / speed)
        self._at(at, "scored", event.who, shard)

    def _next_shard(self, who: int) -> int | None:
        if self.fleet.handing == "numbers":
            return next(self.assigned[who], None)
        if self.next == self.shards:
            return None
        self.next += 1
        return self.next - 1

    def _looked(self, who: int, shard: int) -> float:
        """Seconds until the worker has a shard."""
        look, claim = self.costs.look_s + self.fleet.latency_s, self.costs.claim_s + self.fleet.latency_s
        if self.fleet.handing == "claims":  # on its way it passes those that others have done or claimed
            passed, self.come_to[who] = shard - self.come_to.get(who, -1), shard
            return self._spend("looking for a shard", look * passed + (claim + look) * min(self.busy, passed))
        return self._spend("looking for a shard", look)

    def _trains(self, share: int) -> int:
        trains, shares = self.case.trains, self.cut.shares
        return trains * (share + 1) // shares - trains * share // shares

    def _publish(self, event: _Event) -> None:
        tile = event.shard // self.cut.shares
        scores = self._kept(self.tiles[tile])
        worked = event.at + self._spend(
            "publishing", self.costs.publish_s + self.costs.publish_score_s * scores
        )
        size = self.costs.piece_bytes + self._kept_bytes(self.tiles[tile])
        done = self._move(worked, size)
        self._spend("file system", done - worked)
        self._at(done, "published", event.who, event.shard)

    def _published(self, event: _Event) -> None:
        self.busy -= 1
        tile, at = event.shard // self.cut.shares, event.at
        self.published[tile] += 1
        if self.fleet.merging == "workers" and self.published[tile] == self.cut.shares:
            read = self._move(at, self.cut.shares * self._kept_bytes(self.tiles[tile]))
            self._spend("file system", read - at)
            work = self._merge_s(tile, self.cut.shares) + self._part_s(tile) + self._write_s(self.tiles[tile])
            self.merged_s += work
            at = read + self._spend("workers merge", work)
        if self.fleet.merging == "beside" and tile == self.tile_now:
            self._at(max(at + POLL_S / 2, self.merging_until), "merge", -1)
        self._at(at, "free", event.who)

    # --- merging

    def _merge(self, event: _Event) -> None:
        """Merges the published shards of the current tile, then waits for the next shard."""
        if event.at < self.merging_until or self.tile_now == len(self.tiles):
            return
        tile = self.tile_now
        ready = self.published[tile] - self.merged
        if not ready:
            return
        read = self._move(event.at, ready * self._kept_bytes(self.tiles[tile]))
        work = self._merge_s(tile, ready)
        self.merged += ready
        if self.merged == self.cut.shares:
            work += self._part_s(tile)
            self.tile_now, self.merged = tile + 1, 0
        self.merged_s += work
        self.merging_until = read + work
        self._at(self.merging_until, "merge", -1)

    def _merged_after(self, at: float) -> float:
        """Merging by a process that starts when all shards are published."""
        at = self._move(at, self.case.trains * self.case.line_bytes)
        at += self.costs.start_s + self.costs.text_s * self.case.trains
        for tile, tests in enumerate(self.tiles):
            work = self._merge_s(tile, self.cut.shares) + self._part_s(tile)
            self.merged_s += work
            at = self._move(at, self.cut.shares * self._kept_bytes(tests)) + work
        return at

    def _merge_s(self, tile: int, shards: int) -> float:
        scores = self._kept(self.tiles[tile])
        return self._crowded(shards * (self.costs.read_s + self.costs.read_score_s * scores))

    def _part_s(self, tile: int) -> float:
        return self._crowded(self.costs.part_s * self._kept(self.tiles[tile]))

    def _write_s(self, tests: int) -> float:
        return self.costs.write_s * tests * self.case.top_k

    # --- what all share

    def _kept(self, tests: int) -> int:
        """The k highest and the k lowest."""
        return 2 * self.case.top_k * tests

    def _kept_bytes(self, tests: int) -> int:
        return self._kept(tests) * (SCORE_BYTES + ID_BYTES)

    def _move(self, at: float, size: float) -> float:
        """One after the other through the file system that all share."""
        self.moved += size
        self.disk_free = max(at, self.disk_free) + size / self.fleet.bandwidth
        return max(at, self.disk_free) + self.fleet.latency_s

    def _spend(self, what: str, seconds: float) -> float:
        seconds = seconds if what == "file system" else self._crowded(seconds)
        self.spent[what] += seconds
        return seconds

    def _crowded(self, seconds: float) -> float:
        return seconds * (self.costs.crowd if len(self.fleet.speeds) > 1 else 1.0)

    def _at(self, at: float, kind: str, who: int, shard: int = -1) -> None:
        self.made += 1
        heapq.heappush(self.events, _Event(at, self.made, kind, who, shard))
