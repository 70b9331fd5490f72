"""Spreads a TracIn run over several processes of this machine: starts, restarts and merges them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import torch

from kgops.errors import KgopsError
from kgops.jobs import events
from kgops.jobs.job import Job
from kgops.maths.tracin.attribution import tiles
from kgops.maths.tracin.finished_tests import FinishedTests
from kgops.maths.tracin.fork import ForkedProcess, Forking, job_file, publish_shared_input, read_shared_graph
from kgops.maths.tracin.scan import Scoring, Sink
from kgops.maths.tracin.shards import (
    DEVICE,
    FOLDER,
    MERGED_AT_ONCE,
    TASKS,
    Shards,
    ShardWorker,
    Tile,
    merge_into,
    shards_per_tile,
)
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.tracin.work import Work, filters, load_graph, tests_at_once
from kgops.maths.train.worker import find_device
from kgops.maths.worker.devices import cleanup_for
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.report import Progress, Report, Reporter
from kgops.workloads.tracin.job import top_k_of


def plan_shards(work: Work, tests: Sequence[TestTriple], finished: FinishedTests) -> Shards:
    """Shards for the tests that `finished` lacks, in a folder named by a digest of the plan."""
    trains = len(work.graph.train)
    top_k = None if filters(work.job) else top_k_of(work.settings)
    missing = [
        Tile.of(index, tile)
        for index, tile in enumerate(tiles(tests, finished, trains, top_k, tests_at_once(work.job)))
        if any(test.ids is not None for test in tile)
    ]
    shares = shards_per_tile(trains, max((len(tile.numbers) for tile in missing), default=1))
    about = [work.data_digest, [tile.digest for tile in missing], shares, top_k, work.job.options]
    meaning = json.dumps(about, default=str)
    folder = work.folder / "shards" / hashlib.sha256(meaning.encode()).hexdigest()[:16]
    # Shards of another plan or of other options are useless.
    for other in folder.parent.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return Shards.plan(folder, missing, shares, top_k)


def do_shards(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(os.environ.get(DEVICE) or job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    shared = Path(os.environ[FOLDER]) if FOLDER in os.environ else None
    graph = load_graph(job.settings) if shared is None else read_shared_graph(shared)
    work = Work(job, graph, folder, report, stop)
    cleanup = cleanup_for(job, device)
    loaded = work.load(device, cleanup)
    if shared is None:  # otherwise the process that shared the graph has checked it
        work.check_data(loaded)
    scoring = work.scoring(loaded, device, cleanup)
    work.choose_threads(scoring)
    if shared is not None:
        ShardWorker(work, scoring, Shards.open(shared)).do_every_free()
        return
    worker = ShardWorker(work, scoring, plan_shards(work, work.tests, work.finished_tests()))
    worker.do_every(int(os.environ["SLURM_ARRAY_TASK_ID"]), int(os.environ[TASKS]))


if __name__ == "__main__":
    run_worker(do_shards)


_LOOK_S = 0.2
_RESTARTS = 3  # restarts of a lost process
_GRACE_S = 20.0


class ShardProcesses(Protocol):
    """The processes that score the shards, on this machine or a cluster."""

    def look(self) -> None:
        """Restarts lost processes; raises if the work cannot go on."""

    def under_way(self) -> float:
        """Pairs scored in shards that are not published yet."""


class SpreadScorer:
    """A scorer that waits for published shards and merges them."""

    def __init__(self, shards: Shards, processes: ShardProcesses) -> None:
        self._shards, self._processes = shards, processes
        self._merged: Tile | None = None

    def __call__(
        self,
        train: torch.Tensor,
        tests: torch.Tensor,
        sink: Sink,
        report: Report | None,
        stop: Callable[[], bool],
    ) -> None:
        waiting = self._shards.of_tests(tests, -1 if self._merged is None else self._merged.index)
        if self._merged is not None:  # its results are saved by now
            self._shards.forget(self._merged)
        self._merged = waiting[0].tile
        progress = None if report is None else Progress(report, "tracin", "pairs")
        total, done = len(train) * len(tests), 0.0
        each = total / len(waiting)
        while waiting:
            ready = [shard for shard in waiting if self._shards.is_published(shard)][:MERGED_AT_ONCE]
            done = total - each * (len(waiting) - len(ready))
            if len(ready) < min(MERGED_AT_ONCE, len(waiting)):
                ready = []
            elif ready:
                merge_into(sink, [self._shards.read(shard) for shard in ready], self._shards.top_k)
                waiting = [shard for shard in waiting if shard not in ready]
            if progress is not None:
                progress(min(total, done + (self._processes.under_way() if waiting else 0)), total)
            if stop():
                raise Stopped
            if waiting and not ready:
                self._processes.look()
                time.sleep(_LOOK_S)


@dataclass
class _Child:
    """A worker process, its event file, and its progress in a shard."""

    device: str
    log: Path
    process: subprocess.Popen[bytes] | ForkedProcess
    restarts: int = 0
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
            event = events.read(line, time.time())
            self._hear(event.kind, event.fields)

    def _hear(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == events.PROGRESS:
            self.done = 0 if fields["done"] >= fields["total"] else fields["done"]
        elif kind == events.OUT_OF_MEMORY:
            self.trouble = kind, fields["detail"]
        elif kind == events.FAILED:
            self.trouble = kind, fields["reason"]


class LocalProcesses:
    """One process for each device; those on the CPU share its cores. Ends them at exit.

    Forks of this process where `copying` allows it, otherwise new processes.
    """

    def __init__(self, shards: Shards, devices: Sequence[str], copying: Forking) -> None:
        self._shards, self._copying = shards, copying
        cores = len(os.sched_getaffinity(0))
        self._threads = max(1, cores // sum(device == "cpu" for device in devices)) if "cpu" in devices else 1
        self._devices = list(devices)
        self._children: list[_Child] = []

    def __enter__(self) -> Self:
        for number, device in enumerate(self._devices):
            log = self._shards.folder / f"worker-{number}.jsonl"
            log.write_bytes(b"")
            self._children.append(_Child(device, log, self._start(device, log)))
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.process.terminate()
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
            if code > 0 or child.restarts == _RESTARTS:
                raise KgopsError(
                    f"a process on {child.device} ended with {code}; its output is in the log.",
                    hint="`kgops logs` shows it.",
                )
            # Killed. Its published shards are kept.
            child.restarts += 1
            child.done = 0
            child.process = self._start(child.device, child.log)

    def under_way(self) -> float:
        return sum(child.done for child in self._children)

    def _start(self, device: str, log: Path) -> subprocess.Popen[bytes] | ForkedProcess:
        if self._copying.is_possible_on(device):
            return self._copying.start(log, self._threads)
        own = {
            FOLDER: str(self._shards.folder),
            DEVICE: device,
            "KGOPS_EVENTS": str(log),
            "KGOPS_SETTINGS": "{}",  # already in the job
        }
        if device == "cpu":
            own["OMP_NUM_THREADS"] = str(self._threads)
        command = [
            sys.executable,
            "-P",
            "-m",
            "kgops.maths.tracin.parallel",
            str(job_file(self._shards.folder)),
        ]
        return subprocess.Popen(command, env={**os.environ, **own}, stdin=subprocess.DEVNULL)


@contextmanager
def spread(
    work: Work, scoring: Scoring, tests: Sequence[TestTriple], finished: FinishedTests, devices: Sequence[str]
) -> Iterator[SpreadScorer]:
    """Starts a process on each of `devices` for the tests that `finished` lacks."""
    shards = plan_shards(work, tests, finished)
    publish_shared_input(shards.folder, work.job, work.graph)
    ready = sum(shards.is_published(shard) for shard in shards)
    total = sum(1 for _ in shards)
    copying = Forking(work, scoring, shards)
    origin = ""
    if "cpu" in devices:
        copied = copying.is_possible_on("cpu")
        origin = ", forks of this one" if copied else ", started anew because this one has threads"
    done = f"; {ready:,} already done" if ready else ""
    work.report.note(
        f"{total:,} shard{'s' if total != 1 else ''} for {len(devices)} processes{origin}{done}."
    )
    with LocalProcesses(shards, devices, copying) as processes:
        yield SpreadScorer(shards, processes)


def merging(work: Work, scoring: Scoring, shards: Shards) -> SpreadScorer:
    """Merges shards that other processes published; scores missing ones in this process."""
    ready, total = sum(shards.is_published(shard) for shard in shards), sum(1 for _ in shards)
    missing = f"; {total - ready:,} are scored now" if ready < total else ""
    work.report.note(f"{ready:,} of {total:,} shards are ready to merge{missing}.")
    return SpreadScorer(shards, _ThisProcess(ShardWorker(work, scoring, shards)))


class _ThisProcess:
    """Scores missing shards in this process."""

    def __init__(self, worker: ShardWorker) -> None:
        self._worker = worker

    def look(self) -> None:
        shards = self._worker.shards
        self._worker.do(next(shard for shard in shards if not shards.is_published(shard)))

    def under_way(self) -> float:
        return 0


def _as_error(kind: str, says: str) -> Exception:
    return MemoryError(says) if kind == events.OUT_OF_MEMORY else KgopsError(says)
