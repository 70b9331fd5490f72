"""`python -m kgops.workers.train_rank job.toml`: one of the processes that train a model together.

The first writes and speaks for all. They are started by a worker on one machine, or by torchrun, on one or several that
share the run's folder. Why one has failed it tells our own worker in a file: the run may yet succeed.
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
from kgops.workers.outputs import hand_in, make_output_folder
from kgops.workers.report import Reporter
from kgops.workers.train import find_device, load_graph, train_conve
from kgops.workers.train_ranks import FOUND, PLACE, Seat, trouble_file


class Unheard(Reporter):
    """What all of them would say is said by the first."""

    def send(self, kind: str, /, **fields: Any) -> None:
        pass

    def _log(self, name: str, line: str) -> None:
        pass


def train_part(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    seat, parent = Seat.taken(), os.getppid()
    by_torchrun = seat is None
    if seat is None:
        seat = Seat.by_torchrun(find_device(job.settings["device"]).type)
    if seat is None:
        raise Usage(
            "nobody has said which part of a training this is.",
            "torchrun says it, as with `torchrun --nproc-per-node 2 -m kgops.workers.train_rank job.toml`; "
            "`kgops run train --devices 2` starts them by itself",
        )
    if seat.which > 0:
        report = Unheard(folder)

    def stops() -> bool:
        # Without the one who started them, nobody would hear of what they find.
        return stop() or os.getppid() != parent

    try:
        device = find_device(seat.device)
        group = DistributedGroup(seat.which, seat.of, seat.meeting, device)
        if problems := spread_problems(job.settings, {**job.options, "devices": seat.of}):
            raise BadJob("the job", problems)
        if by_torchrun and group.is_first:
            report.started(device=str(device), torch=torch.__version__)
            make_output_folder(job)
            (folder / "results").mkdir(exist_ok=True)
        graph = load_graph(job.settings)
        for note in graph.notes:
            report.note(note)
        metrics = train_conve(job, graph, device, folder / "results", report, stops, group)
        if group.is_first:
            if by_torchrun:
                hand_in(job, folder, folder / "results", metrics, report)
            else:
                write_json(folder / PLACE / FOUND, {"metrics": metrics, "options": report.options})
        group.leave()
    except Stopped:
        raise
    except PeerLost as error:
        print(f"Ended: {error}", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except Exception as error:
        if by_torchrun:
            raise
        _tell(error, trouble_file(folder / PLACE, seat.which))


def _tell(error: Exception, file: Path) -> None:
    """Why the training cannot go on; an error of ours nobody has foreseen keeps its traceback."""
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
    run_worker(train_part)
