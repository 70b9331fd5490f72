"""Print the explanations of an explain run, as its end and `kgops show` do."""

from __future__ import annotations

from pathlib import Path

from kgops.jobs.text import one_line
from kgops.present.explained_run import title_of, verdict_of
from kgops.present.explanations import ExplainedPrediction, read_explanations, read_verification
from kgops.present.formats import table

_PREDICTIONS = 5
_HEADS = ("EFFECT ALONE", "HEAD", "RELATION", "TAIL", "ABOUT")
_PAIRS = {"parallel": "same two entities", "inverse": "same two entities, turned round"}


def summary(results: Path) -> list[str]:
    """Return the first explanations, where all of them are, and what training again found; nothing without them."""
    found, has_more = read_explanations(results, predictions=_PREDICTIONS)
    lines = [line for one in found for line in _page(one)]
    verified = read_verification(results) if found else None
    return [
        *lines,
        *([one_line(verified.sentence)] if verified is not None else []),
        *([f"all explanations: {results / 'explanations.csv'}"] if has_more else []),
    ]


def _page(one: ExplainedPrediction) -> list[str]:
    rows = [
        (
            str(n),
            "n/a" if fact.effect is None else f"{fact.effect:+.4g}",
            *map(one_line, fact.triple),
            _PAIRS.get(fact.pair, ""),
        )
        for n, fact in enumerate(one.facts, 1)
    ]
    number = "WITH" if one.is_sufficient else "WITHOUT"
    lines = table((number, *_HEADS), rows, right=frozenset({number, "EFFECT ALONE"})) if rows else []
    return [title_of(one), *(f"  {line}" for line in lines), f"  {verdict_of(one)}"]
