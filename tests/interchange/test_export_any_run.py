"""Whatever a record holds of a run, exported as JSON and imported again it is the same run."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgops.interchange.importing import import_from
from kgops.settings import Home
from kgops.supervisor.run_json import IMPORTED, write_runs
from storage import runs, series, transfer
from storage.transfer import Curve, Rows

# Whatever a column or JSON can hold: any text that is UTF-8, every float SQLite keeps, integers of any size.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
REAL = st.floats(allow_nan=False)
WHOLE = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TABLE = st.dictionaries(TEXT, JSON, max_size=4)
BY_TYPE = {"TEXT": TEXT, "INTEGER": WHOLE, "REAL": REAL}
KEYS = {
    "attempt": ("number",),
    "option": ("attempt", "name"),
    "metric": ("name",),
    "artifact": ("path",),
    "tag": ("tag",),
    "test_triple": ("test",),
    "influence": ("test", "rank"),
    "readable": ("label",),
}
POINTS = st.lists(st.tuples(REAL, st.none() | REAL, REAL), min_size=1, max_size=150)


def rows_of(conn: sqlite3.Connection, table: str, **fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    fields = {}
    for column in transfer.columns(conn, table):
        kind = TABLE if column.is_json else BY_TYPE[column.type]
        fields[column.name] = kind if column.required or column.is_json else st.none() | kind
    return st.fixed_dictionaries({**fields, **fixed})


def key_of(table: str) -> Callable[[dict[str, Any]], Any]:
    """Where a table has no key, every row is its own."""
    return lambda row: tuple(row[key] for key in KEYS[table]) if table in KEYS else id(row)


def any_run(conn: sqlite3.Connection) -> st.SearchStrategy[Rows]:
    finite = st.floats(0, 4e9)
    fixed: dict[str, dict[str, Any]] = {
        "option": {"effect": st.sampled_from(["exact", "rounding", "changes results"])},
        "attempt": {"started_at": finite, "ended_at": st.none() | finite},
        "note": {"at": finite},
        "artifact": {"path": st.from_regex(r"results/[a-zé漢]{1,9}", fullmatch=True)},
    }
    tables = {
        name: st.lists(rows_of(conn, name, **fixed.get(name, {})), max_size=3, unique_by=key_of(name))
        for name in transfer.TABLES
    }
    ended = {"state": st.sampled_from(runs.ENDED), "id": st.just(1), "submitted_at": finite}
    ended |= {name: st.none() | finite for name in ("started_at", "ended_at", "reported_at")}
    curves = st.dictionaries(TEXT, POINTS, max_size=2)
    return st.builds(
        lambda run, spec, hanging, found: Rows(
            run, spec, hanging, [Curve(name, *map(list, zip(*p, strict=True))) for name, p in found.items()]
        ),
        rows_of(conn, "run", **ended),
        rows_of(conn, "run_spec"),
        st.fixed_dictionaries(tables),
        curves,
    )


def told(rows: Rows) -> dict[str, Any]:
    """All that a record says of a run, but what importing changes: number, folder and where it came from."""
    run = {name: value for name, value in rows.run.items() if name not in ("id", "folder")}
    events = [event for event in rows.tables["event"] if event["kind"] != IMPORTED]
    hanging = {name: in_order(name, some) for name, some in {**rows.tables, "event": events}.items()}
    return {"run": run, "spec": rows.spec, "curves": sorted(rows.curves), **hanging}


def in_order(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = KEYS.get(table)
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys)) if keys else rows


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_run_is_the_same_after_export_and_import(
    conn: sqlite3.Connection, home: Path, tmp_path: Path, data: st.DataObject
) -> None:
    rows = data.draw(any_run(conn))
    number = transfer.insert_rows(conn, rows, folder=f"{runs.next_number(conn):04d}-x")
    before = transfer.read_rows(conn, number)
    assert before is not None and told(before) == told(rows)
    path = tmp_path / "run.json"
    path.write_text("".join(write_runs(iter([before]))))
    (one,) = import_from(Home(home), conn, path, again=True)
    assert one.number is not None and number in one.known
    after = transfer.read_rows(conn, one.number)
    assert after is not None and told(after) == told(before)
    texts = {json.dumps(told(rows), sort_keys=True) for rows in (before, after)}
    assert len(texts) == 1, "-0.0 and 1.0 stay what they are"
    curves = [series.of_runs(conn, [run], "x").get(run) for run in (number, one.number)]
    assert curves[0] == curves[1]


def test_no_table_that_hangs_on_a_run_is_forgotten(conn: sqlite3.Connection) -> None:
    """Whoever adds one says here whether it travels."""
    written_otherwise = {"run_spec", "series"}
    of_this_record_alone = {"intake"}  # how far files were read
    tables = [row[0] for row in conn.execute("SELECT name FROM pragma_table_list WHERE type = 'table'")]
    hanging = {
        table
        for table in tables
        if conn.execute(
            "SELECT 1 FROM pragma_foreign_key_list(?) WHERE \"table\" = 'run'", (table,)
        ).fetchone()
    }
    assert hanging - written_otherwise - of_this_record_alone == set(transfer.TABLES)
