"""Publishes a worker's results: config.json, manifest, and copies to the requested folders and files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from kgops.errors import Unavailable, Usage
from kgops.jobs import manifest
from kgops.jobs.files import ROOM, write_json
from kgops.jobs.job import Job
from kgops.jobs.option_reading import SEGMENTS, booleans
from kgops.maths.worker.entry import check_fence, is_forced
from kgops.maths.worker.report import Progress, Reporter
from kgops.workloads import outputs
from kgops.workloads.outputs import Inputs, Ledger, Owner
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.shared_options import TRIPLES

TO_RESUME = "resume_*"
_COPIED_AT_ONCE = 16 << 20  # bytes
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class Publication:
    """Copies the results to the folders and files that the job names. Not links: writing to a copy must not change the
    run's folder."""

    def __init__(
        self, job: Job, folder: Path, results: Path, digests: dict[Path, str], report: Reporter
    ) -> None:
        self._job, self._folder, self._results, self._report = job, folder, results, report
        self._digests = digests  # of the results
        self._owner, self._inputs = Owner.of_worker(folder), Inputs(job, Path())
        self._progress = Progress(report, "copying", "MiB")
        self._whole = self._done = 0  # bytes
        self._at = ""

    def copy(self) -> int:
        """The bytes copied. Unavailable where a file cannot be written, or is not this run's to replace."""
        folders = outputs.folders_of(self._job.workload, self._job.settings)
        files = _requested_files(self._job, self._results)
        copies = [path for path, _ in files] + [path for path, _ in _below(self._results)] * len(folders)
        self._whole = sum(path.stat().st_size for path in copies)
        try:
            self._copy_files(files)
            for wanted in folders:
                self._copy_folder(wanted)
        except Usage as error:
            raise Unavailable(
                f"the results could not be copied: {error.message}.",
                hint="the work is complete; move that away: `kgops resume` then only copies.",
            ) from error
        except OSError as error:
            raise Unavailable(
                f"the results could not be copied: {self._at}: {os.strerror(error.errno or 0)}.",
                hint="the work is complete; free space there, or make it writable: `kgops resume` then only copies.",
            ) from error
        return self._done

    def _copy_files(self, files: list[tuple[Path, Path]]) -> None:
        if not files:
            return
        outputs.must_be_free(self._job, Path(), self._folder, force=is_forced())
        written = outputs.written_by(self._folder)
        for source, target in files:
            written.expect(str(target.absolute()), self._digests[source])
        written.write(self._folder / outputs.WRITTEN)
        for source, target in files:
            self._at = f"{source.name} to {target}"
            target.parent.mkdir(parents=True, exist_ok=True)
            self._copy(source, target, str(target.absolute()), None if is_forced() else written)

    def _copy_folder(self, wanted: Path) -> None:
        self._at = str(wanted)
        real, ledger = outputs.claim(wanted, self._job, self._owner, force=is_forced())
        pairs = list(_below(self._results))
        for source, name in pairs:
            ledger.expect(str(name), self._digests[source])
        ledger.write(real / outputs.LEDGER)
        for source, name in pairs:
            self._at = f"{source.name} to {real / name}"
            _make_below(real, name.parent)
            self._copy(source, real / name, str(name), ledger)
        new = {str(name): [self._digests[source]] for source, name in pairs}
        if removed := self._remove_earlier_models(real, ledger, new):
            self._report.note(f"removed {removed} models and checkpoints of an earlier run from {wanted}.")
        earlier = {name: digests for name, digests in ledger.files.items() if (real / name).is_file()}
        Ledger(self._owner, earlier | new).write(real / outputs.LEDGER)

    def _copy(self, source: Path, target: Path, name: str, known: Ledger | None) -> None:
        """Copies one file. Replaces a file at `target` only if `known` lists it; None: any file."""
        try:
            before = target.lstat()
        except FileNotFoundError:
            before = None
        if before is not None:
            is_file = stat.S_ISREG(before.st_mode)
            there = manifest.digest_of(target)[0] if is_file else ""
            if there == self._digests[source]:
                self._sent(before.st_size)
                return
            if not is_file or not (known is None or known.lists(name, there)):
                raise Usage(f"{target} is not of this run, or was changed since")
            if self._inputs.holds(target, before):
                raise Usage(f"{target} is an input of this run")
        draft = outputs.draft_of(target)
        try:
            for size in _copied(source, draft):
                self._sent(size)
            _name_draft(draft, target, before)
        finally:
            draft.unlink(missing_ok=True)

    def _sent(self, size: int) -> None:
        self._done += size
        self._progress(self._done / 2**20, self._whole / 2**20)

    def _remove_earlier_models(self, real: Path, ledger: Ledger, new: dict[str, list[str]]) -> int:
        """Removes models that an earlier run copied there; returns how many. TracIn sums over all checkpoints of a
        folder."""
        earlier = [path for names in outputs.MODELS for path in real.glob(names)]
        inside = {path: str(path.relative_to(real)) for path in earlier}
        if not any(name in new for name in inside.values()):
            return 0  # this run trained nothing
        removed = 0
        for path, name in inside.items():
            status = path.lstat()
            is_listed = stat.S_ISREG(status.st_mode) and ledger.lists(name, manifest.digest_of(path)[0])
            if name in new or not is_listed or self._inputs.holds(path, status):
                continue
            path.unlink()
            digest = path.with_name(f"{path.name}.sha256")
            if digest.is_file() and ledger.lists(f"{name}.sha256", manifest.digest_of(digest)[0]):
                digest.unlink()
            removed += 1
        return removed


def _make_below(real: Path, inside: Path) -> None:
    """Makes a folder of the output folder; refuses a link on the way."""
    for part in (*reversed(inside.parents), inside):
        if (real / part).is_symlink() and part != Path():
            raise Usage(f"{real / part} is a symbolic link")
        (real / part).mkdir(exist_ok=True)


def _name_draft(draft: Path, target: Path, before: os.stat_result | None) -> None:
    """Gives the draft its name. Raises Usage if another writer made or changed the file meanwhile."""
    if before is None:
        try:
            target.hardlink_to(draft)  # unlike a rename it replaces nothing
            return
        except FileExistsError:
            raise Usage(f"{target} was just written by another process") from None
        except OSError as error:  # the file system has no hard links
            if error.errno not in _NO_HARD_LINKS:
                raise
    now = target.lstat() if os.path.lexists(target) else None
    if _seen(now) != _seen(before):
        raise Usage(f"{target} was just written by another process")
    draft.replace(target)


def _seen(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _requested_files(job: Job, results: Path) -> list[tuple[Path, Path]]:
    """Result files and the copies of them that the job names."""
    stages = WORKLOADS[job.workload].stage_settings(job.settings)
    copies = (WORKLOADS[name].outputs(settings) for name, settings in stages.items())
    return [(results / name, Path(named)) for stage in copies for name, named in stage.items()]


def _below(results: Path) -> Iterator[tuple[Path, Path]]:
    """All results, with their path inside, except resume files, hidden files and the manifest."""
    for path in sorted(path for path in results.rglob("*") if path.is_file()):
        inside = path.relative_to(results)
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and not path.match(TO_RESUME) and path.name != "manifest.json":
            yield path, inside


def _copied(source: Path, draft: Path) -> Iterator[int]:
    """Copies to a new file; yields the bytes of each step."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with source.open("rb") as reading, os.fdopen(os.open(draft, flags, 0o666), "wb") as there:
        while sent := os.sendfile(there.fileno(), reading.fileno(), None, _COPIED_AT_ONCE):
            yield sent


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
    files = sorted(path for path in results.rglob("*") if path.is_file() and not path.name.startswith("."))
    named = [(path, _kind(path)) for path in files if path.name != "manifest.json"]
    described = manifest.describe(folder, named)
    digests = {folder / file.path: file.sha256 for file in described}
    copied = Publication(job, folder, results, digests, report).copy()
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
