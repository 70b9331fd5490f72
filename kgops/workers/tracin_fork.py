"""A copy of this process as a hand: it has all that was loaded and read here, in the same memory, and begins at once.

A copy has none of the threads of what it was copied from, and no GPU that was in use there: what waits for one of
those would wait for ever. So it is made of a process that has no other thread, for work on the CPU.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from kgops.tracin.attribution import Scoring
from kgops.tracin.shards import Pieces
from kgops.workers.entry import StopRequest, answer_for
from kgops.workers.report import Reporter
from kgops.workers.tracin_shard_worker import Hand
from kgops.workers.tracin_work import Work

__all__ = ["Copy", "Copying"]


class Copy:
    """The process, as `subprocess` would have it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a copy of this process", timeout or 0)
        return code


class Copying:
    """Makes copies that do the pieces of a TracIn run, where this process can be copied."""

    def __init__(self, work: Work, scoring: Scoring, pieces: Pieces) -> None:
        self._work, self._scoring, self._pieces = work, scoring, pieces

    def is_possible_on(self, device: str) -> bool:
        return device == "cpu" and len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - their number alone

    def start(self, log: Path, threads: int) -> Copy:
        return Copy(lambda: self._do(log, threads))

    def _do(self, log: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        os.environ["KGOPS_EVENTS"] = str(log)
        report = Reporter(self._work.folder)
        work = replace(self._work, report=report, stop=StopRequest())
        vars(work)["tests"] = self._work.tests  # read here already
        answer_for(report, Hand(work, self._scoring, self._pieces).do_every_free)
