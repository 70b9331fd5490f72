"""What runs found, as titled tables: commands print them, screens draw them, pages fold them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kgops.jobs.text import one_line
from kgops.present.formats import UNKNOWN, amount
from kgops.present.predictions import COLUMNS, NUMBERS, read_answers
from kgops.present.rows import Column, Line, Piece, Section, section

if TYPE_CHECKING:
    from kgops.present.explanations import ExplainedPrediction, Verification
    from kgops.present.influences import RunInfluences
    from storage.influences import TestTriple

_BAR = 10
_PAIRS = {"parallel": "same two", "inverse": "inverse"}
_RETRAINED = {
    "retrained_all": "with all triples",
    "retrained": "without these",
    "retrained_put_back": "one of them put back",
    "retrained_random": "without random ones",
}
_EFFECT = Column("EFFECT", 8, right=True)


def answers(results: Path, *, questions: int, most: int) -> tuple[list[tuple[str, Section]], bool]:
    """The first questions, each with its title and its best answers; and whether there are more of either."""
    found = read_answers(results, questions=questions + 1, answers=most + 1)
    columns = [Column(name, 10, right=name in NUMBERS) for name in COLUMNS]
    shown = [
        (
            f"question {one.number} · {' · '.join(map(one_line, one.text))}",
            section(columns, [answer.cells for answer in one.answers[:most]]),
        )
        for one in found[:questions]
    ]
    return shown, len(found) > questions or any(len(one.answers) > most for one in found)


def facts(one: ExplainedPrediction) -> Section:
    """The triples that explain it, with a bar of each effect."""
    largest = max((abs(fact.effect) for fact in one.facts if fact.effect is not None), default=0.0)
    about = (Column("about", 8),) if any(fact.pair for fact in one.facts) else ()
    lines = []
    for fact in one.facts:
        effect = fact.effect or 0.0
        bar = "━" * max(round(abs(effect) / largest * _BAR), 1) if effect else ""
        cells = (
            Piece(UNKNOWN if fact.effect is None else f"{effect:+.4g}", "strong"),
            Piece(bar, "data" if effect < 0 else "warn"),
            *(Piece(_PAIRS.get(fact.pair, ""), "dim") for _ in about),
            Piece(" · ".join(map(one_line, fact.triple))),
        )
        lines.append(Line(cells, is_marked=True))
    columns = (_EFFECT, Column("", _BAR), *about, Column("head · relation · tail", 30, grows=True))
    return Section(columns, tuple(lines))


def paths(one: ExplainedPrediction, most: int | None = None) -> Section:
    """Those that support it, each as strong as its weakest triple."""
    columns = (
        _EFFECT._replace(head="PATHS"),
        Column("from head to tail, by the effect of the weakest triple", 30, grows=True),
    )
    shown = ((Piece(f"{path.effect:+.4g}"), Piece(one_line(str(path)))) for path in one.evidence[:most])
    return Section(columns, tuple(Line(cells, is_marked=True) for cells in shown))


def retrained(verification: Verification | None, one: ExplainedPrediction) -> Section:
    """The mean ranks that --verify found."""
    ranks = verification.ranks.get(one.number, {}) if verification is not None else {}
    columns = (Column("RETRAINED", 26), Column("mean rank of this answer", 24, right=True))
    rows = [(name, Piece(amount(ranks[key]), "strong")) for key, name in _RETRAINED.items() if key in ranks]
    return section(columns, rows)


def title_of_test(influences: RunInfluences, test: TestTriple) -> str:
    scored = f", {test.candidates:,} training triples" if test.candidates is not None else ""
    return f"test {test.test} · {influences.words(test)}{scored}"


def test_triple(influences: RunInfluences, test: TestTriple, most: int) -> Section:
    """The strongest influences on it, so many of each sign; none where there was trouble."""
    columns = (
        Column("SCORE", 10, right=True),
        Column("head", 10),
        Column("relation", 10),
        Column("tail", 10),
    )
    found = () if test.trouble else influences.strongest(test, most)
    rows = (
        (f"{one.score:+.4g}", *map(influences.name_of, (one.head, one.relation, one.tail))) for one in found
    )
    return section(columns, rows)
