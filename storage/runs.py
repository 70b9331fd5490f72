"""Runs: add, read, claim, change state, delete."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

from storage import search, series
from storage.database import must_be_current, transaction
from storage.rows import UNREADABLE, json_table, mended
from storage.schema import SPEC, fitting

WAITING = ("queued",)
ACTIVE = ("starting", "running")
UNFINISHED = (*WAITING, *ACTIVE)
ENDED = ("succeeded", "failed", "out_of_memory", "cancelled", "interrupted")
STATES = (*UNFINISHED, *ENDED)


class Run(NamedTuple):
    """A run's record; what was not said of it is None or empty.

    A NamedTuple, since a dataclass with this many fields costs a listing 4 ms."""

    id: int = 0  # no run has it
    workload: str = ""
    label: str = ""
    profile: str | None = None
    state: str = ""
    reason: str | None = None
    folder: str = ""
    submitted_at: float = math.nan
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    attempts: int = 0
    gpu_request: str | None = None
    gpu: str | None = None  # assigned; several as in "UUID,UUID"
    reserved_mib: int | None = None
    exclusive: int = 0
    predicted_mib: float | None = None
    peak_gpu_mib: float | None = None
    peak_host_mib: float | None = None
    phase: str | None = None
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    rate: float | None = None
    reported_at: float | None = None
    metric: str | None = None
    metric_value: float | None = None
    # Of its attempts, as OF_ATTEMPTS calculates them.
    oom_attempts: int = 0  # that ran out of memory
    host_cpu_s: float | None = None  # of their processes
    attempts_s: float | None = None  # of those that ended
    attempt_since: float | None = None  # the start of the one that goes on

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of the assigned GPUs."""
        return tuple(self.gpu.split(",")) if self.gpu else ()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def took_s(self) -> float | None:
        """Of an ended run."""
        return None if self.ended_at is None else self.took_until(self.ended_at)

    def took_until(self, now: float) -> float | None:
        return took_s(self.started_at, self.ended_at or now, self.attempts_s, self.attempt_since)


class RunSpec(NamedTuple):
    job: dict[str, Any]
    plan: dict[str, Any]
    environment: dict[str, Any]


def took_s(
    started_at: float | None, until: float, attempts_s: float | None, attempt_since: float | None
) -> float | None:
    """Seconds that a run's attempts went on, without the pauses between them; of an imported one, which has none, from
    its start to its end."""
    if attempts_s is None and attempt_since is None:
        return None if started_at is None else max(until - started_at, 0.0)
    return (attempts_s or 0.0) + (0.0 if attempt_since is None else max(until - attempt_since, 0.0))


_KNOWN_STATES = frozenset(STATES)
_fitting: set[tuple[type, ...]] = set()  # types of rows that fit


def run_of(row: tuple[Any, ...]) -> Run:
    """The run of a row of SELECT_RUN. What a damaged row lost is None or n/a."""
    if tuple(map(type, row)) not in _fitting:
        row = tuple(mended(Run, row, _fitting))
    if row[_STATE] not in _KNOWN_STATES:
        row = (*row[:_STATE], UNREADABLE, *row[_STATE + 1 :])
    return tuple.__new__(Run, row)  # a tenth of the time of Run(*row)


def runs_of(rows: Iterable[tuple[Any, ...]]) -> list[Run]:
    """`run_of` each row: for long lists, whose rows mostly have the same types as the one before."""
    found: list[Run] = []
    before: tuple[type, ...] = ()
    for row in rows:
        types = tuple(map(type, row))
        if types == before and row[_STATE] in _KNOWN_STATES:
            found.append(tuple.__new__(Run, row))
            continue
        found.append(run_of(row))
        before = types if types in _fitting else ()
    return found


_STATE = Run._fields.index("state")


# Others ended with their only attempt, and took as long: most runs of a list, whose attempts nobody has to look at.
# Compared one by one: `IN` looks into a table that SQLite makes of its list.
_ENDED_WITH_ITS_ATTEMPT = "run.state = 'succeeded' OR run.state = 'failed' OR run.state = 'out_of_memory'"
MAY_HAVE_PAUSED = f"(run.attempts > 1 OR NOT ({_ENDED_WITH_ITS_ATTEMPT}))"
OF_ATTEMPTS = {
    "oom_attempts": "CASE WHEN run.attempts = 1 AND run.state = 'succeeded' THEN 0 ELSE"
    " (SELECT count(*) FROM attempt WHERE attempt.run = run.id AND attempt.outcome = 'out_of_memory') END",
    "host_cpu_s": "(SELECT sum(cpu_s) FROM attempt WHERE attempt.run = run.id)",
    "attempts_s": f"CASE WHEN {MAY_HAVE_PAUSED} THEN"
    " (SELECT sum(ended_at - started_at) FROM attempt WHERE attempt.run = run.id) END",
    "attempt_since": f"CASE WHEN {MAY_HAVE_PAUSED} THEN"
    " (SELECT max(started_at) FROM attempt WHERE attempt.run = run.id AND attempt.ended_at IS NULL) END",
}
_FOR_ITS_TIME = ("attempts_s", "attempt_since")
COLUMNS = tuple(name for name in Run._fields if name not in OF_ATTEMPTS)
FIELDS = tuple(name for name in Run._fields if name not in _FOR_ITS_TIME)  # of JSON and CSV
# The fields of a Run, in its order; a JOIN, WHERE or ORDER BY may follow.
SELECT_RUN = f"SELECT {', '.join(OF_ATTEMPTS.get(name, f'run.{name}') for name in Run._fields)} FROM run"


def as_table(run: Run) -> dict[str, Any]:
    """The run's FIELDS by name."""
    return {name: getattr(run, name) for name in FIELDS}


@cache
def field_types() -> dict[str, type]:
    """int, float or str by the name of each field of a Run."""
    hints = get_type_hints(Run).items()
    return {
        name: next(kind for kind in (int, float, str) if kind in (hint, *get_args(hint)))
        for name, hint in hints
    }


def add(conn: sqlite3.Connection, run: Run, spec: RunSpec) -> None:
    with transaction(conn):
        conn.execute(
            f"INSERT INTO run ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
            [getattr(run, name) for name in COLUMNS],
        )
        _write_spec(conn, run.id, spec)
        conn.execute("INSERT INTO intake (run) VALUES (?)", (run.id,))
        remember_gpus(conn, spec.environment.get("gpus"))
        search.index(conn, run.id)


def _write_spec(conn: sqlite3.Connection, number: int, spec: RunSpec) -> None:
    conn.execute(
        "INSERT OR REPLACE INTO run_spec (run, job, plan, environment) VALUES (?, ?, ?, ?)",
        (number, *map(json.dumps, spec)),
    )


def remember_gpus(conn: sqlite3.Connection, gpus: Any) -> None:
    """Stores GPU names by UUID, so that `gpu:t4` finds runs on such a GPU."""
    for gpu in gpus if isinstance(gpus, list) else ():
        identity = (gpu.get("uuid"), gpu.get("name")) if isinstance(gpu, dict) else (None, None)
        if all(isinstance(one, str) and one for one in identity):
            conn.execute("INSERT INTO gpu (uuid, name) VALUES (?, ?) ON CONFLICT DO NOTHING", identity)


def next_number(conn: sqlite3.Connection) -> int:
    """The next run number; those of deleted runs are not reused. Call inside the transaction that uses it."""
    row = conn.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run'").fetchone()
    return (row[0] if row else 0) + 1


def get(conn: sqlite3.Connection, number: int) -> Run | None:
    must_be_current(conn)  # commands that wait for a run call this again and again
    row = conn.execute(f"{SELECT_RUN} WHERE id = ?", (number,)).fetchone()
    return run_of(row) if row else None


def spec(conn: sqlite3.Connection, number: int) -> RunSpec:
    """What was stored; members that a damaged row lost are missing."""
    row = conn.execute("SELECT job, plan, environment FROM run_spec WHERE run = ?", (number,)).fetchone()
    tables = map(json_table, row or ("", "", ""))
    return RunSpec(*(fitting(one, schema) for one, schema in zip(tables, SPEC.values(), strict=True)))


def with_folder(conn: sqlite3.Connection, folder: str) -> Run | None:
    row = conn.execute(f"{SELECT_RUN} WHERE folder = ?", (folder,)).fetchone()
    return run_of(row) if row else None


def in_states(conn: sqlite3.Connection, states: Iterable[str]) -> list[Run]:
    """Runs in these states, oldest first."""
    names = tuple(states)
    marks = ", ".join("?" * len(names))
    rows = conn.execute(f"{SELECT_RUN} WHERE state IN ({marks}) ORDER BY id", names).fetchall()
    return runs_of(rows)


def latest(conn: sqlite3.Connection, workloads: Sequence[str] = ()) -> Run | None:
    """The newest run, of these workloads if any are given."""
    among = f" WHERE workload IN ({', '.join('?' * len(workloads))})" if workloads else ""
    row = conn.execute(f"{SELECT_RUN}{among} ORDER BY id DESC LIMIT 1", (*workloads,)).fetchone()
    return run_of(row) if row else None


def labelled(conn: sqlite3.Connection, label: str, workloads: Sequence[str] = (), *, limit: int) -> list[Run]:
    """The newest runs with exactly this label, of these workloads if any are given."""
    among = f" AND workload IN ({', '.join('?' * len(workloads))})" if workloads else ""
    statement = f"{SELECT_RUN} WHERE label = ?{among} ORDER BY id DESC LIMIT ?"
    return runs_of(conn.execute(statement, (label, *workloads, limit)).fetchall())


def labels(conn: sqlite3.Connection, workloads: Sequence[str] = (), *, limit: int = 500) -> list[str]:
    """The labels of the newest runs, of these workloads if any are given."""
    among = f" WHERE workload IN ({', '.join('?' * len(workloads))})" if workloads else ""
    statement = f"SELECT DISTINCT label FROM run{among} ORDER BY id DESC LIMIT ?"
    return [row[0] for row in conn.execute(statement, (*workloads, limit))]


def count(conn: sqlite3.Connection) -> int:
    total: int = conn.execute("SELECT count(*) FROM run").fetchone()[0]
    return total


def claim(conn: sqlite3.Connection, number: int, *, gpu: str | None) -> bool:
    """queued → starting, with its GPU. False if another process was first."""
    with transaction(conn):
        changed = conn.execute(
            "UPDATE run SET state = 'starting', reason = NULL, gpu = ? WHERE id = ? AND state = 'queued'",
            (gpu, number),
        ).rowcount
    return changed == 1


def replan(conn: sqlite3.Connection, number: int, *, job: dict[str, Any], plan: dict[str, Any]) -> None:
    """Replaces job and plan with those for the assigned GPU."""
    with transaction(conn):
        conn.execute(
            "UPDATE run SET profile = ?, reserved_mib = ?, predicted_mib = ? WHERE id = ?",
            (plan["profile"], plan["reserved_mib"], plan["predicted_mib"], number),
        )
        conn.execute(
            "UPDATE run_spec SET job = ?, plan = ? WHERE run = ?", (json.dumps(job), json.dumps(plan), number)
        )
        search.index(conn, number)


def set_reason(conn: sqlite3.Connection, number: int, state: str, reason: str | None) -> None:
    """Sets the reason only if the run is still in this state: a caller without the lock may be late."""
    with transaction(conn):
        conn.execute("UPDATE run SET reason = ? WHERE id = ? AND state = ?", (reason, number, state))


def set_state(conn: sqlite3.Connection, number: int, state: str, reason: str | None) -> None:
    """Changes the state without starting or ending the run. The caller holds the supervisor's lock."""
    with transaction(conn):
        conn.execute("UPDATE run SET state = ?, reason = ? WHERE id = ?", (state, reason, number))


def end(
    conn: sqlite3.Connection,
    number: int,
    *,
    state: str,
    reason: str | None,
    exit_code: int | None,
    ended_at: float,
) -> bool:
    """Ends the run. False if it had ended already: an end is written once."""
    if state not in ENDED:
        raise ValueError(f"{state!r} is not an end")
    marks = ", ".join("?" * len(ENDED))
    with transaction(conn):
        changed = conn.execute(
            "UPDATE run SET state = ?, reason = ?, exit_code = ?, ended_at = ?"
            f" WHERE id = ? AND state NOT IN ({marks})",
            (state, reason, exit_code, ended_at, number, *ENDED),
        ).rowcount
        if changed:
            series.settle(conn, number)
    return changed == 1


def reopen(conn: sqlite3.Connection, number: int) -> bool:
    """Puts an ended run back in the queue, to be resumed. False if it has not ended, or succeeded."""
    with transaction(conn):
        changed = conn.execute(
            "UPDATE run SET state = 'queued', reason = NULL, ended_at = NULL, exit_code = NULL, gpu = NULL"
            " WHERE id = ? AND state IN ('failed', 'out_of_memory', 'cancelled', 'interrupted')",
            (number,),
        ).rowcount
        if changed:
            series.forget(conn, number)
    return changed == 1


def rewrite(conn: sqlite3.Connection, number: int, values: dict[str, Any], spec: RunSpec) -> None:
    """Writes these columns and the spec of a run whose rows were damaged. Call in a transaction."""
    changes = ", ".join(f"{name} = ?" for name in values)
    if values:
        conn.execute(f"UPDATE run SET {changes} WHERE id = ?", (*values.values(), number))
    _write_spec(conn, number, spec)
    search.index(conn, number)


def forget(conn: sqlite3.Connection, number: int) -> None:
    """Removes all rows of a run, which is then restored from its folder. Call in a transaction."""
    conn.execute("DELETE FROM run WHERE id = ?", (number,))
    conn.execute("DELETE FROM score WHERE run = ?", (number,))
    search.forget(conn, number)


def delete(conn: sqlite3.Connection, number: int) -> bool:
    """Deletes an ended run with all its rows; its number is not reused."""
    marks = ", ".join("?" * len(ENDED))
    with transaction(conn):
        changed = conn.execute(
            f"DELETE FROM run WHERE id = ? AND state IN ({marks})", (number, *ENDED)
        ).rowcount
        if changed:
            search.forget(conn, number)
            series.forget(conn, number)
    return changed == 1
