"""The influences section of the HTML report: the strongest proponents and opponents of each test triple."""

from __future__ import annotations

import html

from kgops.jobs.text import one_line
from kgops.views.influences import RunInfluences
from storage.influences import Influence, TestTriple

__all__ = ["traces"]

_MOST_TESTS = 20
_MOST_EACH = 5  # proponents, and as many opponents


def traces(influences: RunInfluences) -> str:
    """HTML of the test triples; empty where there are none."""
    shown = [_test(influences, test) for test in influences.tests[:_MOST_TESTS]]
    left = len(influences.tests) - len(shown)
    more = f'<p class="dim">and {left:,} more: kgops influences {influences.run.id}</p>' if left > 0 else ""
    return "\n".join([*shown, more]) if shown else ""


def _test(influences: RunInfluences, test: TestTriple) -> str:
    candidates = f", {test.candidates:,} training triples compared" if test.candidates is not None else ""
    head = f"test {test.test} · {_triple(influences, test.head, test.relation, test.tail)}{candidates}"
    if test.trouble is not None:
        return f"<p>{_text(head)}: <strong>{_text(test.trouble)}</strong></p>"
    rows = "".join(_row(influences, one) for one in _strongest(influences.by_test.get(test.test, ())))
    heads = '<th class="n">score</th><th>head</th><th>relation</th><th>tail</th>'
    return f"<p>{_text(head)}</p>\n<table><tr>{heads}</tr>{rows}</table>" if rows else f"<p>{_text(head)}</p>"


def _strongest(influences: tuple[Influence, ...]) -> list[Influence]:
    return [one for one in influences if abs(one.rank) <= _MOST_EACH]


def _row(influences: RunInfluences, one: Influence) -> str:
    cells = "".join(
        f"<td>{_text(influences.name_of(label))}</td>" for label in (one.head, one.relation, one.tail)
    )
    return f'<tr><td class="n">{one.score:+.4g}</td>{cells}</tr>'


def _triple(influences: RunInfluences, *labels: str) -> str:
    return " · ".join(influences.name_of(label) for label in labels)


def _text(text: str) -> str:
    return html.escape(one_line(text))
