"""Measurements of benchmarks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from storage.database import transaction
from storage.rows import json_table, made


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    subject: str
    against: str | None
    value: float
    low: float | None
    high: float | None
    n: int
    unit: str
    command: str
    fingerprint: dict[str, Any]
    at: float
    run: int | None = None
    bench: int | None = None

    @property
    def machine(self) -> str:
        """The fingerprint's key: values with different keys are not comparable."""
        return fingerprint_key(self.fingerprint)


_COLUMNS = tuple(field.name for field in fields(Measurement))
COLUMNS_PLAIN = tuple(name for name in _COLUMNS if name != "fingerprint")


def fingerprint_key(body: dict[str, Any]) -> str:
    """A digest of the fingerprint, without host name and GPU UUIDs, which do not affect values."""
    machine = body.get("machine")
    gpus = body.get("gpus")
    stable = {
        **body,
        "machine": _without(machine, "host"),
        "gpus": [_without(gpu, "uuid") for gpu in gpus] if isinstance(gpus, list) else gpus,
    }
    import hashlib  # here: OpenSSL takes 3 MB, and few supervisors need it

    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:12]


def keep_fingerprint(conn: sqlite3.Connection, body: dict[str, Any]) -> str:
    """Stores the fingerprint once and returns its key. Belongs inside the caller's transaction."""
    key = fingerprint_key(body)
    conn.execute(
        "INSERT INTO fingerprint (key, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (key, json.dumps(body, sort_keys=True)),
    )
    return key


def fingerprint(conn: sqlite3.Connection, key: str) -> dict[str, Any]:
    row = conn.execute("SELECT body FROM fingerprint WHERE key = ?", (key,)).fetchone()
    return json_table(row[0]) if row else {}


def add(conn: sqlite3.Connection, m: Measurement) -> None:
    add_all(conn, [m])


def add_all(conn: sqlite3.Connection, measured: list[Measurement]) -> None:
    marks = ", ".join("?" * len(_COLUMNS))
    with transaction(conn):
        for m in measured:
            values = [getattr(m, name) for name in COLUMNS_PLAIN]
            conn.execute(
                f"INSERT INTO measurement ({', '.join(COLUMNS_PLAIN)}, fingerprint) VALUES ({marks})",
                (*values, keep_fingerprint(conn, m.fingerprint)),
            )


def replace_of_bench(conn: sqlite3.Connection, bench: int, measured: list[Measurement]) -> None:
    """Replaces the measurements of a benchmark."""
    with transaction(conn):
        conn.execute("DELETE FROM measurement WHERE bench = ?", (bench,))
        add_all(conn, measured)


def named(conn: sqlite3.Connection, name: str) -> list[Measurement]:
    """Measurements of this name, oldest first."""
    return list(_read(conn, "WHERE name = ? ORDER BY measurement.id", (name,)))


def all_of(conn: sqlite3.Connection, bench: int | None = None) -> list[Measurement]:
    """Measurements of this benchmark, or all there are, oldest first."""
    where, bound = ("", ()) if bench is None else ("WHERE bench = ?", (bench,))
    return list(_read(conn, f"{where} ORDER BY measurement.id", bound))


def _read(conn: sqlite3.Connection, rest: str, bound: tuple[Any, ...]) -> Iterator[Measurement]:
    columns = ", ".join(f"measurement.{name}" for name in COLUMNS_PLAIN)
    statement = (
        f"SELECT {columns}, fingerprint.body FROM measurement"
        f" JOIN fingerprint ON fingerprint.key = measurement.fingerprint {rest}"
    )
    for *row, body in conn.execute(statement, bound):
        values = dict(zip(COLUMNS_PLAIN, row, strict=True)) | {"fingerprint": json_table(body)}
        yield from made(Measurement, [[values[name] for name in _COLUMNS]])


def _without(table: Any, name: str) -> Any:
    return {key: value for key, value in table.items() if key != name} if isinstance(table, dict) else table
