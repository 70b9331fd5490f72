"""`python -m kgops.workers.tracin_shards job.toml`: scores shards of a TracIn run, all that are left or given ones.

Its events go to a separate file, which the coordinating process reads.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from kgops.errors import Interrupted
from kgops.jobs.job import Job
from kgops.tracin.shards import Shards
from kgops.workers.cleanup import cleanup_for
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.report import Reporter
from kgops.workers.tracin_shard_worker import DEVICE, FOLDER, TASKS, ShardWorker
from kgops.workers.tracin_sharding import plan_shards
from kgops.workers.tracin_shared_input import read_shared_graph
from kgops.workers.tracin_work import Work, load_graph
from kgops.workers.train import find_device


def do_shards(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(os.environ.get(DEVICE) or job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    shared = Path(os.environ[FOLDER]) if FOLDER in os.environ else None
    graph = load_graph(job.settings) if shared is None else read_shared_graph(shared)
    work = Work(job, graph, folder, report, stop)
    cleanup = cleanup_for(job, device)
    scoring = work.scoring(work.load(device, cleanup), device, cleanup)
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
