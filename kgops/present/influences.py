"""The influences that a TracIn run found, and the training triples of a run."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple, TextIO

from kgops.errors import NoSuchRun, Unavailable
from kgops.jobs.bundled import bundled_folder
from kgops.jobs.files import open_regular
from kgops.jobs.text import one_line
from kgops.settings import Home
from kgops.supervisor.plan_file import read_plan
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.results import leaving
from kgops.workloads.tracin.options import TRACIN_INFLUENCES_IN_RECORD, TRACIN_TESTS_IN_RECORD
from storage import influences, reports, run_list, runs
from storage.database import Connection, open_reader
from storage.influences import Influence, TestTriple
from storage.runs import Run

_MOST_LOOKED_AT = 50  # of each, newest first
_TABLE = re.compile(r"(tracin|triple_.*_tracin)\.(csv|json|parquet)")
_LARGEST = 64 << 20  # bytes of training triples: names of larger files are not kept in memory


class Step(NamedTuple):
    """An edge of a path; `forward`: walked from head to tail."""

    start: str
    relation: str
    end: str
    forward: bool


@dataclass(frozen=True, slots=True)
class RunInfluences:
    """A run's test triples and the influences on each, strongest proponent first."""

    run: Run
    tests: tuple[TestTriple, ...]
    by_test: dict[int, tuple[Influence, ...]]
    names: dict[str, str]
    rest: str | None = None  # which file has the test triples that the database leaves out

    def name_of(self, label: str) -> str:
        return self.names.get(label, label)

    def words(self, triple: TestTriple | Influence) -> str:
        """Readable names of the triple."""
        labels = (triple.head, triple.relation, triple.tail)
        return " · ".join(one_line(self.name_of(label)) for label in labels)

    def strongest(self, test: TestTriple, most: int) -> list[Influence]:
        """So many of each sign, highest score first."""
        return [one for one in self.by_test.get(test.test, ()) if abs(one.rank) <= most]


def newest(home: Home, model_of: int | None = None) -> Run | None:
    """The newest run with a TracIn part that has test triples; otherwise the newest with such a part. `model_of`: only
    those that trace the model of this run."""
    with closing(open_reader(home.database)) as conn:
        found = [
            run
            for name in leaving("influences")
            for run in run_list.page(conn, run_list.Filter(workload=name), limit=_MOST_LOOKED_AT)
            if model_of is None or _traces(conn, run, model_of)
        ]
        found.sort(key=lambda run: run.id, reverse=True)
        return next((run for run in found if influences.has_tests(conn, run.id)), found[0] if found else None)


def _traces(conn: Connection, run: Run, number: int) -> bool:
    settings = runs.spec(conn, run.id).job.get(run.workload) or {}
    return str(settings.get("run")) == str(number)


def of_run(home: Home, number: int) -> RunInfluences:
    with closing(open_reader(home.database)) as conn:
        run = runs.get(conn, number)
        if run is None:
            raise NoSuchRun(f"there is no run {number}", "`kgops runs` lists them")
        return read(conn, run)


def read(conn: Connection, run: Run, top: int | None = None) -> RunInfluences:
    """`top`: how many of each sign somebody asked for."""
    tests = tuple(influences.tests_of(conn, run.id))
    by_test = {one.test: tuple(influences.of_test(conn, run.id, one.test)) for one in tests}
    top = max(map(_asked, tests, by_test.values()), default=None) if top is None else top
    rest = _rest_of(conn, run, len(tests), top)
    return RunInfluences(run, tests, by_test, influences.names(conn, run.id), rest)


def _asked(test: TestTriple, found: Sequence[Influence]) -> int:
    """A number of influences that the record may not have: of one side it keeps so many at most."""
    most = max((abs(one.rank) for one in found), default=0)
    return most + 1 if len(found) < (test.candidates or 0) else most


def _rest_of(conn: Connection, run: Run, tests: int, top: int | None) -> str | None:
    """Which file has the rest, where the database keeps fewer test triples or fewer than `top` influences of each."""
    total: float = reports.metrics(conn, run.id).get("tests", tests)
    kept = []
    if total > tests >= TRACIN_TESTS_IN_RECORD:
        kept.append(f"the first {tests:,} of {total:,.0f} test triples")
    if top is not None and top > TRACIN_INFLUENCES_IN_RECORD:
        kept.append(f"the {TRACIN_INFLUENCES_IN_RECORD} strongest of each side")
    if not kept:
        return None
    files = [one.path for one in reports.artifacts(conn, run.id) if _TABLE.fullmatch(PurePath(one.path).name)]
    text = f"all of them are in {files[0]}" if files else "write a file (--csv-output) to keep more"
    if len(files) > 1:
        text += f" and {len(files) - 1:,} more files"
    return f"the database keeps {' and '.join(kept)}: {text}"


def training_triples(home: Home, run: Run) -> Iterator[tuple[str, str, str]]:
    """Labels, each one object. Raises Unavailable where the run's training triples cannot be read."""
    path = _training_file(home, run)
    interned: dict[str, str] = {}
    try:
        if path.stat().st_size > _LARGEST:
            raise Unavailable(f"{path.name} is too large to search for names")
        with os.fdopen(open_regular(path, follow=True), "rb") as raw, _unpacked(raw) as file:
            read = 0
            for line in file:
                read += len(line)
                if read > _LARGEST:  # a gzipped file may expand a thousandfold
                    raise Unavailable(f"{path.name} is too large to search for names")
                parts = line.rstrip("\r\n").split("\t")
                if len(parts) < 3:
                    continue
                head, relation, tail = (interned.setdefault(part, part) for part in parts[:3])
                yield head, relation, tail
    except FileNotFoundError as error:
        raise Unavailable(f"the run's training triples are gone: {path}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Unavailable(f"the run's training triples cannot be read: {error}") from error


def _unpacked(raw: BinaryIO) -> TextIO:
    """Gzipped or not, as its content says."""
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    if not packed:
        return io.TextIOWrapper(raw, encoding="utf-8-sig")
    import gzip  # seldom needed

    return io.TextIOWrapper(gzip.open(raw), encoding="utf-8-sig")


def settings_of(home: Home, run: Run) -> dict[str, Any]:
    """What its job says for its workload."""
    with closing(open_reader(home.database)) as conn:
        return runs.spec(conn, run.id).job.get(run.workload) or {}


def _training_file(home: Home, run: Run) -> Path:
    settings = settings_of(home, run)
    stages = WORKLOADS[run.workload].stage_settings(settings) if run.workload in WORKLOADS else {}
    settings = dict(stages.get("train", settings))
    if settings.get("train"):
        return Path(read_plan(RunFolder(home.runs / run.folder)).cwd, str(settings["train"]))
    name = str(settings.get("dataset") or "")
    folder = bundled_folder(name)
    if folder is None:
        if not name.isidentifier():
            raise Unavailable("the file of the run's training triples is unknown")
        raise Unavailable(f"PyKEEN does not bundle the triples of {name}")
    return folder / "train.txt"
