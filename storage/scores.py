"""An index of runs by metric, so that `mrr>0.3` is one look-up among a hundred thousand runs.

Each metric of an ended run has one row: `value` is the final value of the result manifest, or else the last
reported one; `last` and `best` are from its curve. `mrr` is the run's `mrr`, or else `test_mrr`, or else
`valid_mrr`. Runs that have not ended have no rows: they are few, their metrics change all the time, and their
curves are read directly.
"""

from __future__ import annotations

import sqlite3
from typing import Literal

from storage.database import explained

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
    with explained(None):
        going = [row[0] for row in conn.execute(reported)]
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
    return dict(rows.fetchall())


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
    return [row[0] for row in rows]
