"""A training that several processes share: starting the ranks and collecting what they report."""

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from kgops.errors import KgopsError
from kgops.jobs import events
from kgops.jobs.files import write_durably
from kgops.jobs.job import Job
from kgops.workers.entry import Stopped
from kgops.workers.report import Reporter

__all__ = [
    "RANKS_FOLDER",
    "RESULT",
    "RankSettings",
    "lost_process",
    "train_in_processes",
    "trouble_file",
]

RANKS_FOLDER = "together"  # in the run's folder, while the processes work
RESULT = "result.json"
_PREFIX = "KGOPS_GROUP_"


@dataclass(frozen=True)
class RankSettings:
    """One process of the group; `rendezvous` is a URL as torch.distributed takes it."""

    rank: int
    world_size: int
    device: str
    rendezvous: str

    def environment(self) -> dict[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in asdict(self).items()}

    @classmethod
    def from_environment(cls) -> Self | None:
        """As our own worker set them; None if another program started this process."""
        if _PREFIX + "RANK" not in os.environ:
            return None
        rank, world_size, device, rendezvous = (
            os.environ[_PREFIX + name] for name in ("RANK", "WORLD_SIZE", "DEVICE", "RENDEZVOUS")
        )
        return cls(int(rank), int(world_size), device, rendezvous)

    @classmethod
    def by_torchrun(cls, wanted: str) -> Self | None:
        """As torchrun set them, on the wanted kind of device; None if torchrun did not start this process."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return None
        rank, world_size, local_rank, local_world_size = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        )
        if world_size == local_world_size:
            # All ranks are on this machine: use loopback, whatever its host name resolves to.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return cls(rank, world_size, wanted if wanted != "cuda" else f"cuda:{local_rank}", "env://")


def trouble_file(folder: Path, rank: int) -> Path:
    """Where a rank writes why it cannot go on."""
    return folder / f"trouble-{rank}.json"


_LOOK_S = 0.05
_RESTARTS = 3  # restarts of all processes because one was lost
_GRACE_S = 10.0  # for the others to notice a lost process; on GPUs they may wait for ever
_STOPPING_S = 20.0


def train_in_processes(
    job: Job, folder: Path, report: Reporter, stop: Callable[[], bool], devices: Sequence[str]
) -> dict[str, float]:
    """Trains and returns the metrics. If a process is lost, all restart from the last resume checkpoint."""
    ranks_folder = folder / RANKS_FOLDER
    shutil.rmtree(ranks_folder, ignore_errors=True)
    ranks_folder.mkdir()
    write_durably(ranks_folder / "job.toml", _before_the_fallbacks(job, report).as_toml().encode())
    for restarts in range(_RESTARTS + 1):
        with _RankProcesses(ranks_folder, devices, restarts) as processes:
            codes = processes.wait(stop)
        if not any(codes):
            break
        if stop():
            raise Stopped
        lost = lost_process(ranks_folder, codes)
        if restarts == _RESTARTS:
            raise KgopsError(f"{lost}, for the {restarts + 1}th time.", hint="`kgops logs` has their output.")
        report.note(f"{lost}: all restart from the last resume checkpoint.")
    result = json.loads((ranks_folder / RESULT).read_text())
    report.options |= result["options"]
    shutil.rmtree(ranks_folder)
    metrics: dict[str, float] = result["metrics"]
    return metrics


def _before_the_fallbacks(job: Job, report: Reporter) -> Job:
    """This process's job, which in a pipeline is not the run's; each rank applies the OOM fallbacks itself, so that it
    can report the requested values."""
    requested = {**job.options, **report.requested_before_fallbacks}
    changed = report.requested_before_fallbacks
    return replace(job, options={k: v for k, v in requested.items() if not (k in changed and v == "auto")})


def lost_process(folder: Path, codes: Sequence[int]) -> str:
    """Describes the lost process by the exit codes; raises an error that a restart would not fix."""
    for rank in range(len(codes)):
        if trouble_file(folder, rank).exists():
            raise _as_error(json.loads(trouble_file(folder, rank).read_text()))
    killed = [(rank, -code) for rank, code in enumerate(codes) if code < 0]
    # One that lost its connection to another may abort while it ends.
    killed.sort(key=lambda one: one[1] == signal.SIGABRT)
    if killed:
        rank, number = killed[0]
        return f"process {rank + 1} of {len(codes)} was lost to signal {number}"
    for rank, code in enumerate(codes):
        if code not in (0, os.EX_TEMPFAIL):
            raise KgopsError(
                f"process {rank + 1} of {len(codes)} ended with {code}; its output is in the log.",
                hint="`kgops logs` shows it.",
            )
    return f"process {codes.index(os.EX_TEMPFAIL) + 1} of {len(codes)} has lost the others"


def _as_error(trouble: dict[str, str | int | None]) -> Exception:
    if trouble["kind"] == events.OUT_OF_MEMORY:
        return MemoryError(trouble["says"])
    error = KgopsError(str(trouble["says"]), None if trouble["hint"] is None else str(trouble["hint"]))
    error.exit_code = int(trouble["code"] or 1)
    return error


class _RankProcesses:
    """One process for each device; ends them at exit."""

    def __init__(self, folder: Path, devices: Sequence[str], restarts: int) -> None:
        self._folder = folder
        self._ranks = [
            RankSettings(rank, len(devices), device, (folder / f"meeting-{restarts}").absolute().as_uri())
            for rank, device in enumerate(devices)
        ]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for rank in self._ranks:
            trouble_file(self._folder, rank.rank).unlink(missing_ok=True)
        # Appended one by one: if one cannot be started, the earlier ones are ended.
        try:
            for rank in self._ranks:
                self._processes.append(self._start(rank))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def wait(self, stop: Callable[[], bool]) -> list[int]:
        """Waits for all; returns their exit codes."""
        asked_to_stop, deadline = False, None
        while (codes := [process.poll() for process in self._processes]).count(None):
            if stop() and not asked_to_stop:
                asked_to_stop = True
                self._tell_to_stop()
            if deadline is None and any(codes):
                deadline = time.monotonic() + _GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                # A process killed here is not the lost one, so its signal must not count.
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
            self._tell_to_stop()  # all are healthy and can save their state
            deadline = time.monotonic() + _STOPPING_S
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, rank: RankSettings) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "kgops.workers.train_rank", str(self._folder / "job.toml")]
        # All ranks are on this machine: use loopback, whatever its host name resolves to.
        own = {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"), **rank.environment()}
        return subprocess.Popen(command, env={**os.environ, **own}, stdin=subprocess.DEVNULL)
