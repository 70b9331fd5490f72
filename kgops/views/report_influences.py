"""Influences of a report: the strongest training triples of each test triple."""

from __future__ import annotations

from kgops.jobs.text import one_line
from kgops.views.html_page import table, text
from kgops.views.influences import RunInfluences
from storage.influences import Influence, TestTriple

__all__ = ["traces"]

_MOST_TESTS = 20
_MOST_EACH = 5  # proponents, and as many opponents


def traces(influences: RunInfluences, start: int, stop: int) -> str:
    """HTML of the test triples from `start` to `stop`; empty where there are none."""
    stop = min(stop, _MOST_TESTS)
    shown = [_test(influences, test) for test in influences.tests[start:stop]]
    left = len(influences.tests) - _MOST_TESTS if stop == _MOST_TESTS else 0
    more = f'<p class="dim">and {left:,} more: kgops influences {influences.run.id}</p>' if left > 0 else ""
    return "\n".join([*shown, more]) if shown else ""


def _test(influences: RunInfluences, test: TestTriple) -> str:
    candidates = f", {test.candidates:,} training triples compared" if test.candidates is not None else ""
    head = f"test {test.test} · {_triple(influences, test.head, test.relation, test.tail)}{candidates}"
    if test.trouble is not None:
        return f"<p>{_text(head)}: <strong>{_text(test.trouble)}</strong></p>"
    rows = [_row(influences, one) for one in _strongest(influences.by_test.get(test.test, ()))]
    return f"<p>{_text(head)}</p>\n{table(('score', 'head', 'relation', 'tail'), rows, right=(0,))}"


def _strongest(influences: tuple[Influence, ...]) -> list[Influence]:
    return [one for one in influences if abs(one.rank) <= _MOST_EACH]


def _row(influences: RunInfluences, one: Influence) -> tuple[str, ...]:
    labels = (one.head, one.relation, one.tail)
    return (f"{one.score:+.4g}", *(one_line(influences.name_of(label)) for label in labels))


def _triple(influences: RunInfluences, *labels: str) -> str:
    return " · ".join(influences.name_of(label) for label in labels)


def _text(value: str) -> str:
    return text(one_line(value))
