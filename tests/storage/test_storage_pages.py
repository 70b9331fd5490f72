"""Curves, pages and words found: what is read back is what reading everything would give."""

import math
import random
import sqlite3
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import add, in_memory

from storage import reports, run_list, runs, series
from storage.database import (
    transaction,
)

# --- curves ---------------------------------------------------------------------------------------

METRICS = st.floats(-1e6, 1e6, allow_nan=False) | st.none()


@settings(max_examples=40, deadline=None)
@given(values=st.lists(METRICS, min_size=1, max_size=400), cuts=st.lists(st.integers(0, 400), max_size=6))
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
        name: [None, "a", "b", "é"] for name in ("profile", "reason", "gpu", "gpu", "phase", "unit", "metric")
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


def sorted_by_hand(
    conn: sqlite3.Connection, sort: str, descending: bool, wanted: run_list.Filter
) -> list[int]:
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
        (1, run_list.Filter()),
        (7, run_list.Filter()),
        (5, run_list.Filter(states=("failed", "queued", "running"))),
    ):
        found: list[int] = []
        after = None
        for _ in range(80):
            page = run_list.page(crowded, wanted, sort=sort, descending=descending, limit=limit, after=after)
            found += [run.id for run in page]
            if len(page) < limit:
                break
            after = page[-1].id
        assert found == sorted_by_hand(crowded, sort, descending, wanted)


def test_runs_that_go_on_stand_on_one_page_each_by_time(empty_database: Path) -> None:
    with in_memory(empty_database) as conn:
        for number in range(1, 6):
            add(conn, number)
            conn.execute("UPDATE run SET started_at = ? WHERE id = ?", (1000.0 * number, number))
        slow: Any = SlowStatements(conn)
        for descending in (False, True):
            found: list[int] = []
            while page := run_list.page(
                slow, sort="time", descending=descending, limit=1, after=found[-1] if found else None
            ):
                found += [run.id for run in page]
                assert len(found) <= 5, found
            assert found == sorted(range(1, 6), reverse=not descending)


class SlowStatements:
    """A connection on which the clock goes on between two statements, as on a busy machine."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        time.sleep(0.005)
        return self._conn.execute(*statement)


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
        found = {run.id for run in run_list.page(conn, run_list.Filter(words=wanted))}
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
        return [run.id for run in run_list.page(conn, run_list.Filter(words=words))]

    assert found("baseline ASPIRIN") == [1]
    reports.change_tags(conn, 1, add=[], remove=["baseline"])
    assert found("baseline") == []
    runs.end(conn, 1, state="failed", reason=None, exit_code=1, ended_at=1.0)
    assert runs.delete(conn, 1)
    assert found("aspirin") == []
    assert conn.execute("SELECT count(*) FROM run_text").fetchone() == (0,)
