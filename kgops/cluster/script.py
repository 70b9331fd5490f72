"""Writes the batch script: it runs the worker, asks it to save before the time limit, and requeues the job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kgops.jobs.job import Job
from kgops.jobs.run_options import ClusterRequest
from kgops.workloads.registry import WORKLOADS

NOTICE_S = 120  # signal this long before the time limit: enough to write a checkpoint

_BODY = r"""
set -u
mkdir -p "$DIR"
task=${SLURM_ARRAY_TASK_ID:-all}
# Of two that Slurm started, as after a lost node, only the later one may publish.
mark="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
printf %s "$mark" > "$DIR/.fence.$task.$mark" && mv -f "$DIR/.fence.$task.$mark" "$DIR/fence.$task"
rm -f "$DIR/exit.$task"
export KGOPS_FENCE="$DIR/fence.$task:$mark"
export KGOPS_EVENTS="$DIR/events.$task.jsonl"
printf '{"event":"note","at":%s,"text":"Slurm job %s on %s"}\n' "$(date +%s)" "$mark" "$(hostname)" >> "$KGOPS_EVENTS"
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SLURM_CPUS_PER_TASK}; fi
again=0
"$@" &
pid=$!
# The notice before the end of its time: it saves, and asks to go on later. Who takes its node away sends TERM, and
# Slurm queues it again by itself; one that has left by then waits two minutes more.
taken=0
trap 'again=1; kill -TERM $pid 2>/dev/null' USR2
trap 'grep -qa "^kgops " "$KGOPS_RUN_FOLDER/stop.slot" || taken=1; kill -TERM $pid 2>/dev/null' TERM
wait $pid; code=$?
while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
if [ $again = 1 ] && [ $code -ne 0 ]; then
    scontrol requeue "$SLURM_JOB_ID"
    sleep 30  # Slurm ends this script when it queues the job again
fi
if [ $taken = 1 ] && [ $code -ne 0 ]; then sleep 60; fi
printf %s "$code" > "$DIR/.exit.$task.$mark" && mv -f "$DIR/.exit.$task.$mark" "$DIR/exit.$task"
exit $code
"""


def script(
    name: str,
    place: ClusterRequest,
    folder: Path,
    cwd: str,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> str:
    """`folder`: for the script's files, on a file system shared with the nodes."""
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {shlex.quote(option)}" for option in sbatch_options(name, place, folder)),
    ]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in sorted(environment.items())]
    lines += [f"DIR={shlex.quote(str(folder))}", f"cd {shlex.quote(cwd)} || exit 1"]
    return "\n".join([*lines, f"set -- {shlex.join(command)}", _BODY])


def sbatch_options(name: str, place: ClusterRequest, folder: Path) -> list[str]:
    named = {
        "job-name": name,
        "partition": place.partition,
        "time": place.time,
        "gres": place.gres,
        "cpus-per-task": None if place.cpus is None else str(place.cpus),
        "mem": place.memory,
        "account": place.account,
        # %a would be a large number without an array.
        "output": str(folder / ("log.%a" if place.tasks > 1 else "log.all")),
        "open-mode": "append",
        "signal": f"B:USR2@{NOTICE_S}",
    }
    options = [f"--{key}={value}" for key, value in named.items() if value is not None]
    return [*options, "--requeue", *place.options]


_SHARDS_MODULE = "kgops.maths.tracin.parallel"
_NOT_SHARDED = ("self_influence", "skip_tracin")  # TracIn runs that are not sharded


@dataclass(frozen=True, slots=True)
class Submission:
    """One script: its file, worker module, sbatch options and environment."""

    file: str
    module: str
    place: ClusterRequest
    environment: Mapping[str, str] = field(default_factory=dict)
    array: int | None = None

    def options(self, before: Sequence[int | str]) -> list[str]:
        """sbatch options outside the script; `before`: jobs submitted earlier."""
        array = [] if self.array is None else [f"--array=0-{self.array - 1}"]
        # After all of them, also failed ones: the merge job computes missing shards itself.
        return array + [f"--dependency=afterany:{number}" for number in before]


def submissions(job: Job) -> list[Submission]:
    """The job's submissions, in order."""
    module = WORKLOADS[job.workload].module
    assert module is not None  # a command is refused when it is launched
    tasks = 1 if any(job.settings.get(name) for name in _NOT_SHARDED) else job.on.tasks
    single = replace(job.on, tasks=1)
    if tasks == 1:
        return [Submission("worker.sh", module, single)]
    return [
        Submission("shards.sh", _SHARDS_MODULE, job.on, {"KGOPS_TASKS": str(tasks)}, array=tasks),
        Submission("worker.sh", module, single, {"KGOPS_MERGE": "1"}),
    ]


def sbatch_lines(job: Job) -> list[str]:
    """The sbatch commands that would be run, before the run has a number; empty for jobs that do not run on Slurm."""
    if job.on.where != "slurm" or WORKLOADS[job.workload].module is None:
        return []
    lines: list[str] = []
    for submission in submissions(job):
        options = sbatch_options("kgops-RUN", submission.place, Path("RUN/attempts/1/slurm"))
        before = ["JOB"] * len(lines)
        command = shlex.join(["sbatch", *options, *submission.options(before), submission.file])
        lines.append(f"{command}: python -P -m {submission.module} job.toml")
    return lines
