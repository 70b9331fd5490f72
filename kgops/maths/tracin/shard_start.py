"""Shards of a TracIn run, and the processes that compute them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from kgops.errors import Interrupted
from kgops.jobs.job import Job
from kgops.maths.tracin.attribution import tiles
from kgops.maths.tracin.finished_tests import FinishedTests
from kgops.maths.tracin.fork import read_shared_graph
from kgops.maths.tracin.shards import DEVICE, FOLDER, TASKS, Shards, ShardWorker, Tile, shards_per_tile
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.tracin.work import Work, filters, load_graph, tests_at_once
from kgops.maths.train.worker import find_device
from kgops.maths.worker.devices import cleanup_for
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.report import Reporter


def plan_shards(work: Work, tests: Sequence[TestTriple], finished: FinishedTests) -> Shards:
    """Shards for the tests that `finished` lacks, in a folder named by a digest of the plan."""
    trains = len(work.graph.train)
    top_k = None if filters(work.job) else work.top_k()
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
    try:
        worker = ShardWorker(work, scoring, plan_shards(work, work.tests, work.finished_tests()))
        worker.do_every(int(os.environ["SLURM_ARRAY_TASK_ID"]), int(os.environ[TASKS]))
    except Interrupted as error:
        raise Stopped from error


if __name__ == "__main__":
    run_worker(do_shards)
