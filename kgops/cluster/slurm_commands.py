"""Calls Slurm's commands (sbatch, squeue, scancel). Parses their text, which all versions share, never their JSON."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgops.errors import KgopsError, Unavailable

_TIMEOUT_S = 60  # a busy controller is slow
# States of a job that has not ended, or will be requeued.
NOT_OVER = frozenset(
    {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "RESIZING"}
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in squeue: number of tasks in each state, nodes, and reason of waiting."""

    states: dict[str, int]
    nodes: tuple[str, ...]
    reason: str | None

    @property
    def is_running(self) -> bool:
        return "RUNNING" in self.states

    def __str__(self) -> str:
        states = [
            f"{count} {state.lower()}" if count > 1 else state.lower() for state, count in self.states.items()
        ]
        where = f" on {', '.join(self.nodes)}" if self.nodes else ""
        why = f" ({self.reason})" if self.reason and not self.is_running else ""
        return " and ".join(states) + where + why


def submit(script: Path, options: Sequence[str] = ()) -> int:
    """Submits the script and returns the Slurm job number."""
    done = _call(["sbatch", "--parsable", *options, str(script)])
    if done.returncode != 0:
        raise KgopsError(
            f"Slurm rejected the job: {_first_line(done.stderr)}",
            hint="`sinfo` lists partitions; --partition, --time, --gres and --sbatch change the request",
        )
    match = re.match(r"\d+", done.stdout.strip())
    if match is None:
        raise KgopsError(f"sbatch printed {done.stdout[:80]!r}, which is not a job number.")
    return int(match[0])


def queued(job: int) -> Waiting | None:
    """The job in squeue; None if it has ended or the controller no longer knows it."""
    done = _call(["squeue", "--noheader", "--array", f"--jobs={job}", "--format=%T|%N|%r"])
    if done.returncode != 0:
        if "Invalid job id" in done.stderr:
            return None
        raise Unavailable(f"squeue: {_first_line(done.stderr)}")
    rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") >= 2]
    rows = [row for row in rows if row[0] in NOT_OVER]
    if not rows:
        return None
    states = Counter(row[0] for row in rows)
    nodes = sorted({row[1] for row in rows if row[1]})
    reasons = [row[2] for row in rows if row[0] == "PENDING" and row[2] not in ("None", "")]
    return Waiting(dict(states), tuple(nodes), reasons[0] if reasons else None)


def end_of(job: int) -> str | None:
    """Slurm's final state: `NODE_FAIL`, `TIMEOUT`, …; None if unknown."""
    done = _call(["scontrol", "show", "job", str(job), "--oneliner"])
    states = re.findall(r"\bJobState=(\w+)", done.stdout)
    if not states:
        # sacct fails on sites without accounting.
        done = _call(["sacct", "--parsable2", "--noheader", f"--jobs={job}", "--format=State"])
        states = re.findall(r"^(\w+)", done.stdout, re.MULTILINE) if done.returncode == 0 else []
    not_completed = [state for state in states if state != "COMPLETED"]
    return next(iter(not_completed or states), None)


def cancel(job: int, signal: str | None = None) -> None:
    """Cancels the job; with `signal`, only sends it to the script."""
    options = ["--batch", f"--signal={signal}"] if signal else []
    _call(["scancel", *options, str(job)])


def _call(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise KgopsError(
            f"{command[0]} not found on this machine.",
            hint="run it on a login node, which has Slurm's commands",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} did not answer within {_TIMEOUT_S} s") from error


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
