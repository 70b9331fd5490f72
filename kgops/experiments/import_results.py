"""Benchmarks and values that `kgops bench export --to json` wrote, here or on another machine, taken into the record.

They keep the fingerprint they were measured on, so that they are never taken for values of this machine; the runs
behind them stayed where they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kgops.errors import BadInput
from kgops.experiments.summary import as_measurements
from kgops.jobs.foreign_json import read_any
from kgops.jobs.json_checks import ANY, Maybe, schema_error
from kgops.jobs.timestamps import is_timestamp
from storage import benches, measurements
from storage.benches import Pair
from storage.database import Connection
from storage.measurements import Measurement

__all__ = ["Taken", "take_in"]

_OPTION = {"asked": ANY, "applied": ANY, "why": Maybe(str)}
_SAID = {
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
    "baseline": _SAID,
    "measured": _SAID,
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
_METRIC = {
    **dict.fromkeys(("name", "subject", "unit", "command"), str),
    "against": Maybe(str),
    "value": float,
    "low": Maybe(float),
    "high": Maybe(float),
    "n": int,
    "fingerprint": _MACHINE,
    "at": float,
}


@dataclass(frozen=True)
class Taken:
    """What a file came to: `bench` its number here, or of values how many are new; `known` what was there before."""

    what: str
    bench: int | None = None
    metrics: int = 0
    known: bool = False


def take_in(conn: Connection, path: Path) -> Taken:
    """Once: what is in the record already is named, and nothing changes."""
    try:
        body = read_any(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    if isinstance(body, list):
        return _metrics(conn, path, body)
    return _bench(conn, path, body)


def _bench(conn: Connection, path: Path, body: Any) -> Taken:
    _refuse(path, schema_error(body, _BENCH, "benchmark"))
    if body["ended_at"] is None:
        raise BadInput(f"{path}: the benchmark is not finished", "export it again once it is")
    names = [one["name"] for one in body["plan"]["variants"]]
    found = [_pair(path, one, names) for one in body["pair"]]
    _refuse(path, _twice(found) or _no_moment(body["begun_at"]) or _no_moment(body["ended_at"]))
    key = measurements.fingerprint_key(body["fingerprint"])
    for one in benches.newest(conn, name=body["name"], limit=1_000_000):
        if (one.begun_at, one.fingerprint, one.command) == (body["begun_at"], key, body["command"]):
            return Taken(one.name, one.id, known=True)
    number = benches.import_bench(
        conn,
        *(body["name"], body["plan"], body["command"], body["fingerprint"]),
        *(body["begun_at"], body["ended_at"], found),
    )
    taken = benches.get(conn, number)
    assert taken is not None
    measurements.replace_of_bench(conn, number, as_measurements(conn, taken))
    return Taken(taken.name, number)


def _pair(path: Path, told: Mapping[str, Any], names: list[str]) -> Pair:
    if told["variant"] not in names[1:]:
        raise BadInput(f"{path}: a pair is of {told['variant']!r:.60}, which its plan has not")
    for one in (told["baseline"], told["measured"]):
        if not one.get("trouble") and not {"seconds", "seconds_of", "memory_mib", "memory_of"} <= one.keys():
            raise BadInput(
                f"{path}: a pair of {told['variant']!r:.60} says neither what it took nor what went wrong"
            )
    _refuse(path, _no_moment(told["at"]))
    return Pair(
        *(told["round"], told["variant"], None, None, dict(told["baseline"]), dict(told["measured"])),
        *(told["busy"], tuple(told["noted"]), told["at"]),
    )


def _metrics(conn: Connection, path: Path, body: list[Any]) -> Taken:
    """Those of benchmarks come with the benchmark, when that is taken in; here they stand alone."""
    _refuse(path, schema_error(body, [_METRIC], "metrics"))
    here = {_identity(m) for m in measurements.page(conn)}
    new = []
    for one in body:
        _refuse(path, _no_moment(one["at"]))
        m = Measurement(
            **{f.name: one.get(f.name) for f in fields(Measurement) if f.name not in ("run", "bench")}
        )
        if _identity(m) not in here:
            here.add(_identity(m))
            new.append(m)
    measurements.add_all(conn, new)
    return Taken(f"{len(body):,} values", metrics=len(new), known=not new)


def _identity(m: Measurement) -> tuple[Any, ...]:
    return m.name, m.subject, m.against, m.at, m.value, measurements.fingerprint_key(m.fingerprint)


def _refuse(path: Path, trouble: str | None) -> None:
    if trouble:
        raise BadInput(f"{path}: {trouble}", "`kgops bench export N --to json` writes what can be read here")


def _twice(found: list[Pair]) -> str | None:
    seen: set[tuple[int, str]] = set()
    for pair in found:
        if (pair.round, pair.variant) in seen:
            return f"round {pair.round} of {pair.variant!r:.60} stands there twice"
        seen.add((pair.round, pair.variant))
    return None


def _no_moment(at: float) -> str | None:
    return None if is_timestamp(at) else f"no moment: {at!r}"
