"""Export of a benchmark as JSON, and the import of what was exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgops.errors import BadInput
from kgops.experiments.summary import RULE, rows
from kgops.jobs.json_checks import read_any
from kgops.jobs.text import is_timestamp
from storage import benches
from storage.benches import Bench, Pair
from storage.database import Connection
from storage.schema import ANY, Maybe, schema_error


def as_table(conn: Connection, bench: Bench) -> dict[str, Any]:
    """A benchmark with all of its pairs and the values of each run."""
    return {
        **{name: value for name, value in asdict(bench).items() if name != "fingerprint"},
        "fingerprint": benches.fingerprint(conn, bench.fingerprint),
        "fingerprint_key": bench.fingerprint,
        "rule": RULE,
        "row": [asdict(row) for row in rows(conn, bench)],
        "pair": [asdict(pair) for pair in benches.pairs(conn, bench.id)],
    }


_OPTION = {"requested": ANY, "applied": ANY, "why": Maybe(str)}
_TRIAL = {
    "trouble?": Maybe(str),
    "remark?": Maybe(str),
    "seconds_of?": Maybe(str),
    "memory_of?": Maybe(str),
    **{name: Maybe(float) for name in ("seconds?", "took_s?", "memory_mib?")},
    "metrics?": Maybe({str: Maybe(float)}),
    "options?": Maybe({str: _OPTION}),
}
_PAIR = {
    "round": int,
    "variant": str,
    "at": float,
    "busy": Maybe(float),
    "noted": [str],
    "baseline": _TRIAL,
    "measured": _TRIAL,
}
_MACHINE = {
    "machine?": Maybe({name: Maybe(str) for name in ("host?", "processor?", "system?")}),
    "gpus?": Maybe([{"name?": Maybe(str)}]),
    "git?": Maybe({"commit?": Maybe(str)}),
    "packages?": Maybe({str: ANY}),
    "threads?": Maybe({str: ANY}),
    "driver?": Maybe(str),
}
_PLAN = {"variants": [{"name": str, "varied?": {str: ANY}}]}
_BENCH = {
    "name": str,
    "command": str,
    "fingerprint": _MACHINE,
    "plan": _PLAN,
    "pair": [_PAIR],
    "begun_at": float,
    "ended_at": Maybe(float),
}


@dataclass(frozen=True)
class Imported:
    """Result of an import: `known`: it was imported before."""

    what: str
    bench: int
    known: bool = False


def import_file(conn: Connection, path: Path) -> Imported:
    """Imports a file once; a second import changes nothing."""
    try:
        body = read_any(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    return _bench(conn, path, body)


def _bench(conn: Connection, path: Path, body: Any) -> Imported:
    _refuse(path, schema_error(body, _BENCH, "benchmark"))
    if body["ended_at"] is None:
        raise BadInput(f"{path}: the benchmark is not finished", "export it again when it is finished")
    names = [one["name"] for one in body["plan"]["variants"]]
    pairs = [_pair(path, one, names) for one in body["pair"]]
    _refuse(path, _twice(pairs) or _bad_time(body["begun_at"]) or _bad_time(body["ended_at"]))
    key = benches.fingerprint_key(body["fingerprint"])
    for one in benches.newest(conn, name=body["name"], limit=1_000_000):
        if (one.begun_at, one.fingerprint, one.command) == (body["begun_at"], key, body["command"]):
            return Imported(one.name, one.id, known=True)
    number = benches.import_bench(
        conn,
        *(body["name"], body["plan"], body["command"], body["fingerprint"]),
        *(body["begun_at"], body["ended_at"], pairs),
    )
    imported = benches.get(conn, number)
    assert imported is not None
    return Imported(imported.name, number)


def _pair(path: Path, record: Mapping[str, Any], names: list[str]) -> Pair:
    if record["variant"] not in names[1:]:
        raise BadInput(
            f"{path}: a pair has the variant {record['variant']!r:.60}, which the plan does not have"
        )
    for one in (record["baseline"], record["measured"]):
        if not one.get("trouble") and not {"seconds", "seconds_of", "memory_mib", "memory_of"} <= one.keys():
            raise BadInput(
                f"{path}: a pair of {record['variant']!r:.60} has neither measurements nor a failure reason"
            )
    _refuse(path, _bad_time(record["at"]))
    return Pair(
        *(record["round"], record["variant"], None, None, dict(record["baseline"]), dict(record["measured"])),
        *(record["busy"], tuple(record["noted"]), record["at"]),
    )


def _refuse(path: Path, trouble: str | None) -> None:
    if trouble:
        raise BadInput(
            f"{path}: {trouble}", "only files from `kgops bench export N --to json` can be imported"
        )


def _twice(pairs: list[Pair]) -> str | None:
    seen: set[tuple[int, str]] = set()
    for pair in pairs:
        if (pair.round, pair.variant) in seen:
            return f"round {pair.round} of {pair.variant!r:.60} appears twice"
        seen.add((pair.round, pair.variant))
    return None


def _bad_time(at: float) -> str | None:
    return None if is_timestamp(at) else f"not a valid time: {at!r}"
