"""The record: what goes in comes out, once, in order, whatever happens between."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import attempts, influences, intake, measurements, reports, runs, series
from storage.database import (
    SCHEMA_VERSION,
    changed_since,
    integrity_problems,
    open_reader,
    open_writer,
    transaction,
)
from storage.errors import DatabaseBusy, DatabaseMissing, DatabaseNewer, DatabaseReadOnly

FIXTURES = Path(__file__).parent / "fixtures"
ODD = "a'b\"c;--\\%_\x00\x1b[2J\u202e naïve 測試 🧪\nline two"


def add(conn: sqlite3.Connection, number: int, **given: Any) -> None:
    spec = {"job": given.pop("job", {}), "plan": given.pop("plan", {}), "environment": given.pop("env", {})}
    wanted: dict[str, Any] = {
        "workload": "exec",
        "label": f"run {number}",
        "profile": None,
        "state": "queued",
        "folder": f"{number:04d}-exec",
        "submitted_at": 1000.0 + number,
        "gpu": None,
        "reserved_mib": None,
        "exclusive": False,
        "predicted_mib": None,
        **given,
    }
    runs.add(conn, number=number, spec=runs.RunSpec(**spec), **wanted)


@contextmanager
def in_memory(template: Path) -> Iterator[sqlite3.Connection]:
    """A database of this release, quick enough to have one for every example."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    source = sqlite3.connect(template)
    source.backup(conn)
    source.close()
    conn.execute("PRAGMA foreign_keys = ON")
    try:
        yield conn
    finally:
        conn.close()


def everything(conn: sqlite3.Connection) -> dict[str, list[Any]]:
    """All rows of all tables: what a transaction may or may not have changed."""
    names = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: conn.execute(f"SELECT * FROM {name}").fetchall() for name in names}


# --- round trips ----------------------------------------------------------------------------------


def test_run_comes_back_as_it_was_given(conn: sqlite3.Connection) -> None:
    job = {"exec": {"command": ["echo", ODD]}, "n": 1.5, "none": None}
    add(conn, 1, label=ODD, profile=ODD, gpu="0", reserved_mib=7, exclusive=True, predicted_mib=2.5, job=job)
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.label, run.profile, run.gpu, run.reserved_mib) == (ODD, ODD, "0", 7)
    assert (run.exclusive, run.predicted_mib, run.state, run.attempts) == (1, 2.5, "queued", 0)
    assert (run.started_at, run.ended_at, run.exit_code, run.metric) == (None,) * 4
    assert runs.spec(conn, 1) == runs.RunSpec(job, {}, {})
    assert runs.with_folder(conn, "0001-exec") == run == runs.latest(conn)
    assert runs.get(conn, 2) is None


def test_what_a_run_reports_comes_back_as_it_was_given(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    lever = reports.Lever(1, ODD, "exact", ODD, None, None, "profile")
    artifact = reports.Artifact("results/" + ODD, "model", "ab" * 32, 5, 7.5)
    events: list[tuple[float, str, dict[str, Any]]] = [
        (1.5, "note", {"text": ODD}),
        (2.5, "log", {"deep": [{}]}),
    ]
    points = [series.Point(ODD, 1.0, None, 3.5), series.Point(ODD, 0.5, -1e308, 3.6)]
    progress = intake.Progress("train", 1.0, 2.0, "epoch", 0.25, 9.0)
    batch = intake.Batch(points, events, [lever], [artifact], progress, ("loss", 0.5))
    intake.take_in(conn, 1, 1, batch, intake.Offsets(10, 20))
    assert intake.offsets(conn, 1) == intake.Offsets(10, 20)
    assert series.points(conn, 1, ODD) == points
    assert series.of_run(conn, 1) == [series.Series(ODD, 2, 0.5, -1e308, 3.6)]
    assert reports.events(conn, 1) == [reports.Event(1, at, kind, body) for at, kind, body in events]
    assert reports.events(conn, 1, kinds=("log",)) == [reports.Event(1, 2.5, "log", {"deep": [{}]})]
    assert reports.levers(conn, 1) == [lever]
    assert reports.artifacts(conn, 1) == [artifact]
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.phase, run.done, run.total, run.unit, run.rate, run.reported_at) == (
        *("train", 1, 2, "epoch"),
        0.25,
        9,
    )
    assert (run.metric, run.metric_value) == ("loss", 0.5)


def test_newest_word_on_a_lever_an_artifact_or_an_influence_replaces_the_older(
    conn: sqlite3.Connection,
) -> None:
    add(conn, 1)
    for word in ("old", "new"):
        lever = reports.Lever(1, "precision", "numeric", word, word, None, None)
        artifact = reports.Artifact("results/a", word, None, None, 1.0)
        intake.take_in(conn, 1, 1, intake.Batch(levers=[lever], artifacts=[artifact]), intake.Offsets())
        found = (influences.Influence(0, 1, "a", word, "b", 0.5),)
        influences.add(conn, 1, [influences.Traced(0, "a", word, "c", found=found, names={"a": word})])
        reports.record_result(conn, 1, [], {"mrr": 0.25 if word == "old" else 0.5})
    assert [one.requested for one in reports.levers(conn, 1)] == ["new"]
    assert [one.kind for one in reports.artifacts(conn, 1)] == ["new"]
    assert [one.relation for one in influences.of_test(conn, 1, 0)] == ["new"]
    assert [one.relation for one in influences.tests_of(conn, 1)] == ["new"]
    assert influences.names(conn, 1) == {"a": "new"}
    assert reports.figures(conn, 1) == {"mrr": 0.5}


def test_attempts_name_the_worker_that_began_close_once_and_keep_the_larger_peak(
    conn: sqlite3.Connection,
) -> None:
    add(conn, 1)
    assert runs.claim(conn, 1, card="GPU-1")
    assert not runs.claim(conn, 1, card="GPU-2")
    identity: dict[str, Any] = {"boot_id": "b", "worker_pid": 7, "worker_started": 8, "supervisor_pid": 9}
    for started, never_began in ((5.0, {"worker_pid": 6}), (6.0, {})):
        who = {**identity, **never_began}
        attempts.begin(conn, 1, 1, settings={"n": 1}, card="GPU-1", started_at=started, **who)
    attempts.note_peaks(conn, 1, 1, card_mib=None, host_mib=3.0, cpu_s=1.0)
    attempts.note_peaks(conn, 1, 1, card_mib=None, host_mib=2.0, cpu_s=None)
    attempts.adopt(conn, 1, 1, 10)
    for outcome in ("failed", "succeeded"):
        attempts.close(conn, 1, 1, outcome=outcome, reason="r", exit_code=1, signal=None, ended_at=9.0)
    (found,) = attempts.of_run(conn, 1)
    assert (found.started_at, found.worker_pid, found.outcome, found.settings) == (6.0, 7, "failed", {"n": 1})
    assert (found.peak_host_mib, found.peak_card_mib, found.cpu_s) == (3.0, None, 1.0)
    assert (found.adoptions, found.supervisor_pid) == (1, 10)
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.state, run.attempts, run.started_at, run.peak_host_mib, run.peak_card_mib) == (
        "running",
        1,
        5.0,
        3.0,
        None,
    )


def test_measurements_notes_and_tags_come_back_as_they_were_given(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    measured = measurements.Measurement(
        "step", ODD, None, 2.5, None, 3.0, 9, "ratio", "make bench", {"cpu": ODD}, 1.0, 1
    )
    measurements.add(conn, measured)
    assert measurements.named(conn, "step") == [measured]
    reports.change_tags(conn, 1, add=["b", "a", "a", ODD], remove=["none"])
    reports.change_tags(conn, 1, add=[], remove=["b"])
    assert reports.tags(conn, 1) == sorted(["a", ODD])
    reports.add_note(conn, 1, 5.0, ODD)
    assert [(note.at, note.text) for note in reports.notes(conn, 1)] == [(5.0, ODD)]


# --- exactly once ---------------------------------------------------------------------------------


def test_rows_and_offset_commit_together_or_not_at_all(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    good = intake.Batch(
        points=[series.Point("loss", 1.0, 0.5, 1.0)], events=[(1.0, "note", {})], metric=("loss", 0.5)
    )
    intake.take_in(conn, 1, 1, good, intake.Offsets(10, 20))
    before = everything(conn)
    nonsense = reports.Lever(1, "x", "neither exact nor numeric", None, None, None, None)
    with pytest.raises(sqlite3.IntegrityError):
        intake.take_in(conn, 1, 1, intake.Batch(good.points, good.events, [nonsense]), intake.Offsets(99, 99))
    with pytest.raises(RuntimeError, match="killed"), transaction(conn):
        intake.take_in(conn, 1, 1, good, intake.Offsets(99, 99))
        raise RuntimeError("killed between rows and commit")
    assert not conn.in_transaction
    assert everything(conn) == before


def test_process_killed_in_a_transaction_leaves_nothing_of_it(home: Path, conn: sqlite3.Connection) -> None:
    add(conn, 1)
    before = everything(conn)
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom storage import intake, series\n"
        "from storage.database import open_writer, transaction\n"
        f"conn = open_writer(Path({str(home / 'kgops.db')!r}))\n"
        "batch = intake.Batch(points=[series.Point('loss', float(i), 0.5, 0.0) for i in range(20_000)])\n"
        "with transaction(conn):\n"
        "    intake.take_in(conn, 1, 1, batch, intake.Offsets(9, 9))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=FIXTURES.parent.parent).returncode == -9
    assert everything(conn) == before
    assert integrity_problems(conn) == []


def test_second_writer_waits_then_says_who_is_in_the_way(home: Path, conn: sqlite3.Connection) -> None:
    other = open_writer(home / "kgops.db", busy_timeout_s=0.05)
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy) as caught:
        add(other, 1)
    assert caught.value.hint
    assert not other.in_transaction
    conn.execute("ROLLBACK")
    add(other, 1)
    other.close()
    assert runs.count(conn) == 1


def test_reader_cannot_write_and_sees_every_commit_of_others(home: Path, conn: sqlite3.Connection) -> None:
    reader = open_reader(home / "kgops.db")
    with pytest.raises(DatabaseReadOnly):
        add(reader, 1)
    changed, seen = changed_since(reader, None)
    assert changed
    assert changed_since(reader, seen) == (False, seen)
    add(conn, 1)
    changed, _ = changed_since(reader, seen)
    assert changed
    assert runs.count(reader) == 1
    reader.close()


# --- curves ---------------------------------------------------------------------------------------

FIGURES = st.floats(-1e6, 1e6, allow_nan=False) | st.none()


@settings(max_examples=40, deadline=None)
@given(values=st.lists(FIGURES, min_size=1, max_size=400), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_rollups_are_what_the_points_say(
    empty_database: Path, values: list[float | None], cuts: list[int]
) -> None:
    points = [series.Point("loss", float(i // 2), value, 10.0 + i) for i, value in enumerate(values)]
    edges = sorted({0, len(points), *(cut for cut in cuts if cut < len(points))})
    with in_memory(empty_database) as conn:
        add(conn, 1)
        for start, stop in pairwise(edges):
            with transaction(conn):
                series.append(conn, 1, points[start:stop])
        assert series.points(conn, 1, "loss") == points
        last = points[-1]
        assert series.of_run(conn, 1) == [series.Series("loss", len(points), last.step, last.value, last.at)]
        for width in series.WIDTHS:
            rows = conn.execute(
                "SELECT n, min, max, sum, first_step, last_step FROM rollup WHERE width = ? ORDER BY bucket",
                (width,),
            ).fetchall()
            groups = [points[i : i + width] for i in range(0, len(points), width)]
            assert len(rows) == len(groups)
            for row, group in zip(rows, groups, strict=True):
                known = [p.value for p in group if p.value is not None]
                assert row[:3] == (len(known), min(known, default=None), max(known, default=None))
                assert math.isclose(row[3] or 0.0, math.fsum(known), rel_tol=1e-9, abs_tol=1e-6)
                assert row[4:] == (group[0].step, group[-1].step)


def test_curve_of_any_length_is_read_in_few_buckets_that_cover_it(empty_database: Path) -> None:
    with in_memory(empty_database) as conn:
        add(conn, 1)
        points = [series.Point("loss", float(i), float((i * 7919) % 1000), 0.0) for i in range(50_000)]
        with transaction(conn):
            series.append(conn, 1, points)
        for at_most in (50_000, 1000, 600, 20):
            curve = series.curve(conn, 1, "loss", at_most=at_most)
            assert len(curve) <= max(at_most, 13)
            assert sum(bucket.n for bucket in curve) == len(points)
            assert (curve[0].first_step, curve[-1].last_step) == (0.0, 49_999.0)
            assert (min(b.min or 0 for b in curve), max(b.max or 0 for b in curve)) == (0.0, 999.0)
            mean = sum((b.mean or 0) * b.n for b in curve) / len(points)
            assert math.isclose(mean, sum(p.value or 0 for p in points) / len(points), rel_tol=1e-9)
        assert series.curve(conn, 1, "none") == []


# --- pages ----------------------------------------------------------------------------------------

COLUMN_VALUES: dict[str, list[Any]] = {
    "workload": ["exec", "train"],
    "label": ["a", "B", "b", "é", ""],
    "state": list(runs.STATES),
    "attempts": [0, 1, 2],
    "exclusive": [0, 1],
    "submitted_at": [1.0, 2.0, 2.5],
}
OPTIONAL: dict[str, list[Any]] = {
    **{
        name: [None, "a", "b", "é"]
        for name in ("profile", "reason", "gpu", "card", "phase", "unit", "metric")
    },
    **{name: [None, -1, 0, 7] for name in ("exit_code", "reserved_mib")},
}


@pytest.fixture(scope="module")
def crowded(empty_database: Path) -> Iterator[sqlite3.Connection]:
    """Sixty runs with ties and gaps in every column."""
    chance = random.Random(7)
    with in_memory(empty_database) as conn:
        for number in range(1, 61):
            add(conn, number)
            values = {
                name: chance.choice(COLUMN_VALUES.get(name) or OPTIONAL.get(name) or [None, -1.5, 0.0, 2.5])
                for name in runs.COLUMNS
                if name not in ("id", "folder")
            }
            marks = ", ".join(f"{name} = :{name}" for name in values)
            conn.execute(f"UPDATE run SET {marks} WHERE id = :id", {**values, "id": number})
        for number in (3, 20, 41):
            assert conn.execute("DELETE FROM run WHERE id = ?", (number,)).rowcount == 1
        yield conn


def sorted_by_hand(conn: sqlite3.Connection, sort: str, descending: bool, wanted: runs.Filter) -> list[int]:
    found = [runs.get(conn, row[0]) for row in conn.execute("SELECT id FROM run ORDER BY id")]
    kept = [run for run in found if run is not None and (not wanted.states or run.state in wanted.states)]
    rows = [(getattr(run, sort), run.id) for run in kept]
    known = sorted((row for row in rows if row[0] is not None), reverse=descending)
    unknown = sorted((row for row in rows if row[0] is None), key=lambda row: row[1], reverse=descending)
    return [number for _, number in known + unknown]


@pytest.mark.parametrize("descending", [True, False], ids=["descending", "ascending"])
@pytest.mark.parametrize("sort", runs.COLUMNS)
def test_pages_in_a_row_are_the_whole_list_in_order(
    crowded: sqlite3.Connection, sort: str, descending: bool
) -> None:
    for limit, wanted in (
        (1, runs.Filter()),
        (7, runs.Filter()),
        (5, runs.Filter(states=("failed", "queued", "running"))),
    ):
        found: list[int] = []
        after = None
        for _ in range(80):
            page = runs.page(crowded, wanted, sort=sort, descending=descending, limit=limit, after=after)
            found += [run.id for run in page]
            if len(page) < limit:
                break
            after = page[-1].id
        assert found == sorted_by_hand(crowded, sort, descending, wanted)


def test_only_columns_can_be_sorted_by(crowded: sqlite3.Connection) -> None:
    for sort in ("nothing", "id; DROP TABLE run", "(SELECT 1)", ""):
        with pytest.raises(ValueError, match="cannot sort by"):
            runs.page(crowded, sort=sort)


# --- search ---------------------------------------------------------------------------------------

WORDS = st.text(alphabet="ab%_\"\\*'()-:^{}é測 \tANDORT.+", max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    labels=st.lists(WORDS, min_size=1, max_size=4),
    wanted=WORDS | st.sampled_from(["AND", "OR", "a*", '"', "NEAR(a b)", "words:a"]),
)
def test_search_finds_exactly_the_runs_that_hold_every_word(
    empty_database: Path, labels: list[str], wanted: str
) -> None:
    with in_memory(empty_database) as conn:
        for number, label in enumerate(labels, start=1):
            add(conn, number, label=label, job={"exec": {"command": ["echo", label[::-1]]}})
        found = {run.id for run in runs.page(conn, runs.Filter(words=wanted))}
        assert found == {
            number
            for number, label in enumerate(labels, start=1)
            if all(part.lower() in f"{label} exec  echo {label[::-1]}  ".lower() for part in wanted.split())
        }


def test_search_follows_tags_and_notes_and_forgets_with_the_run(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    reports.change_tags(conn, 1, add=["baseline"], remove=[])
    reports.add_note(conn, 1, 1.0, "aspirin treats headache")

    def found(words: str) -> list[int]:
        return [run.id for run in runs.page(conn, runs.Filter(words=words))]

    assert found("baseline ASPIRIN") == [1]
    reports.change_tags(conn, 1, add=[], remove=["baseline"])
    assert found("baseline") == []
    runs.end(conn, 1, state="failed", reason=None, exit_code=1, ended_at=1.0)
    assert runs.delete(conn, 1)
    assert found("aspirin") == []
    assert conn.execute("SELECT count(*) FROM run_text").fetchone() == (0,)


# --- ends -----------------------------------------------------------------------------------------


def test_end_is_written_once(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    assert runs.end(conn, 1, state="failed", reason="first", exit_code=1, ended_at=5.0)
    assert not runs.end(conn, 1, state="succeeded", reason="second", exit_code=0, ended_at=6.0)
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.state, run.reason, run.exit_code, run.ended_at) == ("failed", "first", 1, 5.0)
    with pytest.raises(ValueError, match="is not an end"):
        runs.end(conn, 1, state="running", reason=None, exit_code=None, ended_at=7.0)


def test_only_an_ended_run_that_did_not_succeed_is_opened_again(conn: sqlite3.Connection) -> None:
    for number, state in enumerate(runs.ENDED, start=1):
        add(conn, number)
        assert not runs.reopen(conn, number)
        runs.end(conn, number, state=state, reason="r", exit_code=1, ended_at=5.0)
        assert runs.reopen(conn, number) == (state != "succeeded")
        run = runs.get(conn, number)
        assert run is not None
        if state != "succeeded":
            assert (run.state, run.reason, run.exit_code, run.ended_at) == ("queued", None, None, None)


def test_deleted_run_leaves_no_row_and_its_number_is_never_given_again(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    empty = everything(conn)
    add(conn, 2)
    attempts.begin(
        conn,
        2,
        1,
        settings={},
        card=None,
        boot_id="b",
        worker_pid=1,
        worker_started=1,
        supervisor_pid=1,
        started_at=1.0,
    )
    lever, artifact = (
        reports.Lever(1, "x", "exact", *(None,) * 4),
        reports.Artifact("a", "b", None, None, 1.0),
    )
    points = [series.Point("loss", float(i), 1.0, 1.0) for i in range(100)]
    intake.take_in(
        conn, 2, 1, intake.Batch(points, [(1.0, "note", {})], [lever], [artifact]), intake.Offsets(1, 1)
    )
    reports.record_result(conn, 2, [], {"mrr": 0.5})
    reports.change_tags(conn, 2, add=["t"], remove=[])
    reports.add_note(conn, 2, 1.0, "n")
    found = (influences.Influence(0, 1, "a", "r", "b", 0.5),)
    influences.add(conn, 2, [influences.Traced(0, "a", "r", "c", found=found, names={"a": "A"})])
    assert not runs.delete(conn, 2)  # it has not ended
    runs.end(conn, 2, state="failed", reason=None, exit_code=1, ended_at=5.0)
    assert runs.delete(conn, 2)
    assert not runs.delete(conn, 2)
    left = everything(conn)
    for name in ("sqlite_sequence", *(name for name in empty if name.startswith("run_text_"))):
        left.pop(name), empty.pop(name)
    assert left == empty
    assert runs.next_number(conn) == 3
    assert integrity_problems(conn) == []


# --- releases -------------------------------------------------------------------------------------


def schema_of(conn: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = conn.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return sorted(
        (kind, name, " ".join(sql.replace("IF NOT EXISTS ", "").split())) for kind, name, sql in rows
    )


@pytest.fixture
def of_schema_001(tmp_path: Path) -> Path:
    """A database with rows as the first release wrote it."""
    path = tmp_path / "old.db"
    conn = sqlite3.connect(path, isolation_level=None)
    conn.executescript((FIXTURES / "schema-001.sql").read_text())
    conn.close()
    return path


def test_database_of_the_first_release_opens_migrates_and_reads(of_schema_001: Path) -> None:
    conn = open_writer(of_schema_001)
    assert conn.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert integrity_problems(conn) == []
    first = runs.get(conn, 1)
    assert first is not None
    assert (first.state, first.attempts, first.reserved_mib, first.metric) == ("succeeded", 2, 4096, "loss")
    assert first.label == "first 'quoted' \"label\" – naïve 測試; DROP TABLE run;--"
    assert [run.id for run in runs.page(conn)] == [5, 4, 3, 2, 1]
    assert [run.id for run in runs.page(conn, runs.Filter(words="aspirin paper"))] == [1]
    assert [a.outcome for a in attempts.of_run(conn, 1)] == ["out_of_memory", "succeeded"]
    assert len(series.points(conn, 1, "loss")) == 70
    assert series.curve(conn, 1, "loss", at_most=10)[0].n == 63
    assert reports.figures(conn, 1) == {"hits@10": 0.5, "mrr": 0.31}
    assert reports.tags(conn, 1) == ["baseline", "paper"]
    assert [e.kind for e in reports.events(conn, 1)] == ["note", "log", "step_down"]
    assert len(influences.of_test(conn, 1, 0)) == 2
    assert measurements.named(conn, "train_step")[0].fingerprint == {"cpu": "x"}
    assert intake.offsets(conn, 1) == intake.Offsets(1234, 567)
    assert runs.spec(conn, 2).job["exec"] == {"command": ["echo", "2"]}
    assert runs.next_number(conn) == 7  # run 6 was deleted
    add(conn, runs.next_number(conn))
    assert [run.id for run in runs.in_states(conn, runs.WAITING)] == [5, 7]
    conn.close()


def test_migrated_database_has_the_schema_of_a_fresh_one(of_schema_001: Path, empty_database: Path) -> None:
    conn, fresh = open_writer(of_schema_001), open_writer(empty_database)
    assert schema_of(conn) == schema_of(fresh)
    conn.close()
    fresh.close()


def test_six_processes_create_the_database_together(tmp_path: Path) -> None:
    database, gate = tmp_path / "kgops.db", tmp_path / "gate"
    code = (
        "import os, sys, time\nfrom pathlib import Path\nimport sqlite_utils\n"
        "from storage import runs\nfrom storage.database import open_writer, transaction\n"
        f"print('ready', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.001)\n"
        f"conn = open_writer(Path({str(database)!r}))\n"
        "with transaction(conn):\n"
        "    n = runs.next_number(conn)\n"
        "    runs.add(conn, number=n, workload='exec', label='x', profile=None, state='queued', folder=str(n),\n"
        "             submitted_at=0.0, gpu=None, reserved_mib=None, exclusive=False, predicted_mib=None,\n"
        "             spec=runs.RunSpec({}, {}, {}))\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=FIXTURES.parent.parent,
        )
        for _ in range(6)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        gate.touch()
        for child in children:
            _, err = child.communicate(timeout=40)
            assert child.returncode == 0, err
    finally:
        for child in children:
            child.kill()
            child.communicate()
    conn = open_writer(database)
    assert [run.id for run in runs.in_states(conn, runs.WAITING)] == [1, 2, 3, 4, 5, 6]
    assert integrity_problems(conn) == []
    conn.close()


def test_database_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path, empty_database: Path) -> None:
    path = tmp_path / "kgops.db"
    path.write_bytes(empty_database.read_bytes())
    conn = sqlite3.connect(path)
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    conn.close()
    before = path.read_bytes()
    for opening in (open_writer, open_reader):
        with pytest.raises(DatabaseNewer, match=f"schema {SCHEMA_VERSION + 1}") as caught:
            opening(path)
        assert caught.value.exit_code == 1
        assert "upgrade kgops" in (caught.value.hint or "")
    assert path.read_bytes() == before


def test_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kgops.db"
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE claim (something_else)")  # in the way of the migration's last tables
    conn.commit()
    conn.close()
    with pytest.raises(sqlite3.OperationalError, match="claim"):
        open_writer(path)
    conn = sqlite3.connect(path)
    assert {row[0] for row in conn.execute("SELECT name FROM sqlite_master")} <= {
        "claim",
        "_sqlite_migrations",
    }
    assert conn.execute("PRAGMA user_version").fetchone() == (0,)
    conn.close()


def test_without_a_database_a_reader_says_so_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing):
        open_reader(tmp_path / "kgops.db")
    assert list(tmp_path.iterdir()) == []


def test_summary_is_readable_by_plain_sqlite(of_schema_001: Path) -> None:
    plain = sqlite3.connect(f"{of_schema_001.as_uri()}?mode=ro", uri=True)
    plain.row_factory = sqlite3.Row
    rows = [dict(row) for row in plain.execute("SELECT * FROM run_summary ORDER BY id")]
    plain.close()
    assert [(row["id"], row["state"]) for row in rows][:2] == [(1, "succeeded"), (2, "failed")]
    assert rows[0]["tags"] == "baseline paper"
    assert (rows[0]["submitted"], rows[0]["seconds"]) == ("2025-11-21 02:40:01", 15.0)
    assert json.loads(json.dumps(rows))


def test_columns_of_the_dataclasses_are_those_of_the_tables(conn: sqlite3.Connection) -> None:
    for table, columns in (("run", runs.COLUMNS), ("attempt", attempts.COLUMNS)):
        assert [row[1] for row in conn.execute(f"PRAGMA table_info({table})")] == list(columns)
    add(conn, 1)
    run = runs.get(conn, 1)
    assert run is not None
    assert (
        tuple(runs.as_table(run))
        == runs.COLUMNS
        == tuple(row[0] for row in conn.execute("SELECT * FROM run").description)
    )
