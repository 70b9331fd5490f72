"""Publishes a worker's results: config.json, manifest, and copies to the requested folders and files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kgops.errors import Unavailable
from kgops.jobs import manifest
from kgops.jobs.explain import EXPLANATIONS
from kgops.jobs.files import ROOM, write_json
from kgops.jobs.job import Job
from kgops.jobs.option_lines import SEGMENTS, booleans
from kgops.jobs.predict import ANSWERS
from kgops.options.train import FILES
from kgops.training.reporter import Progress
from kgops.workers import fence
from kgops.workers.report import Reporter

__all__ = ["applied_options", "make_output_folder", "publish_results", "write_config"]

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
_MOST_SHOWN = 12  # metrics in the last line of the log


def make_output_folder(job: Job) -> None:
    """Creates the output folders before the work starts, so that a folder that is not writable fails early."""
    named = [target.parent for _, target in _requested_files(job, Path())]
    for wanted in dict.fromkeys([*_copy_folders(job), *named]):
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            problem = None if os.access(wanted, os.W_OK | os.X_OK) else "no write permission"
        except OSError as error:
            problem = os.strerror(error.errno or 0)
        if problem:
            raise Unavailable(
                f"the output folder {wanted} cannot be used: {problem}.", hint="choose another one."
            )


def write_config(
    job: Job,
    results: Path,
    model: dict[str, Any],
    training: dict[str, Any],
    digests: Mapping[str, str],
    report: Reporter,
) -> None:
    """Writes `config.json`, with digests of the data, and each option requested and applied."""
    body = {
        "engine": job.settings["engine"],
        "model": model,
        "training": training,
        "data": {name: job.settings[name] for name in ("dataset", *FILES) if job.settings[name]},
        "digests": dict(digests),
        "optimizations": applied_options(job, report),
    }
    write_json(results / "config.json", body)
    report.artifact(results / "config.json", "config")


def applied_options(job: Job, report: Reporter) -> dict[str, Any]:
    """The booleans that the original scripts wrote, as applied; and each option requested and applied, with the reason.

    The request is the person's or the profile's, None without one; OOM fallbacks do not change it.
    """
    requested = job.options if report.requested_options is None else report.requested_options
    options = {
        name: state if name == SEGMENTS else {**state, "requested": requested.get(name)}
        for name, state in sorted(report.options.items())
    }
    return {**booleans(report.options, requested), **options}


def publish_results(
    job: Job, folder: Path, results: Path, metrics: dict[str, float], report: Reporter
) -> None:
    """Copies the results and writes the manifest, last: with it the run has succeeded."""
    fence.check()
    begin = time.monotonic()
    files = sorted(path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    named = [(path, _kind(path)) for path in files if path.name != "manifest.json"]
    copied = _copy_results(job, results, report)
    for copy_folder in _copy_folders(job):
        if removed := _remove_earlier(results, copy_folder):
            report.note(f"removed {removed} models and checkpoints of an earlier run from {copy_folder}.")
    described = manifest.describe(folder, named)
    if "writing_s" in metrics:  # writing includes copying and checking
        metrics = metrics | {"writing_s": metrics["writing_s"] + time.monotonic() - begin}
        metrics["written_mib"] = (sum(file.bytes for file in described) + copied) / 2**20
    metrics = metrics | {"disk_mib": (_bytes_below(folder) + copied) / 2**20}
    report.result(metrics)
    report.sync()
    manifest.write(results / "manifest.json", described, metrics)
    if "KGOPS_EVENTS" in os.environ:  # else stdout has the events, with the metrics
        shown = [f"{name} {value:.4g}" for name, value in metrics.items()]
        print(" · ".join(shown[:_MOST_SHOWN] + ["…"] * (len(shown) > _MOST_SHOWN)), flush=True)


def _bytes_below(folder: Path) -> int:
    """Bytes of all files that stay; one that another process removes meanwhile does not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            if name == ROOM:
                continue
            with suppress(FileNotFoundError):
                total += (Path(path) / name).lstat().st_size
    return total


def _copy_folders(job: Job) -> list[Path]:
    """Folders that get a copy; the setting's name is that of the original scripts."""
    paths = []
    for settings in _stages(job):
        named = settings.get("output_dir") or settings.get("output_directory")
        paths += [Path(named) / (settings.get("save_name") or "")] if named else []
    return paths


def _stages(job: Job) -> list[dict[str, Any]]:
    """The settings of the job, or of all stages of a pipeline."""
    if job.workload != "pipeline":
        return [job.settings]
    return [job.settings.get(name) or {} for name in ("train", "predict", "tracin")]


def _kind(path: Path) -> str:
    kind = _KINDS.get(path.name) or _KINDS_BY_SUFFIX.get(path.suffix, "file")
    return "resume" if kind in ("checkpoint", "metrics") and path.match(_TO_RESUME) else kind


def _copy_results(job: Job, results: Path, report: Reporter) -> int:
    """Copies the results; returns the bytes. Not links: writing to a copy must not change the run's folder."""
    pairs = _requested_files(job, results)
    pairs += [pair for copy_folder in _copy_folders(job) for pair in _below(results, copy_folder)]
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
                hint="the work is complete; free space there, or make it writable: `kgops resume` then only copies.",
            ) from error
    return done


def _requested_files(job: Job, results: Path) -> list[tuple[Path, Path]]:
    """`--output` of a predict or explain run; `--output` and `--csv-output` of a TracIn run, or of a pipeline's."""
    *before, settings = _stages(job)
    if job.workload == "predict":
        return _requested_answers(settings, results)
    if job.workload == "explain":
        return _requested_answers(settings, results, EXPLANATIONS)
    answers = [pair for stage in before for pair in _requested_answers(stage, results)]
    wanted = [(settings.get("output"), ".json"), (settings.get("csv_output"), ".csv")]
    stem = "self_influence" if settings.get("self_influence") else "tracin"
    return answers + [(results / f"{stem}{ending}", Path(named)) for named, ending in wanted if named]


def _requested_answers(
    settings: dict[str, Any], results: Path, stem: str = ANSWERS
) -> list[tuple[Path, Path]]:
    named = settings.get("output")
    return [(results / f"{stem}{Path(named).suffix.lower()}", Path(named))] if named else []


def _remove_earlier(results: Path, copy_folder: Path) -> int:
    """Removes models that an earlier run copied there; returns how many. TracIn sums over all checkpoints of a folder.

    Only files with these names and a digest file are removed; their originals are still in their run's folder.
    """
    removed = 0
    for digest in [path for names in _MODELS for path in copy_folder.glob(f"{names}.sha256")]:
        if not (results / digest.relative_to(copy_folder)).exists():
            digest.with_suffix("").unlink(missing_ok=True)
            digest.unlink(missing_ok=True)
            removed += 1
    return removed


def _below(results: Path, copy_folder: Path) -> list[tuple[Path, Path]]:
    """All results except resume files, hidden files and the manifest."""
    paths = []
    for path in sorted(path for path in results.rglob("*") if path.is_file()):
        inside = path.relative_to(results)
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and not path.match(_TO_RESUME) and path.name != "manifest.json":
            paths.append((path, copy_folder / inside))
    return paths


def _copied(source: Path, target: Path) -> Iterator[int]:
    """Yields the bytes copied; the target gets its name only when complete."""
    draft = target.with_name(f"{target.name}.part")
    with source.open("rb") as reading, draft.open("wb") as there:
        while sent := os.sendfile(there.fileno(), reading.fileno(), None, _COPIED_AT_ONCE):
            yield sent
    draft.replace(target)
