"""Database rows of test triples and influences, from a TracIn summary and its score files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kgops.interchange.import_scores import Scores, Triple

__all__ = ["traces", "trouble_of"]

_PARTS = ("head", "relation", "tail")
_NO_SCORES = "the folder has no scores of it"
Row = dict[str, Any]


def traces(listed: Sequence[Mapping[str, Any]], scores: Scores) -> tuple[list[Row], list[Row]]:
    """Rows of `test_triple` and of `influence`, numbered as in the summary; unlisted test triples come last."""
    summary = dict(_triples(listed))
    traced: list[Row] = []
    influence: list[Row] = []
    for triple, number in _numbers(summary, scores).items():
        line, scored = summary.get(triple, {}), scores.tests.get(triple)
        candidates = line.get("num_training_triples")
        row = {"test": number, **dict(zip(_PARTS, triple, strict=True))}
        trouble = trouble_of(line) or (None if scored else _NO_SCORES)
        traced.append(
            {**row, "candidates": candidates if _is_count(candidates) else None, "trouble": trouble}
        )
        for rank, trained, score in scored.ranked() if scored else ():
            parts = dict(zip(_PARTS, trained, strict=True))
            influence.append({"test": number, "rank": rank, **parts, "score": score})
    return traced, influence


def trouble_of(line: Mapping[str, Any]) -> str | None:
    """Why a test triple has no scores: the summary's message, or a default one."""
    if isinstance(line.get("error"), str):
        return str(line["error"])
    for name, what in (("filtering_success", "filtering failed"), ("tracin_success", "TracIn failed")):
        if line.get(name) is False:
            return what
    return "it failed" if line.get("success") is False else None


def _triples(listed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Triple, Mapping[str, Any]]]:
    for line in listed:
        parts = line["triple"] if isinstance(line.get("triple"), dict) else line
        head, relation, tail = (parts.get(part) for part in _PARTS)
        if isinstance(head, str) and isinstance(relation, str) and isinstance(tail, str):
            yield (head, relation, tail), line


def _numbers(summary: Mapping[Triple, Mapping[str, Any]], scores: Scores) -> dict[Triple, int]:
    """The summary's numbers; counted from 1 where they are missing or repeated."""
    given = [line.get("index") for line in summary.values()]
    valid = all(map(_is_count, given)) and len(set(given)) == len(given)
    numbers = dict(
        zip(summary, [int(n or 0) for n in given] if valid else range(1, len(given) + 1), strict=True)
    )
    following = max(numbers.values(), default=0) + 1
    unlisted = [triple for triple in scores.tests if triple not in numbers]
    return numbers | {triple: following + i for i, triple in enumerate(unlisted)}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
