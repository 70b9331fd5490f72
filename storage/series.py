"""Curves of runs and scores of test triples."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from storage.rows import fits, made, texts

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
    return made(Series, rows)


def curve(conn: sqlite3.Connection, run: int, name: str, *, at_most: int = 600) -> list[Bucket]:
    """The whole curve in at most about `at_most` buckets."""
    series, width = _series(conn, run, name, at_most)
    if width == 1:
        points = conn.execute("SELECT step, value FROM point WHERE series = ? ORDER BY n", (series,))
        return made(Bucket, [(int(v is not None), v, v, v, step, step) for step, v in points])
    rows = conn.execute(
        # A clamped sum gives a wrong mean, so the mean is limited to between minimum and maximum.
        "SELECT n, min, max, max(min(coalesce(sum / nullif(n, 0), min / 2 + max / 2), max), min),"
        " first_step, last_step FROM rollup WHERE series = ? AND width = ? ORDER BY bucket",
        (series, width),
    )
    return made(Bucket, rows)


def times(conn: sqlite3.Connection, run: int, name: str, *, at_most: int = 600) -> list[float]:
    """When the first point of each bucket of `curve` came in."""
    series, width = _series(conn, run, name, at_most)
    if width == 1:
        rows = conn.execute("SELECT at FROM point WHERE series = ? ORDER BY n", (series,))
    else:
        rows = conn.execute(
            "SELECT point.at FROM rollup JOIN point ON point.series = rollup.series AND point.n = bucket * width"
            " WHERE rollup.series = ? AND width = ? ORDER BY bucket",
            (series, width),
        )
    return [at if fits((at,), ("float",)) else math.nan for (at,) in rows]


def _series(conn: sqlite3.Connection, run: int, name: str, at_most: int) -> tuple[int | None, int]:
    """The series' id, None where there is none, and how many of its points a bucket has."""
    row = conn.execute("SELECT id, n FROM series WHERE run = ? AND name = ?", (run, name)).fetchone()
    series, n = row or (None, 0)
    return series, next((w for w in (1, *WIDTHS) if n <= at_most * w), WIDTHS[-1])


def points(conn: sqlite3.Connection, run: int, name: str) -> list[Point]:
    rows = conn.execute(
        "SELECT series.name, point.step, point.value, point.at FROM series JOIN point ON point.series = series.id"
        " WHERE series.run = ? AND series.name = ? ORDER BY point.n",
        (run, name),
    )
    return made(Point, rows)


Which = Literal["value", "final", "last", "best"]
WHICH: tuple[Which, ...] = ("value", "final", "last", "best")
MEANT_BY_SHORT = ("test_", "valid_")  # in this order
_LESS_IS_BETTER = ("loss", "error", "rank", "seconds", "nll", "perplexity", "mse", "mae")

_UNFINISHED = "SELECT id FROM run WHERE state IN ('queued', 'starting', 'running')"


def less_is_better(name: str) -> bool:
    return any(word in name for word in _LESS_IS_BETTER)


def settle(conn: sqlite3.Connection, run: int) -> None:
    """Writes the rows of an ended run. Belongs inside the caller's transaction."""
    forget(conn, run)
    rows: dict[str, tuple[float | None, float | None, float | None, float | None]] = {}
    curves = conn.execute(
        "SELECT name, last_value, (SELECT min(min) FROM rollup WHERE series = series.id AND width = 4096),"
        " (SELECT max(max) FROM rollup WHERE series = series.id AND width = 4096) FROM series WHERE run = ?",
        (run,),
    )
    for name, last, least, most in curves:
        rows[name] = (last, None, last, least if less_is_better(name) else most)
    for name, final in conn.execute("SELECT name, value FROM metric WHERE run = ?", (run,)):
        _, _, last, best = rows.get(name, (None, None, None, None))
        rows[name] = (final, final, last, best)
    for prefix in MEANT_BY_SHORT:
        for name in [name for name in rows if name.startswith(prefix)]:
            rows.setdefault(name.removeprefix(prefix), rows[name])
    conn.executemany(
        "INSERT INTO score (name, run, value, final, last, best) VALUES (?, ?, ?, ?, ?, ?)",
        [(name, run, *row) for name, row in rows.items()],
    )


def forget(conn: sqlite3.Connection, run: int) -> None:
    conn.executemany("DELETE FROM score WHERE name = ? AND run = ?", [(name, run) for name in _settled(conn)])


def names(conn: sqlite3.Connection) -> list[str]:
    """Names of all metrics that some run has."""
    reported = f"SELECT DISTINCT name FROM series WHERE run IN ({_UNFINISHED})"
    going = texts(conn.execute(reported))
    short = [name.removeprefix(prefix) for name in going for prefix in MEANT_BY_SHORT]
    return sorted({*_settled(conn), *going, *short})


def split(text: str) -> tuple[Which, str]:
    """`best.mrr` as ("best", "mrr"); a name alone means its value."""
    head, _, name = text.partition(".")
    for which in WHICH:
        if name and head == which:
            return which, name
    return "value", text


def values_of(name: str, which: Which = "value") -> tuple[str, list[str]]:
    """A SELECT of (run, value) for every run that has this metric; NULL is NaN or infinity."""
    meant = (name, *(prefix + name for prefix in MEANT_BY_SHORT))
    column = {"value": "last_value", "final": "NULL", "last": "last_value", "best": _best_so_far(name)}[which]
    # With a bare column beside min(), SQLite takes the row that has the minimum.
    sql = (
        f"SELECT run, {which} AS value FROM score WHERE name = ? UNION ALL"
        f" SELECT run, value FROM (SELECT run, {column} AS value,"
        " min(CASE name WHEN ? THEN 0 WHEN ? THEN 1 ELSE 2 END)"
        f" FROM series WHERE run IN ({_UNFINISHED}) AND name IN (?, ?, ?) GROUP BY run)"
    )
    return sql, [name, *meant[:2], *meant]


def of_runs(conn: sqlite3.Connection, numbers: list[int], text: str) -> dict[int, float]:
    """A metric (`mrr`, `best.mrr`) by run, for the rows of one page; runs without it are left out."""
    which, name = split(text)
    marks = ", ".join("?" * len(numbers))
    sql, values = values_of(name, which)
    rows = conn.execute(
        f"SELECT run, value FROM ({sql}) WHERE run IN ({marks}) AND value IS NOT NULL", (*values, *numbers)
    )
    return dict(pair for pair in rows if fits(pair, ("int", "float")))


def of_validation(conn: sqlite3.Connection, numbers: list[int], text: str) -> set[int]:
    """The runs whose value of a metric such as `mrr` comes from the validation, since no test reported it."""
    which, name = split(text)
    whose = [of_runs(conn, numbers, f"{which}.{prefix}{name}") for prefix in MEANT_BY_SHORT]
    return {
        run
        for run, value in of_runs(conn, numbers, text).items()
        if run not in whose[0] and whose[1].get(run) == value
    }


def _best_so_far(name: str) -> str:
    kind = "min" if less_is_better(name) else "max"
    return f"(SELECT {kind}({kind}) FROM rollup WHERE series = series.id AND width = 4096)"


def _settled(conn: sqlite3.Connection) -> list[str]:
    """Distinct names by index skip-scan: reading all rows for a few names would take long."""
    rows = conn.execute(
        "WITH RECURSIVE found (name) AS (SELECT min(name) FROM score UNION ALL"
        " SELECT (SELECT min(name) FROM score WHERE name > found.name) FROM found"
        " WHERE found.name IS NOT NULL) SELECT name FROM found WHERE name IS NOT NULL"
    )
    return texts(rows)
