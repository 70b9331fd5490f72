"""Benchmarks: their plans, and the finished pairs of runs, which are not repeated."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from storage.database import transaction
from storage.rows import json_table, json_value, made


class Heading(NamedTuple):
    """A benchmark without its plan."""

    number: int
    name: str
    command: str
    machine: str
    begun_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Bench:
    id: int
    name: str
    plan: dict[str, Any]
    command: str
    fingerprint: str  # a key
    begun_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A paired comparison: a run of the baseline and one of `variant`, one after the other."""

    round: int
    variant: str
    baseline_run: int | None
    variant_run: int | None
    baseline: dict[str, Any]
    measured: dict[str, Any]
    busy: float | None
    noted: tuple[str, ...]
    at: float


_BENCH = "id, name, plan, command, fingerprint, begun_at, ended_at"


def begin(
    conn: sqlite3.Connection,
    name: str,
    plan: dict[str, Any],
    command: str,
    fingerprint: dict[str, Any],
    at: float,
) -> int:
    with transaction(conn):
        key = _keep_fingerprint(conn, fingerprint)
        added = conn.execute(
            "INSERT INTO bench (name, plan, plan_key, command, fingerprint, begun_at) VALUES (?, ?, ?, ?, ?, ?)",
            (name, json.dumps(plan), _digest(name, plan), command, key, at),
        )
    number = added.lastrowid
    assert number is not None
    return number


def unfinished(conn: sqlite3.Connection, name: str, plan: dict[str, Any]) -> list[Bench]:
    """Unfinished benchmarks with this plan, on any machine, newest first."""
    rows = conn.execute(
        f"SELECT {_BENCH} FROM bench WHERE plan_key = ? AND ended_at IS NULL ORDER BY id DESC",
        (_digest(name, plan),),
    )
    return [_bench(row) for row in rows]


def get(conn: sqlite3.Connection, number: int) -> Bench | None:
    row = conn.execute(f"SELECT {_BENCH} FROM bench WHERE id = ?", (number,)).fetchone()
    return _bench(row) if row else None


def newest(conn: sqlite3.Connection, *, name: str | None = None, limit: int = 50) -> list[Bench]:
    where, bound = ("", ()) if name is None else (" WHERE name = ?", (name,))
    rows = conn.execute(f"SELECT {_BENCH} FROM bench{where} ORDER BY id DESC LIMIT ?", (*bound, limit))
    return [_bench(row) for row in rows]


def end(conn: sqlite3.Connection, number: int, at: float) -> None:
    with transaction(conn):
        conn.execute("UPDATE bench SET ended_at = ? WHERE id = ?", (at, number))


def add_pair(conn: sqlite3.Connection, bench: int, pair: Pair) -> None:
    """Adds a finished pair, which is not changed later."""
    with transaction(conn):
        conn.execute(
            "INSERT INTO pair (bench, round, variant, baseline_run, variant_run, baseline, measured, busy, noted, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(bench, pair.round, pair.variant, pair.baseline_run, pair.variant_run),
                *(json.dumps(pair.baseline), json.dumps(pair.measured)),
                *(pair.busy, json.dumps(list(pair.noted)), pair.at),
            ),
        )


def import_bench(
    conn: sqlite3.Connection,
    name: str,
    plan: dict[str, Any],
    command: str,
    fingerprint: dict[str, Any],
    begun_at: float,
    ended_at: float,
    finished: Sequence[Pair],
) -> int:
    """Imports a finished benchmark in one transaction."""
    with transaction(conn):
        number = begin(conn, name, plan, command, fingerprint, begun_at)
        for pair in finished:
            add_pair(conn, number, pair)
        end(conn, number, ended_at)
    return number


def pairs(conn: sqlite3.Connection, bench: int) -> list[Pair]:
    rows = conn.execute(
        "SELECT round, variant, baseline_run, variant_run, baseline, measured, busy, noted, at FROM pair"
        " WHERE bench = ? ORDER BY round, at",
        (bench,),
    )
    return [_pair(row) for row in rows]


def _pair(row: Sequence[Any]) -> Pair:
    *head, baseline, measured, busy, noted, at = row
    notes = tuple(one for one in json_value(noted) or () if isinstance(one, str))
    return made(Pair, [(*head, json_table(baseline), json_table(measured), busy, notes, at)])[0]


def _bench(row: Sequence[Any]) -> Bench:
    number, name, plan, *rest = row
    return made(Bench, [(number, name, json_table(plan), *rest)])[0]


def _digest(name: str, plan: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps([name, plan], sort_keys=True).encode()).hexdigest()


def headings(conn: sqlite3.Connection) -> list[Heading]:
    """All benchmarks, newest first."""
    rows = conn.execute(
        "SELECT id, name, command, fingerprint, begun_at, ended_at FROM bench ORDER BY id DESC"
    )
    return made(Heading, rows)


def fingerprint_key(body: dict[str, Any]) -> str:
    """A digest of the fingerprint, without host name and GPU UUIDs, which do not affect values."""
    machine = body.get("machine")
    gpus = body.get("gpus")
    stable = {
        **body,
        "machine": _without(machine, "host"),
        "gpus": [_without(gpu, "uuid") for gpu in gpus] if isinstance(gpus, list) else gpus,
    }
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:12]


def fingerprint(conn: sqlite3.Connection, key: str) -> dict[str, Any]:
    row = conn.execute("SELECT body FROM fingerprint WHERE key = ?", (key,)).fetchone()
    return json_table(row[0]) if row else {}


def _keep_fingerprint(conn: sqlite3.Connection, body: dict[str, Any]) -> str:
    """Stores the fingerprint once and returns its key."""
    key = fingerprint_key(body)
    conn.execute(
        "INSERT INTO fingerprint (key, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (key, json.dumps(body, sort_keys=True)),
    )
    return key


def _without(table: Any, name: str) -> Any:
    return {key: value for key, value in table.items() if key != name} if isinstance(table, dict) else table
