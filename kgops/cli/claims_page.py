"""Pages of `kgops bench claims`: the overview, a table, and one claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgops.experiments.advice import HEADS, Advice, by_category
from kgops.experiments.claim_register import DOCUMENTS, register, titles
from kgops.experiments.claim_verdicts import Ruling
from kgops.experiments.claims import TABLES, Judged, judge, less_memory, quality, shipped
from kgops.experiments.claims_overview import Overview
from kgops.experiments.fingerprint import machine_line
from kgops.experiments.summary import rows
from kgops.views.formats import UNKNOWN, amount, columns, fitted, padded, width_of, wrapped
from storage.benches import Bench
from storage.database import Connection

_VERDICTS = (
    "confirmed",
    "smaller",
    "larger",
    "no effect",
    "harmful",
    "refuted",
    "not measured yet",
    "not tested",
)
_BASIS = {
    "measured": "measured here",
    "arithmetic": "by arithmetic",
    "data sheet": "by data sheet",
    "package": "by what PyTorch states",
    "prediction": "by prediction",
    "documentation": "by documentation",
}


def advice_lines(summary: Overview, width: int) -> list[str]:
    """Return options that pay here, that do not, and that change results, with measured numbers."""
    out = ["WHAT TO DO", ""]
    for bench, each in summary.advice:
        out += [*wrapped(f"{bench.name.removeprefix('claims ')} (benchmark {bench.id})", width)]
        for category, options in by_category(each).items():
            if options:
                out += [f"  {HEADS[category]}"]
                out += [line for one in options for line in _option(one, width)]
        out.append("")
    if summary.missing:
        tables = ", ".join(f"{table} ({TABLES[table]})" for table in summary.missing)
        out += [
            *wrapped(f"Not measured yet: {tables}. To measure them: kgops bench claims --quick", width),
            "",
        ]
    return out


def _option(one: Advice, width: int) -> Iterator[str]:
    first, *more = wrapped(f"{one.option}: {one.text}", width - 4)
    yield f"    {first}"
    yield from (f"      {line}" for line in more)


def count_lines(rulings: Sequence[Ruling]) -> list[str]:
    """Return a table: number of claims per document and verdict."""
    names = titles()
    rows = {
        names[document]: [one for one in rulings if one.claim.document == document] for document in DOCUMENTS
    }
    name = max(map(width_of, names.values()))
    heads = [word for word in _VERDICTS if any(_short(one) == word for one in rulings)]
    out = ["  ".join([padded("DOCUMENT", name), "CLAIMS", *heads])]
    for title, each in [*rows.items(), ("all", list(rulings))]:
        many = {word: sum(_short(one) == word for one in each) for word in heads}
        cells = [padded(str(many[word] or "·"), len(word), right=True) for word in heads]
        out.append("  ".join([padded(title, name), f"{len(each):6,}", *cells]))
    return out


def list_lines(rulings: Sequence[Ruling], width: int) -> list[str]:
    """Return one line per claim: verdict, name, claim, and the measurement or why there is none."""
    out: list[str] = []
    word = max((len(_short(one)) for one in rulings), default=0)
    before = None
    for one in rulings:
        if one.claim.document != before:
            out += ["", one.claim.title.upper()] if out else [one.claim.title.upper()]
            before = one.claim.document
        by = f"{_BASIS[one.basis]}: " if one.found and one.basis != "measured" else ""
        text = f"{one.claim.says} — {by}{one.found or one.why}"
        line = f"  {padded(_short(one), word)}  {one.claim.name.removeprefix(f'{before}.')}: {text}"
        out.append(fitted(line, width))
    return out


def whole_lines(rulings: Sequence[Ruling], every: Sequence[Ruling], width: int) -> list[str]:
    """Return each claim in full, with the claims of `every` that contradict it."""
    verdicts = {one.claim.name: _short(one) for one in every}
    out: list[str] = []
    for one in rulings:
        claim = one.claim
        out += [*wrapped(f"{_short(one)} · {claim.name} · {claim.says}", width)]
        details = [
            f"claimed: {claim.range}; {claim.condition} ({claim.title}, line {claim.lines}, {claim.kind})"
        ]
        if one.basis != "none":
            bench = f", benchmark {one.bench}" if one.bench is not None else ""
            details.append(
                f"{_BASIS.get(one.basis, one.basis)}{bench}: {one.found}{f' ({one.why})' if one.why else ''}"
            )
        else:
            details.append(one.why)
        details += [f"but: {_other(name, verdicts)}" for name in claim.against]
        out += [line for each in details for line in wrapped(each, width, "    ")]
    return out


def _other(name: str, verdicts: dict[str, str]) -> str:
    claim = register()[name]
    return f"{claim.says} ({claim.title}, line {claim.lines}; {name}): {verdicts[name]}"


def _short(one: Ruling) -> str:
    return "not tested" if one.verdict == "cannot be tested here" else one.verdict


def matching(rulings: Sequence[Ruling], words: Sequence[str]) -> list[Ruling]:
    """Return the rulings whose name, document, verdict or claim contains every word."""
    return [one for one in rulings if all(word.lower() in _searched(one) for word in words)]


def _searched(one: Ruling) -> str:
    claim = one.claim
    parts = (
        claim.name,
        claim.title,
        claim.says,
        claim.kind,
        one.verdict,
        _short(one),
        _BASIS.get(one.basis, ""),
    )
    return " ".join(parts).lower()


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
