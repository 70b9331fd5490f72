"""Writes the batch script: it runs the worker, asks it to save before the time limit, and requeues the job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from kgops.jobs.cluster import ClusterRequest

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
