"""A TracIn run spread over several processes of this machine: who works, who died, and what they have found so far."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from kgops.errors import Interrupted, KgopsError
from kgops.jobs import events
from kgops.tracin.attribution import Scoring
from kgops.tracin.finished_tests import Parts
from kgops.tracin.scan import Sink
from kgops.tracin.shards import MERGED_AT_ONCE, Pieces, Tile, merge_into
from kgops.tracin.test_triples import TestTriple
from kgops.training.reporter import Progress, Report
from kgops.workers import tracin_shard_worker
from kgops.workers.tracin_fork import Copy, Copying
from kgops.workers.tracin_shard_worker import Hand
from kgops.workers.tracin_sharding import planned_pieces
from kgops.workers.tracin_shared_input import job_file, publish_order
from kgops.workers.tracin_work import Work

__all__ = ["Hands", "LocalHands", "SpreadScorer", "merging", "spread"]

_LOOK_S = 0.05
_AGAIN = 3  # times that a process which was lost is started again
_GRACE_S = 20.0


class Hands(Protocol):
    """Whoever does the pieces, wherever."""

    def look(self) -> None:
        """Raises where the work cannot be done; sees to it that it goes on where somebody was lost."""

    def under_way(self) -> float:
        """Pairs of pieces that are begun and not published."""


class SpreadScorer:
    """Scores as a `Scoring` does, by waiting for the pieces of others and merging them."""

    def __init__(self, pieces: Pieces, hands: Hands) -> None:
        self._pieces, self._hands = pieces, hands
        self._merged: Tile | None = None

    def __call__(
        self,
        train: torch.Tensor,
        tests: torch.Tensor,
        sink: Sink,
        report: Report | None,
        stop: Callable[[], bool],
    ) -> None:
        waiting = self._pieces.of_tests(tests, -1 if self._merged is None else self._merged.place)
        if self._merged is not None:  # by now its scores are kept elsewhere
            self._pieces.forget(self._merged)
        self._merged = waiting[0].tile
        progress = None if report is None else Progress(report, "tracin", "pairs")
        total, done = len(train) * len(tests), 0.0
        each = total / len(waiting)
        while waiting:
            ready = [piece for piece in waiting if self._pieces.is_published(piece)][:MERGED_AT_ONCE]
            done = total - each * (len(waiting) - len(ready))
            if len(ready) < min(MERGED_AT_ONCE, len(waiting)):
                ready = []
            elif ready:
                merge_into(sink, [self._pieces.read(piece) for piece in ready], self._pieces.top_k)
                waiting = [piece for piece in waiting if piece not in ready]
            if progress is not None:
                progress(min(total, done + (self._hands.under_way() if waiting else 0)), total)
            if stop():
                raise Interrupted(
                    f"stopped after {done:,.0f} of {total:,} pairs.", hint="resume the run to go on."
                )
            if waiting and not ready:
                self._hands.look()
                time.sleep(_LOOK_S)


@dataclass
class _Child:
    """One process, what it wrote so far, and how far it is in its piece."""

    device: str
    log: Path
    process: subprocess.Popen[bytes] | Copy
    again: int = 0
    read: int = 0
    done: float = 0
    trouble: tuple[str, str] | None = None

    def listen(self) -> None:
        with self.log.open("rb") as file:
            file.seek(self.read)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.read += whole
        for line in text[:whole].splitlines():
            told = events.read(line, time.time())
            self._hear(told.kind, told.fields)

    def _hear(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == events.PROGRESS:
            self.done = 0 if fields["done"] >= fields["total"] else fields["done"]
        elif kind == events.OUT_OF_MEMORY:
            self.trouble = kind, fields["detail"]
        elif kind == events.FAILED:
            self.trouble = kind, fields["reason"]


class LocalHands:
    """A process for each device; on the CPU they share its cores. Ends them on the way out.

    They are copies of this one where `copying` can make them, and else begin from nothing.
    """

    def __init__(self, pieces: Pieces, devices: Sequence[str], copying: Copying | None = None) -> None:
        self._pieces, self._copying = pieces, copying
        cores = len(os.sched_getaffinity(0))
        self._threads = max(1, cores // sum(device == "cpu" for device in devices)) if "cpu" in devices else 1
        self._devices = list(devices)
        self._children: list[_Child] = []

    def __enter__(self) -> Self:
        for number, device in enumerate(self._devices):
            log = self._pieces.folder / f"hand-{number}.jsonl"
            log.write_bytes(b"")
            self._children.append(_Child(device, log, self._start(device, log)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        for child in self._children:
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def look(self) -> None:
        for child in self._children:
            child.listen()
            code = child.process.poll()
            if code is None or code == 0:
                continue
            if child.trouble is not None:
                raise _as_error(*child.trouble)
            if code > 0 or child.again == _AGAIN:
                raise KgopsError(
                    f"a process on {child.device} ended with {code}; its words are in the log.",
                    hint="`kgops logs` shows them.",
                )
            # Lost: by the kernel or by somebody's kill. What it had published stays.
            child.again += 1
            child.done = 0
            child.process = self._start(child.device, child.log)

    def under_way(self) -> float:
        return sum(child.done for child in self._children)

    def _start(self, device: str, log: Path) -> subprocess.Popen[bytes] | Copy:
        if self._copying is not None and self._copying.is_possible_on(device):
            return self._copying.start(log, self._threads)
        own = {
            tracin_shard_worker.FOLDER: str(self._pieces.folder),
            tracin_shard_worker.DEVICE: device,
            "KGOPS_EVENTS": str(log),
            "KGOPS_SETTINGS": "{}",  # they are in the job already
        }
        if device == "cpu":
            own["OMP_NUM_THREADS"] = str(self._threads)
        command = [
            sys.executable,
            "-P",
            "-m",
            "kgops.workers.tracin_shards",
            str(job_file(self._pieces.folder)),
        ]
        return subprocess.Popen(command, env={**os.environ, **own}, stdin=subprocess.DEVNULL)


@contextmanager
def spread(
    work: Work, scoring: Scoring, tests: Sequence[TestTriple], parts: Parts, devices: Sequence[str]
) -> Iterator[SpreadScorer]:
    """A process on each of `devices`, for what `parts` lacks."""
    pieces = planned_pieces(work, tests, parts)
    publish_order(pieces.folder, work.job, work.graph)
    ready = sum(pieces.is_published(piece) for piece in pieces)
    all_of_them = sum(1 for _ in pieces)
    copying = Copying(work, scoring, pieces)
    made = ""
    if "cpu" in devices:
        copied = copying.is_possible_on("cpu")
        made = ", copies of this one" if copied else ", each begun anew as this one has threads by now"
    done = f"; {ready:,} were done before" if ready else ""
    work.report.note(
        f"{all_of_them:,} piece{'s' if all_of_them != 1 else ''} for {len(devices)} processes{made}{done}."
    )
    with LocalHands(pieces, devices, copying) as hands:
        yield SpreadScorer(pieces, hands)


def merging(work: Work, scoring: Scoring, pieces: Pieces) -> SpreadScorer:
    """Of what others have published before; what is missing this process does itself."""
    ready, all_of_them = sum(pieces.is_published(piece) for piece in pieces), sum(1 for _ in pieces)
    missing = f"; {all_of_them - ready:,} are done now" if ready < all_of_them else ""
    work.report.note(f"{ready:,} of {all_of_them:,} pieces are there to be merged{missing}.")
    return SpreadScorer(pieces, _Alone(Hand(work, scoring, pieces)))


class _Alone:
    """This process, for what nobody else is left to do."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    def look(self) -> None:
        pieces = self._hand.pieces
        self._hand.do(next(piece for piece in pieces if not pieces.is_published(piece)))

    def under_way(self) -> float:
        return 0


def _as_error(kind: str, says: str) -> Exception:
    return MemoryError(says) if kind == events.OUT_OF_MEMORY else KgopsError(says)
