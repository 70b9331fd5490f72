"""A training spread over several processes of this machine: who works, who was lost, and what they have found."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kgops.errors import KgopsError
from kgops.jobs import events
from kgops.jobs.files import write_durably
from kgops.jobs.job import Job
from kgops.workers.entry import Stopped
from kgops.workers.report import Reporter
from kgops.workers.train_ranks import FOUND, PLACE, Seat, trouble_file

__all__ = ["train_together", "who_was_lost"]

_LOOK_S = 0.05
_AGAIN = 3  # times that all begin again because one was lost
_GRACE_S = 10.0  # for those who miss one that is gone to notice it; on GPUs they may wait for ever
_STOPPING_S = 20.0


def train_together(
    job: Job, folder: Path, report: Reporter, stop: Callable[[], bool], devices: Sequence[str]
) -> dict[str, float]:
    """What the training has found, as metrics. Where a process is lost, all of them go on from the last point to
    resume from."""
    place = folder / PLACE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    write_durably(place / "job.toml", _before_the_fallbacks(job, report).as_toml().encode())
    for again in range(_AGAIN + 1):
        with _Together(place, devices, again) as together:
            codes = together.wait(stop)
        if not any(codes):
            break
        if stop():
            raise Stopped
        lost = who_was_lost(place, codes)
        if again == _AGAIN:
            raise KgopsError(f"{lost}, for the {again + 1}th time.", hint="`kgops logs` has their words.")
        report.note(f"{lost}: all begin again from the last point to resume from.")
    found = json.loads((place / FOUND).read_text())
    report.options |= found["options"]
    shutil.rmtree(place)
    metrics: dict[str, float] = found["metrics"]
    return metrics


def _before_the_fallbacks(job: Job, report: Reporter) -> Job:
    """As this process has it, for within a pipeline it is not the job of the run; each process then makes the
    OOM fallbacks's changes for itself, and so can tell what was asked for."""
    asked = {**job.options, **report.stepped_down}
    changed = report.stepped_down
    return replace(job, options={k: v for k, v in asked.items() if not (k in changed and v == "auto")})


def who_was_lost(place: Path, codes: Sequence[int]) -> str:
    """By what the processes ended with; raises what no new beginning would mend."""
    for which in range(len(codes)):
        if trouble_file(place, which).exists():
            raise _as_error(json.loads(trouble_file(place, which).read_text()))
    killed = [(which, -code) for which, code in enumerate(codes) if code < 0]
    if killed:
        which, number = killed[0]
        return f"process {which + 1} of {len(codes)} was lost to signal {number}"
    for which, code in enumerate(codes):
        if code not in (0, os.EX_TEMPFAIL):
            raise KgopsError(
                f"process {which + 1} of {len(codes)} ended with {code}; its words are in the log.",
                hint="`kgops logs` shows them.",
            )
    return f"process {codes.index(os.EX_TEMPFAIL) + 1} of {len(codes)} has lost the others"


def _as_error(told: dict[str, str | int | None]) -> Exception:
    if told["kind"] == events.OUT_OF_MEMORY:
        return MemoryError(told["says"])
    error = KgopsError(str(told["says"]), None if told["hint"] is None else str(told["hint"]))
    error.exit_code = int(told["code"] or 1)
    return error


class _Together:
    """A process for each device, which meet each other; ends them on the way out."""

    def __init__(self, place: Path, devices: Sequence[str], again: int) -> None:
        self._place = place
        self._seats = [
            Seat(which, len(devices), device, (place / f"meeting-{again}").absolute().as_uri())
            for which, device in enumerate(devices)
        ]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for seat in self._seats:
            trouble_file(self._place, seat.which).unlink(missing_ok=True)
        # Appended one by one: if one cannot be started, those before it are ended.
        try:
            for seat in self._seats:
                self._processes.append(self._start(seat))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait(self, stop: Callable[[], bool]) -> list[int]:
        """How each has ended: by itself, or because another had."""
        told, deadline = False, None
        while (codes := [process.poll() for process in self._processes]).count(None):
            if stop() and not told:
                told = True
                self._tell_to_stop()
            if deadline is None and any(codes):
                deadline = time.monotonic() + _GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                # Who is killed here was not the first, and would be taken for it.
                return [os.EX_TEMPFAIL if code is None else code for code in codes]
            time.sleep(_LOOK_S)
        return [code for code in codes if code is not None]

    def _tell_to_stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def _end(self) -> None:
        if all(process.poll() is not None for process in self._processes):
            return
        if not any(process.poll() for process in self._processes):
            self._tell_to_stop()  # all are well, and can save what they have
            deadline = time.monotonic() + _STOPPING_S
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, seat: Seat) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "kgops.workers.train_rank", str(self._place / "job.toml")]
        # They speak to each other on this machine alone, whatever its name may resolve to.
        own = {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"), **seat.environment()}
        return subprocess.Popen(command, env={**os.environ, **own}, stdin=subprocess.DEVNULL)
