"""What a worker leaves behind: its files, their manifest, and a copy where the person wants one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs import manifest
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.option_lines import booleans
from kgops.jobs.train import FILES
from kgops.training.reporter import Progress
from kgops.workers import fence
from kgops.workers.report import Reporter

__all__ = ["applied_options", "hand_in", "make_output_folder", "write_config"]

_KINDS = {
    "best_model.pt": "best_model",
    "final_model.pt": "model",
    "trained_model.pkl": "model",
    "config.json": "config",
    "training_history.json": "history",
}
_KINDS_BY_SUFFIX = {".pt": "checkpoint", ".json": "metrics", ".sha256": "digest"}
_TO_RESUME = "resume_*"
_MODELS = (
    "best_model.pt",
    "final_model.pt",
    "pretrained_model.pt",
    "checkpoints/checkpoint_epoch_*.pt",
    "loo/*.pt",
)
_COPIED_AT_ONCE = 16 << 20  # bytes
_MOST_TOLD = 12  # in the last line of the log: the record has them all


def make_output_folder(job: Job) -> None:
    """Before hours of work, not after them, is the moment to hear that it cannot be written."""
    named = [target.parent for _, target in _files_named(job, Path())]
    for wanted in dict.fromkeys([*_wanted_folders(job), *named]):
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            problem = None if os.access(wanted, os.W_OK | os.X_OK) else "you may not write there"
        except OSError as error:
            problem = os.strerror(error.errno or 0)
        if problem:
            raise Unavailable(
                f"the output folder {wanted} cannot be used: {problem}.", hint="name another one."
            )


def write_config(
    job: Job, results: Path, model: dict[str, Any], training: dict[str, Any], report: Reporter
) -> None:
    """`config.json`, with what was asked of every option and what came of it."""
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
    """The booleans that the group's scripts wrote, as it went; and of each option what was asked and applied, and why.

    Asked is what the person or the profile did, None where nobody did: not what the OOM fallbacks made of it.
    """
    asked = job.options if report.asked is None else report.asked
    options = {name: {**told, "asked": asked.get(name)} for name, told in sorted(report.options.items())}
    return {**booleans(report.options, asked), **options}


def hand_in(job: Job, folder: Path, results: Path, metrics: dict[str, float], report: Reporter) -> None:
    """The manifest comes last: with it the run has succeeded, whatever happens to this process."""
    fence.check()
    begin = time.monotonic()
    files = sorted(path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    named = [(path, _kind(path)) for path in files if path.name != "manifest.json"]
    copied = _copy_asked(job, results, report)
    for wanted in _wanted_folders(job):
        if removed := _remove_earlier(results, wanted):
            report.note(
                f"{removed} models and checkpoints that an earlier run had copied to {wanted} were removed there."
            )
    described = manifest.describe(folder, named)
    if "writing_s" in metrics:  # what was written is not done before it was copied and checked
        metrics = metrics | {"writing_s": metrics["writing_s"] + time.monotonic() - begin}
        metrics["written_mib"] = (sum(file.bytes for file in described) + copied) / 2**20
    beside = metrics.get("index_mib", 0.0)  # an index stands where a person named it
    metrics = metrics | {"disk_mib": (_bytes_below(folder) + copied) / 2**20 + beside}
    report.result(metrics)
    report.sync()
    manifest.write(results / "manifest.json", described, metrics)
    if "KGOPS_EVENTS" in os.environ:  # else these lines are the events, and the metrics stand among them
        told = [f"{name} {value:.4g}" for name, value in metrics.items()]
        print(" · ".join(told[:_MOST_TOLD] + ["…"] * (len(told) > _MOST_TOLD)), flush=True)


def _bytes_below(folder: Path) -> int:
    """Of all files that are there now; one that another process just removes is none."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += (Path(path) / name).lstat().st_size
    return found


def _wanted_folders(job: Job) -> list[Path]:
    """Where the person wants a copy: a workload calls it as the group's scripts do."""
    found = []
    for settings in _stages(job):
        named = settings.get("output_dir") or settings.get("output_directory")
        found += [Path(named) / (settings.get("save_name") or "")] if named else []
    return found


def _stages(job: Job) -> list[dict[str, Any]]:
    """The settings of a job, or of both that it is made of."""
    if job.workload != "pipeline":
        return [job.settings]
    return [job.settings[name] or {} for name in ("train", "tracin")]


def _kind(path: Path) -> str:
    kind = _KINDS.get(path.name) or _KINDS_BY_SUFFIX.get(path.suffix, "file")
    return "resume" if kind == "checkpoint" and path.match(_TO_RESUME) else kind


def _copy_asked(job: Job, results: Path, report: Reporter) -> int:
    """What a person named gets a copy, not a link: whoever writes over a file there must not write into the record
    of this run. The bytes that were copied."""
    pairs = _files_named(job, results)
    pairs += [pair for wanted in _wanted_folders(job) for pair in _below(results, wanted)]
    whole = sum(source.stat().st_size for source, _ in pairs)
    progress = Progress(report, "copying", "MiB")
    done = 0
    for source, target in pairs:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            for size in _copied(source, target):
                done += size
                progress(done / 2**20, whole / 2**20)
        except OSError as error:
            raise Unavailable(
                f"the results could not be copied: {source.name} to {target}: {os.strerror(error.errno or 0)}.",
                hint="the work itself is complete; make room there, or make it writable, and `kgops resume` only "
                "copies again.",
            ) from error
    return done


def _files_named(job: Job, results: Path) -> list[tuple[Path, Path]]:
    """`--output` and `--csv-output` of a TracIn run, alone or after a training."""
    settings = _stages(job)[-1]
    wanted = [(settings.get("output"), ".json"), (settings.get("csv_output"), ".csv")]
    stem = "self_influence" if settings.get("self_influence") else "tracin"
    return [(results / f"{stem}{ending}", Path(named)) for named, ending in wanted if named]


def _remove_earlier(results: Path, wanted: Path) -> int:
    """How many models of an earlier copy are gone: TracIn sums over a folder, and must find one training there.

    Ours have these names and a digest beside them, and lie in the folder of their run still; no other file is touched.
    """
    removed = 0
    for digest in [path for names in _MODELS for path in wanted.glob(f"{names}.sha256")]:
        if not (results / digest.relative_to(wanted)).exists():
            digest.with_suffix("").unlink(missing_ok=True)
            digest.unlink(missing_ok=True)
            removed += 1
    return removed


def _below(results: Path, wanted: Path) -> list[tuple[Path, Path]]:
    """All results but what only this run and its record need."""
    found = []
    for path in sorted(path for path in results.rglob("*") if path.is_file()):
        inside = path.relative_to(results)
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and not path.match(_TO_RESUME) and path.name != "manifest.json":
            found.append((path, wanted / inside))
    return found


def _copied(source: Path, target: Path) -> Iterator[int]:
    """Bytes, as they are copied; under its name it is whole or not at all."""
    half = target.with_name(f"{target.name}.part")
    with source.open("rb") as here, half.open("wb") as there:
        while sent := os.sendfile(there.fileno(), here.fileno(), None, _COPIED_AT_ONCE):
            yield sent
    half.replace(target)
