"""Recommendations and all claim verdicts, for the command line, the screens and BENCHMARKS.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kgops.experiments.advice import Advice, advice
from kgops.experiments.claim_verdicts import Ruling, chosen, rulings
from kgops.experiments.claims import TABLES, judge, shipped
from kgops.experiments.verdicts import noises
from storage import benches
from storage.benches import Bench
from storage.database import Connection


@dataclass(frozen=True)
class Overview:
    """Recommendations by benchmark, and a verdict on each claim; `missing` lists tables not yet measured."""

    advice: list[tuple[Bench, list[Advice]]]
    rulings: list[Ruling]
    missing: list[str]


def overview(conn: Connection, machine: str | None = None) -> Overview:
    """From measurements on `machine`, the key of a fingerprint; None: on the newest machine of each table."""
    newest = chosen(conn, machine)
    advised = []
    for bench in newest.values():
        baseline = bench.plan["variants"][0]["name"]
        noise = noises(benches.pairs(conn, bench.id), baseline)
        advised.append((bench, advice(judge(conn, bench, shipped()), baseline, noise)))
    return Overview(advised, rulings(conn, machine), [table for table in TABLES if table not in newest])


def as_tables(claims: Overview) -> dict[str, Any]:
    """The overview as JSON data."""
    return {
        "advice": [
            {
                "bench": bench.id,
                "table": bench.name,
                "part": one.category,
                "option": one.option,
                "measured": one.text,
            }
            for bench, each in claims.advice
            for one in each
        ],
        "claim": [_as_table(one) for one in claims.rulings],
    }


def _as_table(one: Ruling) -> dict[str, Any]:
    claim = one.claim
    return {
        "name": claim.name,
        "document": claim.title,
        "lines": claim.lines,
        "claim": claim.says,
        "condition": claim.condition,
        "kind": claim.kind,
        "low": claim.low,
        "high": claim.high,
        "unit": claim.unit,
        "range": claim.range,
        "contradicted_by": list(claim.against),
        "verdict": one.verdict,
        "by": one.basis,
        "found": one.found,
        "reason": one.why,
        "bench": one.bench,
        "fingerprint": one.machine,
    }
