"""Where a job writes outside its run's folder. kgops never replaces files of a person or another run unasked.

An output folder belongs to the run that wrote it. `kgops-files.json` in the folder names that run, and the digests
of the files that kgops wrote. `--force` lets the next run replace unchanged ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from kgops.errors import Usage
from kgops.jobs.files import home_of, read_json, run_of, write_durably
from kgops.jobs.job import Job
from kgops.jobs.manifest import OWNER, digest_of
from kgops.workloads.registry import WORKLOADS, named_paths

LEDGER = "kgops-files.json"
WRITTEN = "outputs.json"  # in a run's folder: the output files that it wrote
MODELS = (
    *("best_model.pt", "final_model.pt", "pretrained_model.pt", "checkpoints/checkpoint_epoch_*.pt"),
    "loo/*.pt",
)
_TRAINED = (
    "*.pt",
    "*.sha256",
    "checkpoints/*",
    "loo/*",
    "pykeen/*",
    "config.json",
    "training_history.json",
    "test_results.json",
)
_PREDICTED = ("predict*.*",)
_TRACED = ("tracin.*", "self_influence.*", "batch_tracin_summary.json", "loo/*")
# Names of most results: a file in the way of one is found before a run of hours, not after it.
_RESULTS = {
    "train": _TRAINED,
    "evaluate": ("test_results.json",),
    "regress": (*_TRAINED, *_PREDICTED),
    "predict": _PREDICTED,
    "explain": ("explanations.*", "loo/*"),
    "tracin": _TRACED,
    "pipeline": (*_TRAINED, *_PREDICTED, *_TRACED),
}
_ELSEWHERE = "choose another one"
_NAMED = ("output", "csv_output", "output_dir", "output_directory")
Inode = tuple[int, int]


class Owner(NamedTuple):
    """A run, as output folders name it."""

    key: str  # the same in all its attempts
    name: str  # of its folder

    @classmethod
    def of_worker(cls, folder: Path) -> Self:
        """The run that this process works for; `folder` is the run's."""
        key = os.environ.get(OWNER, "").partition("#")[0] or f"by hand in {folder.resolve()}"
        return cls(hashlib.sha256(key.encode()).hexdigest()[:32], folder.resolve().name)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The files that kgops wrote to a folder, by their path there, with the digests they may have."""

    owner: Owner
    files: dict[str, list[str]] = field(default_factory=dict)

    def lists(self, name: str, digest: str) -> bool:
        return digest in self.files.get(name, ())

    def expect(self, name: str, digest: str) -> None:
        """Before the file is written: it is known as kgops' own at whatever moment the process is killed."""
        if not self.lists(name, digest):
            self.files.setdefault(name, []).append(digest)

    def write(self, path: Path) -> None:
        body = {"run": self.owner.name, "key": self.owner.key, "files": self.files}
        write_durably(path, json.dumps(body, indent=1).encode("utf-8", "surrogateescape"), mode=0o666)


def read_ledger(path: Path) -> Ledger | None:
    """None where there is none that kgops wrote, or that we may read."""
    try:
        table = read_json(path)
    except OSError:
        return None
    if not isinstance(table, dict) or not isinstance(table.get("files"), dict):
        return None
    files = {name: digests for name, digests in table["files"].items() if isinstance(digests, list)}
    return Ledger(Owner(str(table.get("key")), str(table.get("run"))), files)


def folders_of(workload: str, settings: Mapping[str, Any]) -> list[Path]:
    """The output folders that a job names. Settings have the names of the original scripts."""
    found = []
    for stage in stages_of(workload, settings):
        named = stage.get("output_dir") or stage.get("output_directory")
        found += [Path(named) / (stage.get("save_name") or "")] if named else []
    return list(dict.fromkeys(found))


def files_of(workload: str, settings: Mapping[str, Any]) -> list[Path]:
    """The output files that a job names."""
    names = [stage.get(name) for stage in stages_of(workload, settings) for name in ("output", "csv_output")]
    return list(dict.fromkeys(Path(name) for name in names if name))


def stages_of(workload: str, settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The settings of the job, or of all stages of a pipeline."""
    return list(WORKLOADS[workload].stage_settings(settings).values())


def places_of(workload: str, settings: Mapping[str, Any], cwd: Path) -> list[Path]:
    """Every folder and file that a job writes outside its run's folder, without links."""
    return [_real(cwd / path) for path in (*folders_of(workload, settings), *files_of(workload, settings))]


def must_be_free(job: Job, cwd: Path, folder: Path | None = None, *, force: bool = False) -> None:
    """Raises Usage where the job would replace or remove what is not its own, or write into its inputs or a home.

    `folder`: of the run that has the job, which may write again where it wrote. `force` lets a job replace unchanged
    files of an earlier run in its output folder, and output files that it names.
    """
    inputs = Inputs(job, cwd)
    owner = None if folder is None else Owner.of_worker(folder)
    for named in folders_of(job.workload, job.settings):
        _must_be_takeable(_real(cwd / named), named, job.workload, inputs, owner, force=force)
    for named in files_of(job.workload, job.settings):
        path = cwd / named
        _must_be_outside(_real(path.parent), named)
        _must_be_replaceable(path, inputs)
        is_own = folder is not None and _is_own(path, written_by(folder))
        if path.exists() and not force and not is_own:
            raise Usage(f"{named} already exists", "--force overwrites it")


def claim(named: Path, job: Job, owner: Owner, *, force: bool) -> tuple[Path, Ledger]:
    """Takes the output folder for the run, or raises Usage. Returns its path without links, and its ledger."""
    real = _real(named)
    _must_be_takeable(real, named, job.workload, Inputs(job, Path()), owner, force=force)
    real.mkdir(parents=True, exist_ok=True)
    earlier = read_ledger(real / LEDGER)
    if earlier is not None and earlier.owner.key == owner.key:
        return real, earlier
    ledger = Ledger(owner, earlier.files if earlier is not None else {})
    ledger.write(real / LEDGER)
    return real, ledger


def written_by(folder: Path) -> Ledger:
    """The output files that the run of this folder wrote in an earlier attempt."""
    return read_ledger(folder / WRITTEN) or Ledger(Owner.of_worker(folder))


def _is_own(path: Path, written: Ledger) -> bool:
    return written.lists(str(path.absolute()), _digest(path))


def _digest(path: Path) -> str:
    """Empty for a link, and for anything that is no readable file."""
    try:
        return "" if path.is_symlink() else digest_of(path)[0]
    except OSError:
        return ""


def _must_be_replaceable(path: Path, inputs: Inputs) -> None:
    """Refuses an output file that is an input, or no regular file: with and without --force."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise Usage(
            f"the output file {path} cannot be used: {os.strerror(error.errno or 0)}", _ELSEWHERE
        ) from error
    if stat.S_ISLNK(status.st_mode):
        raise Usage(f"the output file {path} is a symbolic link", "name the file that it leads to")
    if not stat.S_ISREG(status.st_mode):
        raise Usage(f"the output file {path} exists and is not a file", _ELSEWHERE)
    if inputs.holds(path, status):
        raise Usage(f"the output file {path} is an input of this job", _ELSEWHERE)


class Inputs:
    """The files and folders that a job reads."""

    def __init__(self, job: Job, cwd: Path) -> None:
        self._files: dict[Inode, Path] = {}
        self._folders: dict[Inode, Path] = {}
        for _, value in named_paths(job):
            if (found := _inode(cwd / value)) is not None:
                (self._folders if (cwd / value).is_dir() else self._files)[found] = Path(value)

    def must_not_hold(self, real: Path, named: Path) -> None:
        """Refuses an output folder that is an input folder, or lies in one."""
        for above in (real, *real.parents):
            if (found := _inode(above)) is not None and found in self._folders:
                raise Usage(
                    f"the output folder {named} is in {self._folders[found]}, which this job reads",
                    "choose one outside it",
                )

    def holds(self, path: Path, status: os.stat_result) -> bool:
        """Whether the file is an input, by whatever name, or lies in an input folder."""
        if (status.st_dev, status.st_ino) in self._files:
            return True
        return bool(self._folders) and any(
            _inode(above) in self._folders for above in (path.parent, *path.parent.parents)
        )


def _must_be_outside(real: Path, named: Path) -> None:
    """Refuses a path in a kgops home's `runs/` or `pending/`, or in a run's folder elsewhere."""
    if (home := home_of(real)) is not None:
        raise Usage(f"the output path {named} is in the kgops home {home}", f"{_ELSEWHERE} outside it")
    if (run := run_of(real)) is not None:
        raise Usage(f"the output path {named} is in the run's folder {run}", f"{_ELSEWHERE} outside it")


def _must_be_takeable(
    real: Path, named: Path, workload: str, inputs: Inputs, owner: Owner | None, *, force: bool
) -> None:
    _must_be_outside(real, named)
    inputs.must_not_hold(real, named)
    if not os.path.lexists(real):
        return
    if not real.is_dir():
        raise Usage(f"the output folder {named} cannot be used: it is no folder", _ELSEWHERE)
    ledger = read_ledger(real / LEDGER)
    if ledger is not None and owner is not None and ledger.owner.key == owner.key:
        return
    first = next(_others_in(real, ledger), None)
    if first is None:
        return
    if not force:
        whose = ", which kgops did not write" if ledger is None else f"; run {ledger.owner.name} wrote there"
        raise Usage(
            f"the output folder {named} already has {first}{whose}",
            f"{_ELSEWHERE}; --force replaces only what kgops wrote there",
        )
    for name in _others_in(real, ledger):
        if not any(
            Path(name).match(pattern) and _depth(name) == _depth(pattern) for pattern in _RESULTS[workload]
        ):
            continue
        path = real / name
        if ledger is None or not ledger.lists(name, _digest(path)):
            raise Usage(
                f"the output folder {named} has {name}, which kgops did not write or which was changed since",
                f"move it away, or {_ELSEWHERE}: --force does not replace it",
            )
        if inputs.holds(path, path.stat()):
            raise Usage(f"the output folder {named} has {name}, which this job reads", _ELSEWHERE)


def _others_in(folder: Path, ledger: Ledger | None) -> Iterator[str]:
    """Files, links and unreadable folders in a folder, apart from its ledger; in order of their names."""
    unreadable: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=unreadable.append):
        folders.sort()
        links = [name for name in folders if Path(root, name).is_symlink()]
        for name in sorted([*names, *links]):
            found = str(Path(root, name).relative_to(folder))
            if (found != LEDGER or ledger is None) and not is_draft(name):
                yield found
        if unreadable:
            yield os.path.relpath(unreadable[0].filename, folder)
            return


def must_write_apart(jobs: Iterable[Job], cwd: Path) -> None:
    """Refuses a sweep whose runs would write to one folder or file."""
    seen: set[Path] = set()
    for job in jobs:
        places = set(places_of(job.workload, job.settings, cwd))
        if shared := places & seen:
            raise Usage(
                f"several runs of this sweep would write to {min(shared)}",
                "leave it out of the job, as each run keeps its results, or vary it: --vary output_dir=a,b",
            )
        seen |= places


def without_outputs(job: Job) -> Job:
    """The job without the folders and files that it names for copies of its results."""
    if not places_of(job.workload, job.settings, Path()):
        return job
    stages = {name: _unnamed(stage) for name, stage in job.settings.items() if isinstance(stage, dict)}
    return replace(job, settings={**_unnamed(job.settings), **stages})


def _unnamed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if name in _NAMED else value for name, value in settings.items()}


def draft_of(target: Path) -> Path:
    """A new name next to an output file, which no other run uses."""
    return target.with_name(f".kgops-{os.urandom(12).hex()}.part")


def is_draft(name: str) -> bool:
    return re.fullmatch(r"\.kgops-[0-9a-f]{24}\.part", name) is not None


def _depth(name: str) -> int:
    return name.count("/")


def _real(path: Path) -> Path:
    """Without links and `..`; never an error."""
    return Path(os.path.realpath(path))  # resolve() fails on links in a circle


def _inode(path: Path) -> Inode | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
