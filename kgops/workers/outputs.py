"""What a worker leaves behind: its files, their manifest, and a copy where the person wants one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs import manifest
from kgops.jobs.applied import booleans
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.training import FILES
from kgops.workers import fence
from kgops.workers.report import Reporter

__all__ = ["applied_options", "copy_file", "hand_in", "make_output_folder", "write_config"]

_KINDS = {
    "best_model.pt": "best_model",
    "final_model.pt": "model",
    "trained_model.pkl": "model",
    "config.json": "config",
    "training_history.json": "history",
}
_KINDS_BY_SUFFIX = {".pt": "checkpoint", ".json": "figures", ".sha256": "digest"}
_TO_RESUME = "resume_*"
_MOST_TOLD = 12  # in the last line of the log: the record has them all


def make_output_folder(job: Job) -> None:
    """Before hours of work, not after them, is the moment to hear that it cannot be written."""
    wanted = _wanted_folder(job)
    if wanted is None:
        return
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        problem = None if os.access(wanted, os.W_OK | os.X_OK) else "you may not write there"
    except OSError as error:
        problem = os.strerror(error.errno or 0)
    if problem:
        raise Unavailable(f"the output folder {wanted} cannot be used: {problem}.", hint="name another one.")


def write_config(
    job: Job, results: Path, model: dict[str, Any], training: dict[str, Any], report: Reporter
) -> None:
    """`config.json`, with what was asked of every lever and what came of it."""
    body = {
        "engine": job.settings["engine"],
        "model": model,
        "training": training,
        "data": {name: job.settings[name] for name in ("dataset", *FILES) if job.settings[name]},
        "optimizations": applied_options(job, report),
    }
    write_json(results / "config.json", body)
    report.artifact(results / "config.json", "config")


def applied_options(job: Job, report: Reporter) -> dict[str, Any]:
    """The booleans that the group's scripts wrote, as it went; and of each lever what was asked and applied, and why.

    Asked is what the person or the profile did, None where nobody did: not what the ladder made of it.
    """
    asked = job.levers if report.asked is None else report.asked
    levers = {name: {**told, "asked": asked.get(name)} for name, told in sorted(report.levers.items())}
    return {**booleans(report.levers, asked), **levers}


def hand_in(job: Job, folder: Path, results: Path, figures: dict[str, float], report: Reporter) -> None:
    """The manifest comes last: with it the run has succeeded, whatever happens to this process."""
    fence.check()
    wanted = _wanted_folder(job)
    if wanted is not None:
        _copy(results, wanted)
    report.result(figures)
    report.sync()
    files = sorted(path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    named = [(path, _kind(path)) for path in files if path.name != "manifest.json"]
    manifest.write(results / "manifest.json", folder, named, figures)
    if "KGOPS_EVENTS" in os.environ:  # else these lines are the events, and the figures stand among them
        told = [f"{name} {value:.4g}" for name, value in figures.items()]
        print(" · ".join(told[:_MOST_TOLD] + ["…"] * (len(told) > _MOST_TOLD)), flush=True)


def _wanted_folder(job: Job) -> Path | None:
    """Where the person wants a copy: a workload calls it as the group's scripts do."""
    settings = job.settings
    named = settings.get("output_dir") or settings.get("output_directory")
    return Path(named) / (settings.get("save_name") or "") if named else None


def _kind(path: Path) -> str:
    kind = _KINDS.get(path.name) or _KINDS_BY_SUFFIX.get(path.suffix, "file")
    return "resume" if kind == "checkpoint" and path.match(_TO_RESUME) else kind


def copy_file(source: Path, target: Path) -> None:
    """A copy under the name a person asked for, whole or not at all."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_whole(str(source), str(target))
    except OSError as error:
        raise Unavailable(
            f"{source.name} could not be copied to {target}: {os.strerror(error.errno or 0)}.",
            hint="the work itself is complete; make that place writable and `kgops resume` only copies again.",
        ) from error


def _copy_whole(source: str, target: str) -> None:
    half = f"{target}.part"
    shutil.copyfile(source, half)
    os.replace(half, target)  # noqa: PTH105 - named for what it promises


def _copy(results: Path, wanted: Path) -> None:
    """Copies, not links: whoever writes over a file there must not write into the record of this run."""
    skip = shutil.ignore_patterns(".*", _TO_RESUME, "manifest.json")
    try:
        shutil.copytree(results, wanted, copy_function=_copy_whole, ignore=skip, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise Unavailable(
            f"the results could not be copied to {wanted}: {str(error)[:200]}.",
            hint="the work itself is complete; make room there and `kgops resume` only copies again.",
        ) from error
