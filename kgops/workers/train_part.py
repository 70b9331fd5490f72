"""`python -m kgops.workers.train_part job.toml`: one of the processes that train a model together.

The first writes and speaks for all. Why one has failed it tells in a file, which whoever started it reads: the run
may yet succeed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from kgops.errors import KgopsError
from kgops.jobs import events
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.training.out_of_memory import describe, is_at_its_limit, is_out_of_memory
from kgops.training.parallel import PeerLost, Processes
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.report import Reporter
from kgops.workers.train import find_device, load_graph, train_conve
from kgops.workers.train_seats import FOUND, PLACE, Seat, trouble_file


class Unheard(Reporter):
    """What all of them would say is said by the first."""

    def send(self, kind: str, /, **fields: Any) -> None:
        pass


def train_part(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    seat, parent = Seat.taken(), os.getppid()
    if seat.which > 0:
        report = Unheard(folder)

    def stops() -> bool:
        # Without the one who started them, nobody would hear of what they find.
        return stop() or os.getppid() != parent

    try:
        device = find_device(seat.device)
        group = Processes(seat.which, seat.of, Path(seat.meeting), device)
        graph = load_graph(job.settings)
        for note in graph.notes:
            report.note(note)
        figures = train_conve(job, graph, device, folder / "results", report, stops, group)
        if group.is_first:
            write_json(folder / PLACE / FOUND, {"figures": figures, "levers": report.levers})
        group.leave()
    except Stopped:
        raise
    except PeerLost as error:
        print(f"Ended: {error}", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except Exception as error:
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
