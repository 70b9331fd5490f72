"""`python -m kgops.workers.train_rank job.toml`: one rank of a data-parallel training.

Rank 0 writes files and events for all. A worker starts the ranks on one machine; torchrun starts them on one or
several machines that share the run's folder. A failed rank writes the reason to a file, as the run may still succeed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadJob, KgopsError, Usage
from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.train import spread_problems
from kgops.training.data_parallel import DistributedGroup, PeerLost
from kgops.training.out_of_memory import describe, is_at_its_limit, is_out_of_memory
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.outputs import make_output_folder, publish_results
from kgops.workers.report import Reporter
from kgops.workers.train import find_device, load_graph, train_conve
from kgops.workers.train_ranks import RANKS_FOLDER, RESULT, RankSettings, trouble_file


class SilentReporter(Reporter):
    """Drops events: rank 0 reports for all."""

    def send(self, kind: str, /, **fields: Any) -> None:
        pass

    def _log(self, name: str, line: str) -> None:
        pass


def train_rank(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    rank, parent = RankSettings.from_environment(), os.getppid()
    by_torchrun = rank is None
    if rank is None:
        rank = RankSettings.by_torchrun(find_device(job.settings["device"]).type)
    if rank is None:
        raise Usage(
            "the rank of this process is not set.",
            "torchrun sets it, as with `torchrun --nproc-per-node 2 -m kgops.workers.train_rank job.toml`; "
            "`kgops run train --devices 2` starts the ranks itself",
        )
    if rank.rank > 0:
        report = SilentReporter(folder)

    def stops() -> bool:
        # If the parent is gone, nobody would read the result.
        return stop() or os.getppid() != parent

    try:
        device = find_device(rank.device)
        group = DistributedGroup(rank.rank, rank.world_size, rank.rendezvous, device)
        if problems := spread_problems(job.settings, {**job.options, "devices": rank.world_size}):
            raise BadJob("the job", problems)
        if by_torchrun and group.is_first:
            report.started(device=str(device), torch=torch.__version__)
            make_output_folder(job, folder)
            (folder / "results").mkdir(exist_ok=True)
        graph = load_graph(job.settings)
        for note in graph.notes:
            report.note(note)
        metrics = train_conve(job, graph, device, folder / "results", report, stops, group)
        if group.is_first:
            if by_torchrun:
                publish_results(job, folder, folder / "results", metrics, report)
            else:
                write_json(folder / RANKS_FOLDER / RESULT, {"metrics": metrics, "options": report.options})
        group.leave()
    except Stopped:
        raise
    except PeerLost as error:
        print(f"Ended: {error}", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except Exception as error:
        if by_torchrun:
            raise
        _write_trouble(error, trouble_file(folder / RANKS_FOLDER, rank.rank))


def _write_trouble(error: Exception, file: Path) -> None:
    """Writes why the training cannot go on; re-raises unexpected errors, to keep their traceback."""
    code, hint = 1, None
    if is_out_of_memory(error) or (is_at_its_limit() and not isinstance(error, KgopsError)):
        kind, says = events.OUT_OF_MEMORY, describe(error)
    elif isinstance(error, KgopsError):
        kind, says, hint, code = events.FAILED, error.message, error.hint, error.exit_code
    else:
        raise error
    write_json(file, {"kind": kind, "says": says, "hint": hint, "code": code})
    sys.exit(code)


if __name__ == "__main__":
    run_worker(train_rank)
