"""Print the explanations of an explain run, as its end and `kgops show` do."""

from __future__ import annotations

from pathlib import Path

from kgops.jobs.text import one_line
from kgops.views.explanations import ExplainedPrediction, read_explanations
from kgops.views.formats import amount, table

__all__ = ["summary"]

_PREDICTIONS = 5
_HEADS = ("WITHOUT", "EFFECT ALONE", "HEAD", "RELATION", "TAIL")
_PAIRS = {"parallel": "same two entities", "inverse": "same two entities, turned round"}


def summary(results: Path) -> list[str]:
    """Return the first explanations, and where all of them are; nothing without explanations."""
    found = read_explanations(results, predictions=_PREDICTIONS + 1)
    lines = [line for one in found[:_PREDICTIONS] for line in _page(one)]
    return [
        *lines,
        *([f"all explanations: {results / 'explanations.csv'}"] if len(found) > _PREDICTIONS else []),
    ]


def _page(one: ExplainedPrediction) -> list[str]:
    title = f"prediction {one_line(one.number)} · {' · '.join(map(one_line, one.triple))}"
    if one.trouble:
        return [title, f"  not explained: {one_line(one.trouble)}"]
    if not one.facts:
        return [title, "  no training triple of the head lowers it, by the estimate"]
    rows = [
        (str(n), _signed(fact.effect), *map(one_line, fact.triple), _PAIRS.get(fact.pair, ""))
        for n, fact in enumerate(one.facts, 1)
    ]
    n = one.numbers
    verdict = "lost" if one.lost else "not lost"
    estimate = (
        f"without {'it' if len(one.facts) == 1 else f'these {len(one.facts)}'}, by the estimate: {verdict}; rank "
        f"{amount(n['rank_before'])} → {amount(n['rank_after'])}, score {_signed(n['score_before'])} → "
        f"{_signed(n['score_after'])}, of {amount(n['head_facts'])} triples of the head"
    )
    lines = table((*_HEADS, "ABOUT"), rows, right=frozenset({"WITHOUT", "EFFECT ALONE"}))
    return [title, *(f"  {line}" for line in lines), f"  {estimate}"]


def _signed(number: float | None) -> str:
    return "n/a" if number is None else f"{number:+.4g}"
