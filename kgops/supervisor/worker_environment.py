"""Builds a worker's command and environment for one attempt."""

from __future__ import annotations

import json
import sys
from typing import Any

from kgops.jobs import manifest
from kgops.jobs.cluster import GPU
from kgops.jobs.text import fill_in
from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.plan_file import Plan, Private
from kgops.supervisor.run_folder import RunFolder

# Modules that follow a worker on a cluster.
_CLUSTER_FOLLOWERS = {"slurm": "kgops.slurm.follow"}
# Variables of one run, removed for a run started inside it.
RUN_VARIABLES = frozenset(
    {
        *("KGOPS_RUN", "KGOPS_RUN_FOLDER", "KGOPS_EVENTS", "KGOPS_ATTEMPT", "KGOPS_SETTINGS"),
        *(processes.TAG, processes.SUPERVISOR, manifest.OWNER, GPU),
    }
)


def worker_environment(
    home: Home,
    folder: RunFolder,
    plan: Plan,
    private: Private,
    attempt: int,
    settings: dict[str, Any],
    tag: str,
    gpu: str | None,
) -> tuple[list[str], dict[str, str]]:
    """The command and environment of attempt `attempt`; `home` and `folder` by their full paths."""
    environment = {
        **private.environment,
        **plan.environment,
        "KGOPS_HOME": str(home.path),
        "KGOPS_RUN": str(plan.number),
        "KGOPS_RUN_FOLDER": str(folder.path),
        "KGOPS_EVENTS": str(folder.events),
        "KGOPS_ATTEMPT": str(attempt),
        "KGOPS_SETTINGS": json.dumps(settings),
        processes.TAG: tag,
        GPU: gpu or "",  # else a run started inside another would inherit that one's
    }
    if plan.key is not None:
        environment[manifest.OWNER] = manifest.owner(plan.key, attempt)
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    if plan.module is not None:
        # -P: Python must not import modules from the working folder.
        module = _CLUSTER_FOLLOWERS.get(plan.on or "", plan.module)
        return [sys.executable, "-P", "-m", module, str(folder.job)], environment
    return fill_in(private.command, settings), environment
