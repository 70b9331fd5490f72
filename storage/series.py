"""Curves: points in order of arrival, and rollups maintained while writing, so that long curves read fast."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

WIDTHS = (64, 4096)  # points per rollup bucket
# The largest float. Sums are clamped to it: SQLite turns inf - inf into NULL, and the sum would start over.
_LARGEST = 1.7976931348623157e308


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    step: float
    value: float | None
    at: float


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    n: int
    last_step: float | None
    last_value: float | None
    last_at: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Consecutive points of a curve; a single point is a bucket of one."""

    n: int
    min: float | None
    max: float | None
    mean: float | None
    first_step: float
    last_step: float


def append(conn: sqlite3.Connection, run: int, points: Sequence[Point]) -> None:
    """Adds points to their series. Belongs inside the caller's transaction."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    for name, group in by_name.items():
        _append_one(conn, run, name, group)


def _append_one(conn: sqlite3.Connection, run: int, name: str, points: list[Point]) -> None:
    conn.execute("INSERT INTO series (run, name) VALUES (?, ?) ON CONFLICT DO NOTHING", (run, name))
    series, n = conn.execute("SELECT id, n FROM series WHERE run = ? AND name = ?", (run, name)).fetchone()
    conn.executemany(
        "INSERT INTO point (series, n, step, value, at) VALUES (?, ?, ?, ?, ?)",
        [(series, n + i, p.step, p.value, p.at) for i, p in enumerate(points)],
    )
    for width in WIDTHS:
        start = 0
        while start < len(points):
            bucket = (n + start) // width
            stop = min(len(points), (bucket + 1) * width - n)
            _roll_up(conn, series, width, bucket, points[start:stop])
            start = stop
    last = points[-1]
    conn.execute(
        "UPDATE series SET n = ?, last_step = ?, last_value = ?, last_at = ? WHERE id = ?",
        (n + len(points), last.step, last.value, last.at, series),
    )


def _roll_up(conn: sqlite3.Connection, series: int, width: int, bucket: int, points: list[Point]) -> None:
    values = [p.value for p in points if p.value is not None]
    conn.execute(
        "INSERT INTO rollup (series, width, bucket, n, min, max, sum, first_step, last_step)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n,"
        " min = min(coalesce(min, excluded.min), coalesce(excluded.min, min)),"
        " max = max(coalesce(max, excluded.max), coalesce(excluded.max, max)),"
        " sum = max(min(coalesce(sum, 0) + coalesce(excluded.sum, 0), ?), ?), last_step = excluded.last_step",
        (
            *(series, width, bucket, len(values)),
            *((min(values), max(values), _sum(values)) if values else (None, None, None)),
            *(points[0].step, points[-1].step),
            *(_LARGEST, -_LARGEST),
        ),
    )


def _sum(values: Sequence[float]) -> float:
    total = sum(values)
    if not math.isfinite(total):
        total = sum(value / len(values) for value in values) * len(values)
    return max(min(total, _LARGEST), -_LARGEST)


def of_run(conn: sqlite3.Connection, run: int) -> list[Series]:
    rows = conn.execute(
        "SELECT name, n, last_step, last_value, last_at FROM series WHERE run = ? ORDER BY name", (run,)
    ).fetchall()
    return [Series(*row) for row in rows]


def curve(conn: sqlite3.Connection, run: int, name: str, *, at_most: int = 600) -> list[Bucket]:
    """The whole curve in at most about `at_most` buckets."""
    row = conn.execute("SELECT id, n FROM series WHERE run = ? AND name = ?", (run, name)).fetchone()
    if row is None:
        return []
    series, n = row
    width = next((w for w in (1, *WIDTHS) if n <= at_most * w), WIDTHS[-1])
    if width == 1:
        points = conn.execute("SELECT step, value FROM point WHERE series = ? ORDER BY n", (series,))
        return [Bucket(int(value is not None), value, value, value, step, step) for step, value in points]
    rows = conn.execute(
        # A clamped sum gives a wrong mean, so the mean is limited to between minimum and maximum.
        "SELECT n, min, max, max(min(coalesce(sum / nullif(n, 0), min / 2 + max / 2), max), min),"
        " first_step, last_step FROM rollup WHERE series = ? AND width = ? ORDER BY bucket",
        (series, width),
    )
    return [Bucket(*row) for row in rows]


def points(conn: sqlite3.Connection, run: int, name: str) -> list[Point]:
    rows = conn.execute(
        "SELECT series.name, point.step, point.value, point.at FROM series JOIN point ON point.series = series.id"
        " WHERE series.run = ? AND series.name = ? ORDER BY point.n",
        (run, name),
    )
    return [Point(*row) for row in rows]
