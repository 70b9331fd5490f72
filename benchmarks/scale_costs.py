"""Measures the cost of each step of a sharded TracIn run with kgops' code, one core at a time.

Seconds are wall-clock time without the time that a process waited for a core, so other processes disturb little.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.scale_bed import Bed, Quiet, on_cores, waited
from benchmarks.simulation import Costs, Cut
from kgops.graphs.triples import Graph
from kgops.jobs.job import Job, read_job
from kgops.tracin.attribution import attribute_tests
from kgops.tracin.engines import engines_for
from kgops.tracin.finished_tests import FinishedTest, FinishedTests
from kgops.tracin.influence_files import csv_file, json_file
from kgops.tracin.results import Names, Table
from kgops.tracin.scan import Scanner, Share, Sink, TopTriples
from kgops.tracin.shards import MERGED_AT_ONCE, Shard, Shards, StrongestSoFar, merge_into
from kgops.tracin.test_triples import TestTriple
from kgops.workers.tracin_fork import job_file, publish_shared_input
from kgops.workers.tracin_shard_worker import DEVICE, FOLDER
from kgops.workers.tracin_work import load_graph

__all__ = ["measure"]

_ORDERED = 2_000_000  # triples whose ordering is timed; many give a precise cost per triple
_SCORED = (2048, 4096, 8192)  # triples of the shares whose scoring is timed
_MORE = 1_500_000  # triples that a process loads beside those of the graph
_ROUNDS = 3


def measure(
    bed: Bed, *, rounds: int = _ROUNDS, more: int = _MORE, ordered: int = _ORDERED, crowd: bool = True
) -> Costs:
    """`more` triples are loaded, and `ordered` ones ordered, to tell what each costs; `crowd`: two cores, too."""
    bed = replace(bed, folder=Path(tempfile.mkdtemp(dir=bed.folder)))
    cores = sorted(os.sched_getaffinity(0))
    with on_cores(cores[:1]):
        make_s, pair_s, keep_s = _scoring(bed, rounds)
        costs: dict[str, float] = dict(
            **_starting(bed, more, -(-rounds // 3)), make_s=make_s, pair_s=pair_s,
            keep_s=keep_s, test_bytes=_test_bytes(bed), order_s=_ordering(bed, ordered),
            **_publishing(bed), **_results(bed, rounds),
        )  # fmt: skip
        crowded = _crowd(bed, rounds, cores[1]) if crowd and len(cores) > 1 else 1.0
    return Costs(**costs, crowd=crowded)


def _starting(bed: Bed, more: int, times: int) -> dict[str, float]:
    """Cost of a process without work: seconds without triples, seconds and bytes for each of them; and seconds
    to read one as text, if no other process has read the graph."""
    few = [_started(bed, bed.job, bed.graph, f"few-{n}") for n in range(times)]
    if not more:  # without a larger graph there is no cost per triple
        return {"start_s": min(took for took, _ in few), "load_s": 0.0, "text_s": 0.0, "triple_bytes": 0.0}
    job, begun = _larger(bed, more), time.process_time()
    graph = load_graph(job.settings)
    text_s = (time.process_time() - begun) / len(graph.train)
    lots = [_started(bed, job, graph, f"lots-{n}") for n in range(times)]
    trains = len(bed.graph.train)
    many = len(graph.train) - trains
    seconds = [min(took for took, _ in both) for both in (few, lots)]
    peaks = [min(peak for _, peak in both) for both in (few, lots)]
    load_s = max(0.0, (seconds[1] - seconds[0]) / many)
    return {
        "start_s": max(0.0, seconds[0] - load_s * trains),
        "load_s": load_s,
        "text_s": text_s,
        "triple_bytes": max(0.0, (peaks[1] - peaks[0]) / many),
    }


def _larger(bed: Bed, more: int) -> Job:
    """The job on a graph with more triples."""
    entities, relations = bed.graph.entities.labels, bed.graph.relations.labels
    file = bed.folder / "more.txt"
    with file.open("w") as out:
        out.write(Path(bed.job.settings["train"]).read_text())
        out.writelines(
            f"{entities[h]}\t{relations[r]}\t{entities[t]}\n" for h, r, t in _drawn(bed.graph, more).tolist()
        )
    settings = {**bed.job.as_table()["tracin"], "train": str(file)}
    return read_job({**bed.job.as_table(), "tracin": settings}, "a benchmark")


def _started(bed: Bed, job: Job, graph: Graph, name: str) -> tuple[float, float]:
    """Seconds until it is ready to look for a piece, and bytes at its peak."""
    shards = Shards.plan(bed.folder / name, [], 1, bed.top_k)
    publish_shared_input(shards.folder, job, graph)
    command, environment = _hand(shards)
    begun, peak_kib, waits = time.time(), 0, [(0.0, 0.0)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as worker:
        while worker.poll() is None:
            waits.append((time.time(), waited(worker.pid)))
            # The kernel's final peak includes ours, from before exec.
            found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{worker.pid}/status").read_text())
            peak_kib = max(peak_kib, int(found[1])) if found else peak_kib
            time.sleep(0.01)
    if worker.returncode != 0:
        raise RuntimeError(f"the worker ended with {worker.returncode}")
    ready = max(json.loads(line)["at"] for line in (shards.folder / "hand.jsonl").read_text().splitlines())
    waiting = max(seconds for at, seconds in waits if at <= ready)
    return ready - begun - waiting, peak_kib * 1024


def _hand(shards: Shards) -> tuple[list[str], dict[str, str]]:
    """The command of a worker for these pieces, and its environment."""
    own = {
        FOLDER: str(shards.folder),
        DEVICE: "cpu",
        "KGOPS_EVENTS": str(shards.folder / "hand.jsonl"),
        "KGOPS_SETTINGS": "{}",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", "-m", "kgops.workers.tracin_shards", str(job_file(shards.folder))]
    return command, {**os.environ, **own}


def _scoring(bed: Bed, rounds: int) -> tuple[float, float, float]:
    """For a training triple, for a pair, for a test triple: of shares of the training triples, as pieces are."""
    scanner, most = bed.scanner(), min(len(bed.tests), bed.step)
    rows, took = [], []
    for tests in (max(1, most // 8), most):
        ids = bed.ids(tests)
        scanner.scan(ids, TopTriples(bed.top_k), share=Share(0, 64))  # from here on their factors are kept
        for some in _SCORED:
            of = max(2, len(bed.graph.train) // some)
            share = Share(of // 2, of)
            trains = share.triples(len(bed.graph.train), bed.scoring.settings.block)
            took.append(
                _best(lambda: scanner.scan(ids, TopTriples(bed.top_k), share=share), rounds)  # noqa: B023  called at once
            )
            rows.append([trains, trains * tests])
    make_s, pair_s = _fit(rows, took)
    engine = engines_for(bed.scoring.checkpoints, bed.scoring.loss, bed.scoring.settings)[0]
    return make_s, pair_s, _best(lambda: engine.keep(bed.ids(most)), rounds) / most


def _test_bytes(bed: Bed) -> float:
    engine = engines_for(bed.scoring.checkpoints, bed.scoring.loss, bed.scoring.settings)[0]
    shared = 0 if bed.scoring.loss.kind == "target" else bed.graph.num_entities
    return 4.0 * (engine.floats_per_test - shared)


def _ordering(bed: Bed, many: int) -> float:
    """What a process does whenever it comes to another tile, for each training triple."""
    train, scoring = _drawn(bed.graph, many), bed.scoring
    return (
        _best(lambda: Scanner(scoring.checkpoints, scoring.loss, train, settings=scoring.settings), 2) / many
    )


def _publishing(bed: Bed) -> dict[str, float]:
    """Pieces as they are: a few tests, and all; each published once, then read and merged into another."""
    rows, published, read, sizes, merged = [], [], [], [], []
    for tests in (max(1, len(bed.tests) // 8), len(bed.tests)):
        shards = bed.shards(f"published-{tests}", Cut(tests, MERGED_AT_ONCE, tests))
        some = list(shards)
        sinks = [_ranked(bed, tests, seed) for seed in range(len(some))]
        every = torch.arange(len(bed.graph.train))
        times = [
            _seconds(lambda: shards.publish(shard, sink.scores_of(every)))  # noqa: B023  called at once
            for shard, sink in zip(some, sinks, strict=True)
        ]
        published.append(median(times))
        onto = _ranked(bed, tests, len(some))
        again = _seconds(lambda: merge_into(onto, [shards.read(shard) for shard in some], bed.top_k))  # noqa: B023  called at once
        read.append(again / len(some))
        merged.append((shards, some[0]))
        rows.append([1, 2 * bed.top_k * tests])
        sizes.append((shards.folder / f"{some[0].name}.pt").stat().st_size)
    shards, shard = merged[-1]
    scores = rows[-1][1]
    return {
        **dict(zip(("publish_s", "publish_score_s"), _fit(rows, published), strict=True)),
        **dict(zip(("read_s", "read_score_s"), _fit(rows, read), strict=True)),
        "piece_bytes": max(0.0, sizes[-1] - 12.0 * scores),
        "look_s": _best(lambda: [shards.is_published(shard) for _ in range(1000)], 3) / 1000,
        "claim_s": _best(lambda: _claim(shards, shard, 200), 3) / 200,
    }


def _claim(shards: Shards, shard: Shard, times: int) -> None:
    for _ in range(times):
        with shards.claimed(shard):
            pass


def _ranked(bed: Bed, tests: int, seed: int) -> StrongestSoFar:
    """A random ranking as a process's first shard may produce it."""
    sink = StrongestSoFar(bed.top_k)
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randperm(len(bed.graph.train), generator=draw)[: 4 * bed.top_k]
    sink.add(0, ids, torch.randn(tests, len(ids), generator=draw))
    sink.finish()
    return sink


def _results(bed: Bed, rounds: int) -> dict[str, float]:
    """A merged tile made results, and those written for people as a run without `--test-triples` writes them."""
    ready = _ranked(bed, len(bed.tests), 0)

    def scorer(train: torch.Tensor, tests: torch.Tensor, sink: Sink, *rest: Any) -> None:
        assert isinstance(sink, TopTriples)
        sink.rankings = ready.rankings

    def keep(number: int) -> FinishedTests:
        parts = FinishedTests(bed.folder / f"parts-{number}")
        none: Callable[[], bool] = lambda: False  # noqa: E731  typed in place
        attribute_tests(
            scorer, bed.graph.train, bed.tests, parts, top_k=bed.top_k, neighbourhood=None,
            report=Quiet(), stop_requested=none, on_finished=lambda parts: None,
        )  # fmt: skip
        return parts

    part_s = median(_seconds(lambda: keep(number)) for number in range(rounds))  # noqa: B023  called at once
    parts = keep(rounds)
    pairs = [(test, parts.read(test.number)) for test in bed.tests[:500]]
    rows, table = sum(len(part.rows) for _, part in pairs), Table(bed.graph, Names())
    names = bed.folder / "tracin.csv", bed.folder / "tracin.json"
    seconds = _best(lambda: _write(names, table, pairs), 2)
    return {
        "part_s": part_s / (2 * bed.top_k * len(bed.tests)),
        "write_s": seconds / rows,
        "row_bytes": sum(path.stat().st_size for path in names) / rows,
    }


def _write(names: tuple[Path, Path], table: Table, pairs: Sequence[tuple[TestTriple, FinishedTest]]) -> None:
    with csv_file(names[0], table) as to_csv, json_file(names[1], table, {}, of_many=True) as to_json:
        for test, part in pairs:
            to_csv(test, part)
            to_json(test, part)


def _crowd(bed: Bed, rounds: int, other: int) -> float:
    """Slowdown of scoring while the other core scores too."""
    scanner, ids = bed.scanner(), bed.ids(len(bed.tests))

    def score() -> None:
        scanner.scan(ids, TopTriples(bed.top_k), share=Share(0, max(8, len(bed.graph.train) // _SCORED[1])))

    score()
    alone = _best(score, rounds)
    shards = bed.shards("neighbour", Cut(len(bed.tests), 64, bed.step))
    command, environment = _hand(shards)
    neighbour = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(neighbour.pid, [other])
        while not next(shards.folder.glob("*.pt"), None) and neighbour.poll() is None:
            time.sleep(0.05)
        beside: list[float] = []
        while neighbour.poll() is None and len(beside) < rounds:
            beside.append(_seconds(score))
    finally:
        neighbour.kill()
        neighbour.wait()
    # The last may have had the core to itself for a while.
    return max(1.0, min(beside[:-1] or beside) / alone) if beside else 1.0


def _drawn(graph: Graph, many: int) -> torch.Tensor:
    sizes = (graph.num_entities, graph.num_relations, graph.num_entities)
    return torch.stack([torch.randint(size, (many,)) for size in sizes], 1)


def _fit(rows: Sequence[Sequence[float]], took: Sequence[float]) -> tuple[float, float]:
    """Least-squares fit of two non-negative costs, by relative error."""
    weighed, ones = np.array(rows) / np.array(took)[:, None], np.ones(len(took))
    both = np.linalg.lstsq(weighed, ones, rcond=None)[0]
    if min(both) >= 0:
        return float(both[0]), float(both[1])
    only = 0 if both[1] < 0 else 1
    alone = float(weighed[:, only] @ ones / (weighed[:, only] @ weighed[:, only]))
    return (alone, 0.0) if only == 0 else (0.0, alone)


def _best(what: Callable[[], object], rounds: int) -> float:
    return min(_seconds(what) for _ in range(rounds))


def _seconds(what: Callable[[], object]) -> float:
    """Seconds without the time waited for the core."""
    begun, waiting = time.perf_counter(), waited(os.getpid())
    what()
    return time.perf_counter() - begun - (waited(os.getpid()) - waiting)
