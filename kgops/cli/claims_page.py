"""A table of claims as people read it on a terminal: a verdict on each, and below it what was claimed and measured."""

from __future__ import annotations

from collections.abc import Iterator

from kgops.cli.output import UNKNOWN, amount, columns, padded, width_of, wrapped
from kgops.experiments.claims import Judged, judge, less_memory, quality, shipped
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import rows
from storage.benches import Bench
from storage.database import Connection

__all__ = ["page", "verdicts"]


def page(conn: Connection, bench: Bench) -> list[str]:
    first, width = rows(conn, bench)[0], columns()
    beside = f"beside {first.variant}"
    if first.seconds and first.memory_mib:
        beside += f": {amount(first.seconds.median)} s, {amount(first.memory_mib.median)} MiB"
    return [
        *wrapped(f"benchmark {bench.id} · {bench.name}, {beside}", width),
        *wrapped(machine_line(conn, bench.fingerprint), width, "  "),
        *wrapped(f"time: {first.seconds_of or UNKNOWN}", width, "  "),
        *wrapped(f"memory: {first.memory_of or UNKNOWN}", width, "  "),
        "",
        *verdicts(conn, bench),
    ]


def verdicts(conn: Connection, bench: Bench) -> list[str]:
    """Nothing where it is no benchmark of claims."""
    judged = judge(conn, bench, shipped()) if bench.name.startswith("claims ") else []
    if not judged:
        return []
    option = max(len("OPTION"), *(width_of(one.variant) for one in judged))
    word = max(len("VERDICT"), *(len(one.verdict) for one in judged))
    out = [f"{'OPTION':<{option}}  {'VERDICT':<{word}}  MEASURED HERE"]
    before: Judged | None = None
    for one in judged:
        if before is not None and one.variant != before.variant:
            before = None
        measured = f"{one.measured}, n {one.n}" if one.n else UNKNOWN
        out.append(f"{padded('' if before else one.variant, option)}  {one.verdict:<{word}}  {measured}")
        for line in _about(one, before):
            out += wrapped(line, columns(), "    ")
        before = one
    return out


def _about(one: Judged, before: Judged | None) -> Iterator[str]:
    """What was claimed and what was measured; after another claim on the same option, the latter once."""
    if one.claimed:
        yield f"claimed: {one.claimed.claim.text} ({one.claimed.claim.said_by})"
    told = []
    if before is None and one.speed:
        told = [f"speed {one.speed.median:,.2f}×", f"less memory {less_memory(one) or UNKNOWN}"]
    if before is None and quality(one):
        told.append(quality(one))
    if before is None and one.remark:
        told.append(one.remark)
    if one.why and (before is None or before.why != one.why):
        told.append(one.why)
    if told:
        yield " · ".join(told)
