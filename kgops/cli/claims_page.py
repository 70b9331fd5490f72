"""Format the claims of one benchmark: a verdict on each, with the claimed and the measured numbers."""

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
    beside = f"compared with {first.variant}"
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
    """Return the table of verdicts; empty if `bench` measured no claims."""
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
    """Yield the claim and its measurements; measurements that `before` showed are left out."""
    if one.claimed:
        yield f"claimed: {one.claimed.claim.text} ({one.claimed.claim.said_by})"
    measured = []
    if before is None and one.speed:
        measured = [f"speed {one.speed.median:,.2f}×", f"less memory {less_memory(one) or UNKNOWN}"]
    if before is None and quality(one):
        measured.append(quality(one))
    if before is None and one.remark:
        measured.append(one.remark)
    if one.why and (before is None or before.why != one.why):
        measured.append(one.why)
    if measured:
        yield " · ".join(measured)
