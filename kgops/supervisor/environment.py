"""The environment of a run: what is recorded, and what its worker gets."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from kgops.jobs import manifest
from kgops.jobs.secrets import masked_environment, masked_text
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
        *(processes.TAG, processes.SUPERVISOR, manifest.OWNER),
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


_PACKAGES = ("kgops", "torch", "pykeen", "numpy", "nvidia-ml-py", "textual", "sqlite-utils")


def describe_environment(more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`more`: extra environment variables of the worker."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: _version(name) for name in _PACKAGES},
        "machine": {
            "host": platform.node(),
            "system": f"{platform.system()} {platform.release()}",
            "processor": _cpu_name(),
            "cores": os.cpu_count(),
        },
        **_gpus(),
        "git": git_commit(Path.cwd()),
        "cwd": masked_text(str(Path.cwd())),
        "variables": masked_environment({**os.environ, **(more or {})}),
    }


def _gpus() -> dict[str, Any]:
    """Driver and GPUs from NVML; None without a driver."""
    from kgops.gpus import nvml

    opened = nvml.open_nvml()
    if not isinstance(opened, nvml.Nvml):
        return {"driver": None, "gpus": None}
    try:
        gpus = [{"name": gpu.name, "uuid": gpu.uuid, "mib": gpu.memory_total_mib} for gpu in opened.gpus()]
        return {"driver": opened.driver_version(), "gpus": gpus}
    finally:
        opened.close()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def git_commit(folder: Path) -> dict[str, Any] | None:
    """Git commit of the folder, and whether it has changes; None outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {
            "commit": commit,
            "changed": bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=True
    )
    return done.stdout.strip()
