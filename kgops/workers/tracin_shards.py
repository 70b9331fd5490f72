"""`python -m kgops.workers.tracin_shards job.toml`: does shards of a TracIn run until none is left, or given ones.

What it says goes to a file of its own, which whoever started it reads.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from kgops.errors import Interrupted
from kgops.jobs.job import Job
from kgops.tracin.shards import Pieces
from kgops.workers.cleanup import cleanup_for
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.report import Reporter
from kgops.workers.tracin_shard_worker import DEVICE, FOLDER, TASKS, Hand
from kgops.workers.tracin_sharding import planned_pieces
from kgops.workers.tracin_shared_input import ordered_graph
from kgops.workers.tracin_work import Work, load_graph
from kgops.workers.train import find_device


def do_pieces(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(os.environ.get(DEVICE) or job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    ordered = Path(os.environ[FOLDER]) if FOLDER in os.environ else None
    graph = load_graph(job.settings) if ordered is None else ordered_graph(ordered)
    work = Work(job, graph, folder, report, stop)
    cleanup = cleanup_for(job, device)
    scoring = work.scoring(work.load(device, cleanup), device, cleanup)
    work.choose_threads(scoring)
    if ordered is not None:
        Hand(work, scoring, Pieces.open(ordered)).do_every_free()
        return
    try:
        hand = Hand(work, scoring, planned_pieces(work, work.tests, work.parts()))
        hand.do_every(int(os.environ["SLURM_ARRAY_TASK_ID"]), int(os.environ[TASKS]))
    except Interrupted as error:
        raise Stopped from error


if __name__ == "__main__":
    run_worker(do_pieces)
