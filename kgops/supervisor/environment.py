"""A run's environment: described (package versions, git commit, machine) without importing the packages, and set."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from kgops.jobs.secrets import masked_environment, masked_text

_DRIVER_WITHIN_S = 10.0  # for what is only written down: a driver may hang for good
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


@contextmanager
def temporary_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of this process, for runs launched meanwhile, and restores the previous ones afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _gpus() -> dict[str, Any]:
    """Driver and GPUs from NVML; None without a driver that answers."""
    from kgops.gpus.readings import usable
    from kgops.gpus.sampler import read_once

    found = read_once(_DRIVER_WITHIN_S)
    if found is None or found.problem is not None:
        return {"driver": None, "gpus": None}
    gpus = [{"name": gpu.name, "uuid": gpu.uuid, "mib": gpu.memory_total_mib} for gpu in usable(found.gpus)]
    return {"driver": found.driver_version, "gpus": gpus}


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
