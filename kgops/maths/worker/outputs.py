"""Publishes a worker's results: config.json, manifest, and copies to the requested folders and files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Unavailable
from kgops.jobs import manifest
from kgops.jobs.files import ROOM, write_json
from kgops.jobs.job import Job
from kgops.jobs.option_reading import SEGMENTS, booleans
from kgops.maths.worker.entry import check_fence, is_forced
from kgops.maths.worker.publication import TO_RESUME, Publication
from kgops.maths.worker.report import Reporter
from kgops.workloads import outputs
from kgops.workloads.outputs import Owner
from kgops.workloads.shared_options import TRIPLES

NOTHING_BEST = "no best_model.pt, since nothing was validated: final_model.pt has the last weights."
_KINDS = {
    "best_model.pt": "best_model",
    "final_model.pt": "model",
    "trained_model.pkl": "model",
    "config.json": "config",
    "training_history.json": "history",
}
_KINDS_BY_SUFFIX = {".pt": "checkpoint", ".json": "metrics", ".sha256": "digest"}
_MOST_SHOWN = 12  # metrics in the last line of the log


def open_results(job: Job, folder: Path, device: torch.device, report: Reporter) -> Path:
    """The folder of a run's results, once the worker has said that it starts and its outputs are free."""
    report.started(device=str(device), torch=torch.__version__)
    make_output_folder(job, folder)
    results = folder / "results"
    results.mkdir(exist_ok=True)
    return results


def make_output_folder(job: Job, folder: Path) -> None:
    """Takes the output folders before the work starts, so that one that cannot be used fails early. `folder` is the
    run's."""
    outputs.must_be_free(job, Path(), folder, force=is_forced())
    folders = outputs.folders_of(job.workload, job.settings)
    named = [path.parent for path in outputs.files_of(job.workload, job.settings)]
    for wanted in dict.fromkeys([*folders, *named]):
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            problem = None if os.access(wanted, os.W_OK | os.X_OK) else "no write permission"
            if problem is None and wanted in folders:
                outputs.claim(wanted, job, Owner.of_worker(folder), force=is_forced())
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
        "data": {name: job.settings[name] for name in ("dataset", *TRIPLES) if job.settings[name]},
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
    check_fence()
    begin = time.monotonic()
    files = sorted(path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    named = [(path, _kind(path)) for path in files if path.name != "manifest.json"]
    described = manifest.describe(folder, named)
    digests = {folder / file.path: file.sha256 for file in described}
    copied = Publication(job, folder, results, digests, report).copy()
    if "writing_s" in metrics:  # writing includes copying and checking
        metrics = metrics | {"writing_s": metrics["writing_s"] + time.monotonic() - begin}
        metrics["written_mib"] = (sum(file.bytes for file in described) + copied) / 2**20
    metrics = metrics | {"disk_mib": (_bytes_below(folder) + copied) / 2**20}
    report.result(metrics)
    report.sync()
    manifest.write(results / "manifest.json", described, metrics)
    if "KGOPS_EVENTS" in os.environ:  # otherwise stdout has the events, with the metrics
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


def _kind(path: Path) -> str:
    kind = _KINDS.get(path.name) or _KINDS_BY_SUFFIX.get(path.suffix, "file")
    return "resume" if kind in ("checkpoint", "metrics") and path.match(TO_RESUME) else kind
