"""Worker processes of TracIn on a CPU, and the input that they share."""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.jobs.files import write_durably
from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.tracin.scan import Scoring
from kgops.maths.tracin.shards import Shards, ShardWorker
from kgops.maths.tracin.work import Work
from kgops.maths.train.checkpoints import read_saved
from kgops.maths.worker.entry import StopRequest, run_reporting_errors
from kgops.maths.worker.report import Reporter

_GRAPH = "graph.torch"


def job_file(folder: Path) -> Path:
    return folder / "job.toml"


def publish_shared_input(folder: Path, job: Job, graph: Graph) -> None:
    """Replaces the shared input of an earlier attempt, which may be truncated or outdated."""
    write_durably(job_file(folder), job.as_toml().encode())
    draft = folder / f".{_GRAPH}.{uuid.uuid4().hex}"
    try:
        torch.save(
            {
                "triples": [graph.train, graph.valid, graph.test],
                "entities": list(graph.entities.labels),
                "relations": list(graph.relations.labels),
            },
            draft,
        )
        os.replace(draft, folder / _GRAPH)  # noqa: PTH105 - atomic
    finally:
        draft.unlink(missing_ok=True)


def read_shared_graph(folder: Path) -> Graph:
    path = folder / _GRAPH
    try:
        saved = read_saved(path, mmap=True)
        train, valid, test = saved["triples"]
        return Graph(train, valid, test, Vocabulary.of(saved["entities"]), Vocabulary.of(saved["relations"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is no shared graph of a TracIn run.") from error


class ForkedProcess(ForkProcess):
    """A forked process that is asked how it is as a `subprocess.Popen` is."""

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired("a fork of this process", timeout or 0)
        return self.exitcode


class Forking:
    """Starts forks that score the shards of a TracIn run, where this process can be forked."""

    def __init__(self, work: Work, scoring: Scoring, shards: Shards) -> None:
        self._work, self._scoring, self._shards = work, scoring, shards

    def is_possible_on(self, device: str) -> bool:
        return device == "cpu" and len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - only counts them

    def start(self, log: Path, threads: int) -> ForkedProcess:
        process = ForkedProcess(target=self._do, args=(log, threads), daemon=True)
        process.start()
        return process

    def _do(self, log: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        os.environ["KGOPS_EVENTS"] = str(log)
        report = Reporter(self._work.folder)
        work = replace(self._work, report=report, stop=StopRequest())
        vars(work)["tests"] = self._work.tests  # already read
        run_reporting_errors(report, ShardWorker(work, self._scoring, self._shards).do_every_free)
