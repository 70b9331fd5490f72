"""The claims in BENCHMARKS.md: what to do by them, rows of their tables, and all of them with their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgops.experiments.advice import HEADS, by_category
from kgops.experiments.claim_register import register
from kgops.experiments.claims import TABLES, Judged, less_memory, quality
from kgops.experiments.claims_overview import overview
from kgops.experiments.verdicts import shown
from storage.database import Connection

__all__ = ["NOTHING", "all_claims", "cell", "claim_row", "is_of_now", "what_to_do"]

NOTHING = "Not measured yet."
_TO_DO = "### What to do"


def what_to_do(conn: Connection, kept: Mapping[str, list[str]]) -> list[str]:
    """Recommendations of each table: from this home's newest measurements, or else from the old document."""
    blocks = _old_advice(kept)
    for bench, each in overview(conn).advice:
        title = cell(bench.name.removeprefix("claims "))
        lines = blocks[title[0]] = [f"{title}:", ""]
        for category, options in by_category(each).items():
            if options:
                lines += [
                    f"- **{HEADS[category]}.**",
                    *(f"  - {cell(one.option)}: {cell(one.text)}" for one in options),
                ]
        lines.append("")
    found = [line for table in TABLES for line in blocks.get(table, [])]
    return [_TO_DO, "", *(found or [NOTHING, ""])]


def _old_advice(kept: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """By table, where that stays below and the headings are those of now: under another, an option may stand where
    it does not belong."""
    blocks: dict[str, list[str]] = {}
    for line in kept.get(_TO_DO, []):
        if line.endswith(":") and line[:1] in TABLES:
            blocks[line[0]] = []
        if blocks:
            blocks[[*blocks][-1]].append(line)
    heads = {f"- **{head}.**" for head in HEADS.values()}
    return {
        table: block
        for table, block in blocks.items()
        if {line for line in block if line.startswith("- ")} <= heads
        and is_of_now(table, kept.get(f"### {block[0][:-1]}"))
    }


def is_of_now(table: str, lines: Sequence[str] | None) -> bool:
    """Whether each claim in an old table is one that the register has for this option, of this document."""
    known = {
        (one.variant, cell(one.claim.text), cell(one.claim.said_by))
        for one in register().values()
        if one.table == table
    }
    if lines is None:
        return False
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][1:]
    return all(not claim.strip() or (option[2:], claim, by) in known for option, claim, by, *_ in rows)


def all_claims(conn: Connection, kept: Mapping[str, list[str]]) -> list[str]:
    """Table of all claims with verdict or reason; those not measured in this home are as the old document has them."""
    heading = f"### All {len(register())} claims"
    old = {
        tuple(before[:3]): line
        for line in kept.get(heading, [])
        if line.startswith("| `") and len(before := line[2:-2].split(" | ")) > 4 and before[4] == "measured"
    }
    out = [
        heading,
        "",
        "| claim | what | range and condition | verdict | by | value or reason | contradicted by |",
    ]
    out.append("|---|---|---|---|---|---|---|")
    for one in overview(conn).rulings:
        claim = one.claim
        cells = (
            *(f"`{claim.name}`", f"{claim.says} ({claim.title}, line {claim.lines})"),
            *(
                f"{claim.range}; {claim.condition}",
                f"**{one.verdict}**",
                "" if one.basis == "none" else one.basis,
            ),
            *("; ".join(filter(None, (one.found, one.why))), ", ".join(claim.against)),
        )
        line = "| " + " | ".join(map(cell, cells)) + " |"
        keeps = one.verdict == "not measured yet" and one.bench is None
        out.append(old.get(tuple(map(cell, cells[:3])), line) if keeps else line)
    return [*out, ""]


def claim_row(one: Judged) -> str:
    cells = [
        one.variant,
        one.claimed.claim.text if one.claimed else "",
        one.claimed.claim.said_by if one.claimed else "",
        one.measured or "n/a",
        str(one.n),
        f"{one.speed.median:,.2f}×" if one.speed else "n/a",
        less_memory(one) or "n/a",
        quality(one),
        shown(f"**{one.verdict}**", "; ".join(filter(None, (one.why, one.remark)))),
    ]
    return "| " + " | ".join(map(cell, cells)) + " |"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
