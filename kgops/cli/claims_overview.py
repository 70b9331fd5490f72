"""All claims as people read them: first what to do, then how many hold, then each with its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgops.cli.output import fitted, padded, width_of, wrapped
from kgops.experiments.advice import HEADS, Advice, by_category
from kgops.experiments.claim_register import DOCUMENTS, register, titles
from kgops.experiments.claim_verdicts import Ruling
from kgops.experiments.claims import TABLES
from kgops.experiments.claims_overview import Overview

__all__ = ["advice_lines", "count_lines", "list_lines", "picked", "whole_lines"]

_WORDS = ("confirmed", "smaller", "larger", "no effect", "harmful", "refuted", "not yet", "not tested")
_BY = {
    "measured": "measured here",
    "arithmetic": "by arithmetic",
    "data sheet": "by data sheet",
    "package": "by what PyTorch states",
    "prediction": "by prediction",
    "documentation": "by documentation",
}


def advice_lines(found: Overview, width: int) -> list[str]:
    """What pays here, what does not, what changes results; each with its measured numbers."""
    out = ["WHAT TO DO", ""]
    for bench, each in found.advice:
        out += [*wrapped(f"{bench.name.removeprefix('claims ')} (benchmark {bench.id})", width)]
        for category, options in by_category(each).items():
            if options:
                out += [f"  {HEADS[category]}"]
                out += [line for one in options for line in _option(one, width)]
        out.append("")
    if found.missing:
        told = ", ".join(f"{table} ({TABLES[table]})" for table in found.missing)
        out += [*wrapped(f"Not measured yet: {told}. To measure: kgops bench claims --quick", width), ""]
    return out


def _option(one: Advice, width: int) -> Iterator[str]:
    first, *more = wrapped(f"{one.option}: {one.text}", width - 4)
    yield f"    {first}"
    yield from (f"      {line}" for line in more)


def count_lines(found: Sequence[Ruling]) -> list[str]:
    """How many claims of each document came to which verdict."""
    names = titles()
    rows = {
        names[document]: [one for one in found if one.claim.document == document] for document in DOCUMENTS
    }
    name = max(map(width_of, names.values()))
    heads = [word for word in _WORDS if any(_short(one) == word for one in found)]
    out = ["  ".join([padded("DOCUMENT", name), "CLAIMS", *heads])]
    for title, each in [*rows.items(), ("all", list(found))]:
        many = {word: sum(_short(one) == word for one in each) for word in heads}
        cells = [padded(str(many[word] or "·"), len(word), right=True) for word in heads]
        out.append("  ".join([padded(title, name), f"{len(each):6,}", *cells]))
    return out


def list_lines(found: Sequence[Ruling], width: int) -> list[str]:
    """A line for each claim: verdict, name, what was claimed, and what was found or why not."""
    out: list[str] = []
    word = max((len(_short(one)) for one in found), default=0)
    before = None
    for one in found:
        if one.claim.document != before:
            out += ["", one.claim.title.upper()] if out else [one.claim.title.upper()]
            before = one.claim.document
        by = f"{_BY[one.basis]}: " if one.found and one.basis != "measured" else ""
        told = f"{one.claim.says} — {by}{one.found or one.why}"
        line = f"  {padded(_short(one), word)}  {one.claim.name.removeprefix(f'{before}.')}: {told}"
        out.append(fitted(line, width))
    return out


def whole_lines(found: Sequence[Ruling], every: Sequence[Ruling], width: int) -> list[str]:
    """Everything of each claim, with those of `every` that contradict it beside it."""
    verdicts = {one.claim.name: _short(one) for one in every}
    out: list[str] = []
    for one in found:
        claim = one.claim
        out += [*wrapped(f"{_short(one)} · {claim.name} · {claim.says}", width)]
        told = [
            f"claimed: {claim.range}; {claim.condition} ({claim.title}, line {claim.lines}, {claim.kind})"
        ]
        if one.basis not in ("none", "pending"):
            bench = f", benchmark {one.bench}" if one.bench is not None else ""
            told.append(
                f"{_BY.get(one.basis, one.basis)}{bench}: {one.found}{f' ({one.why})' if one.why else ''}"
            )
        else:
            told.append(one.why)
        told += [f"but: {_other(name, verdicts)}" for name in claim.against]
        out += [line for each in told for line in wrapped(each, width, "    ")]
    return out


def _other(name: str, verdicts: dict[str, str]) -> str:
    claim = register()[name]
    return f"{claim.says} ({claim.title}, line {claim.lines}; {name}): {verdicts[name]}"


def _short(one: Ruling) -> str:
    if one.basis == "pending":
        return "not yet"
    return "not tested" if one.verdict == "cannot be tested here" else one.verdict


def picked(found: Sequence[Ruling], words: Sequence[str]) -> list[Ruling]:
    """Those that have every word in their name, document, verdict or claim."""
    return [one for one in found if all(word.lower() in _searched(one) for word in words)]


def _searched(one: Ruling) -> str:
    claim = one.claim
    parts = (
        claim.name,
        claim.title,
        claim.says,
        claim.kind,
        one.verdict,
        _short(one),
        _BY.get(one.basis, ""),
    )
    return " ".join(parts).lower()
