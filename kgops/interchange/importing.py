"""Import of exported runs, real or sample data."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.errors import BadInput, Unavailable, Usage
from kgops.interchange.import_folder import (
    Pulled,
    copy_files,
    describe,
    import_folder,
    must_be_still,
    no_file,
    not_as_ours,
)
from kgops.interchange.import_scripts import is_output, read_output
from kgops.jobs.files import NotAFile, read_json, read_regular
from kgops.jobs.text import one_line
from kgops.settings import Home
from kgops.supervisor import locks, rebuild, run_folder
from kgops.supervisor.import_record import NOT_ENDED, host_of, origin, put_record
from kgops.supervisor.plan_file import misfit
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.run_json import IMPORTED, read_runs
from storage import runs, transfer
from storage.database import Connection
from storage.transfer import Rows

TOUR = "tour"  # kind of a sample run's origin


def refuse_sample(rows: Rows, source: str) -> None:
    """Raises Usage for an exported sample run."""
    bodies = (event["body"] for event in rows.tables["event"] if event["kind"] == IMPORTED)
    _refuse(bodies, f"{source}: {one_line(rows.run['label'], 60)!r}")


def refuse_sample_folder(folder: RunFolder) -> None:
    """Raises Usage for the folder of a sample run."""
    origins = read_json(folder.origins)
    bodies = (
        [origin.get("body") for origin in origins if isinstance(origin, dict)]
        if isinstance(origins, list)
        else []
    )
    _refuse(bodies, str(folder.path))


def _refuse(bodies: Iterable[Any], subject: str) -> None:
    if any(isinstance(body, dict) and body.get("kind") == TOUR for body in bodies):
        raise Usage(
            f"{subject} is sample data of a tour",
            "only real runs can be imported; `kgops demo --tour` creates another tour",
        )


_LARGEST_EXPORT = 4 << 30
_PATIENCE_S = 3600.0  # an import may copy large files


@dataclass(frozen=True, slots=True)
class Imported:
    """The result for one run: `number` of the new run, or None where it is in the database already as `known`."""

    number: int | None
    known: tuple[int, ...]
    what: str
    troubles: tuple[str, ...] = ()


def import_from(
    home: Home, conn: Connection, path: Path, *, again: bool = False, pulled: Pulled | None = None
) -> list[Imported]:
    """Imports every run at `path`: an export, a run's folder, or an output folder of scripts.

    `pulled`: the run of which `path` is a copy to use up."""
    try:
        with _alone(home):
            return _import_from(home, conn, path, again=again, pulled=pulled)
    except NotAFile as error:
        raise no_file(error) from error
    except OSError as error:
        raise Unavailable(f"cannot read {error.filename or path}: {error.strerror or error}") from error


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """One import at a time: else two of the same run would both find that it is not there yet."""
    lock = locks.take(home.path / "import.lock", patience_s=_PATIENCE_S)
    if lock is None:
        raise Unavailable("another command is importing runs", "try again after it")
    try:
        yield
    finally:
        os.close(lock)


def _import_from(
    home: Home, conn: Connection, path: Path, *, again: bool, pulled: Pulled | None
) -> list[Imported]:
    if path.is_file():
        return _from_export(home, conn, path, again=again)
    if os.path.lexists(RunFolder(path).plan) or os.path.lexists(RunFolder(path).record):
        return [_from_folder(home, conn, RunFolder(path), again=again, pulled=pulled)]
    if path.is_dir() and is_output(path):
        return [_from_output(home, conn, path, again=again)]
    if not path.exists():
        raise Usage(f"{path} does not exist", "give an export, a run's folder, or an output folder")
    if not path.is_dir():
        raise NotAFile(path, path.stat().st_mode)
    raise Usage(
        f"{path} contains no run that kgops can import",
        "a run's folder has plan.json; an output folder has training_history.json, a summary or TracIn's CSV; of the "
        "exports, only `--to json` contains whole runs",
    )


def _from_export(
    home: Home, conn: Connection, path: Path, *, again: bool, pulled: Pulled | None = None
) -> list[Imported]:
    """Imports all runs of an export, after reading all of it: a damaged file adds nothing."""
    if tarfile.is_tarfile(path):
        raise Usage(
            f"{path} is an archive of a run's folder",
            "unpack it in a new folder with tar -x, and import that folder",
        )
    text = read_regular(path, at_most=_LARGEST_EXPORT + 1, follow=True)
    if len(text) > _LARGEST_EXPORT:
        raise Usage(f"{path} is larger than {_LARGEST_EXPORT >> 30} GiB: not an export")
    exported = read_runs(conn, text, str(path))
    for i, rows in enumerate(exported):
        refuse_sample(rows, str(path))
        if trouble := misfit(rows):
            raise BadInput(f"{path}: runs[{i}].{trouble}")
    source = path.absolute() if pulled is None else Path(pulled.name)
    return [_put(home, conn, rows, source, again=again) for rows in exported]


def _from_folder(
    home: Home, conn: Connection, folder: RunFolder, *, again: bool, pulled: Pulled | None = None
) -> Imported:
    """Imports a run's folder; one in this home that has lost its row is restored in place."""
    not_as_ours(folder)
    must_be_still(folder)
    refuse_sample_folder(folder)
    if folder.record.is_file():
        return _from_export(home, conn, folder.record, again=again, pulled=pulled)[0]
    plan, what = describe(folder)
    if folder.path.resolve().parent == home.runs.resolve() and not again:
        number = rebuild.restore_run(conn, RunFolder(home.runs / folder.path.resolve().name))
        if number is not None:
            return Imported(number, (), what)
    known = tuple(transfer.same_submission(conn, plan.submitted_at, plan.workload, plan.label))
    ending = run_folder.read_ending(folder.outcome)
    if not again and _holds(conn, known, has_end=ending is not None and not _is_unended(ending.reason)):
        return Imported(None, known, what)
    number, troubles = import_folder(home, conn, folder, plan, pulled)
    return Imported(number, known, what, tuple(troubles))


def _from_output(home: Home, conn: Connection, folder: Path, *, again: bool) -> Imported:
    output = read_output(folder)
    known = tuple(transfer.with_digest(conn, IMPORTED, output.digest))
    if known and not again:
        return Imported(None, known, output.what, tuple(output.troubles))
    source = origin("output", folder.absolute(), digest=output.digest, troubles=output.troubles)

    def copy_results(to: RunFolder) -> None:
        copy_files(folder, (path for path, _ in output.files), to.results)

    number = put_record(home, conn, output.rows, source, copy_results)
    return Imported(number, known, output.what, tuple(output.troubles))


def _put(home: Home, conn: Connection, rows: Rows, source: Path, *, again: bool) -> Imported:
    run = rows.run
    what = f"{run['workload']} run {run['id']}, {run['state']}: {run['label']}"
    known = tuple(transfer.same_submission(conn, run["submitted_at"], run["workload"], run["label"]))
    has_end = run["state"] in runs.ENDED and not _is_unended(run["reason"])
    if not again and _holds(conn, known, has_end=has_end):
        return Imported(None, known, what)
    mark = origin("export", source, run=run["id"], host=host_of(rows.spec["environment"]))
    return Imported(put_record(home, conn, rows, mark), known, what)


def _holds(conn: Connection, known: Iterable[int], *, has_end: bool) -> bool:
    """Whether one of the known copies has all that a copy brings, which may have the end that they lack."""
    found = [runs.get(conn, number) for number in known]
    return any(not has_end or run is None or not _is_unended(run.reason) for run in found)


def _is_unended(reason: str | None) -> bool:
    return reason is not None and reason.startswith(NOT_ENDED.format(""))
