"""What is said of an explanation: from the files of a run to one sentence, which claims no more than was trained."""

from pathlib import Path
from typing import Any

import pytest

from kgops.maths.explain.explanation_files import Explained, Fact, Named, NamedPath, write_csv, write_paths
from kgops.present.explained_run import verdict_of
from kgops.present.explanations import read_explanations

TRIPLE = Named("a", "A", "r", "R", "b", "B")
RANKS = {"rank_before": 1.0, "rank_after": 3.5}
TEN = {"others": [f"c{n}" for n in range(10)]}


def said(folder: Path, facts: int, **found: Any) -> str:
    own = [Fact(TRIPLE, 1.0, "")] * facts
    write_csv(
        folder / "explanations.csv",
        [Explained(1, TRIPLE, known="new", candidate_facts=50, facts=own, **found)],
    )
    ((one,), has_more) = read_explanations(folder, predictions=1)
    assert not has_more
    return verdict_of(one)


@pytest.mark.parametrize(
    ("facts", "found", "end"),
    [
        (3, {"lost": True, "smallest": True}, "the first 2 were not enough"),
        (2, {"lost": True, "smallest": True}, "the first alone was not enough"),
        (1, {"lost": True, "smallest": True}, ": rank 1 → 3.5"),
        (4, {"lost": False, "smallest": True}, "; enough when it was chosen, so one of both may be noise"),
        (4, {"lost": False, "smallest": False}, "no beginning of the list was enough"),
        (
            4,
            {"lost": True, "smallest": False},
            "; not enough when it was chosen, so one of both may be noise",
        ),
        (4, {"lost": True}, ": rank 1 → 3.5"),
    ],
)
def test_how_a_set_was_chosen_is_said_beside_what_verified_it(
    tmp_path: Path, facts: int, found: dict[str, Any], end: str
) -> None:
    text = said(tmp_path, facts, **RANKS, **found)
    assert text.endswith(end)
    assert text.startswith("lost without" if found["lost"] else "not lost without")
    assert "of 50 triples of head and tail: rank 1 → 3.5" in text


def test_a_sufficient_set_says_for_how_many_heads_the_tail_ranks_first(tmp_path: Path) -> None:
    assert said(tmp_path, 2, **TEN).startswith(
        "triples that lift the tail most for 10 other heads, of 50 triples"
    )
    carried = {"retrained": 6.5, "retrained_random": 0.0, "retrained_all": 0.0}
    text = said(tmp_path, 2, carried=carried, **TEN)
    assert text.startswith(
        "with these 2 added to 10 other heads: the tail ranks first for 6.5 of them, with random"
    )
    assert "triples of the head for 0" in text
    assert said(tmp_path, 0, **TEN) == "no triple of the head lifts the tail for 10 other heads"


def test_a_prediction_that_the_model_does_not_make_is_ranked_lower_not_lost(tmp_path: Path) -> None:
    ranks = {"rank_before": 5.0, "rank_after": 8.0}
    assert said(tmp_path, 1, lost=True, **ranks).startswith("ranked lower without this one of 50 ")
    assert said(tmp_path, 1, lost=False, **ranks).startswith("not ranked lower without this one of 50 ")


def test_who_reads_a_part_of_the_predictions_learns_that_there_are_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [Fact(TRIPLE, 1.0, "")] * 3
    file = tmp_path / "explanations.csv"
    write_csv(file, [Explained(n, TRIPLE, known="new", candidate_facts=50, facts=own) for n in (1, 2, 3)])
    for at_most, more in ((2, True), (3, False), (None, False)):
        found, has_more = read_explanations(tmp_path, predictions=at_most)
        assert (len(found), has_more) == (at_most or 3, more)
    monkeypatch.setattr("kgops.present.predictions.MOST_BYTES", file.stat().st_size - 10)
    found, has_more = read_explanations(tmp_path, predictions=200)
    assert [len(one.facts) for one in found] == [3, 3] and has_more


def test_paths_are_read_as_they_are_walked(tmp_path: Path) -> None:
    """Each triple may point either way; a path that does not support the prediction is no evidence."""
    there, back = Named("a", "A", "r", "R", "c", "C"), Named("b", "B", "s", "S", "c", "C")
    paths = [
        NamedPath(-0.25, [Fact(there, -0.5, ""), Fact(back, -0.25, "")]),
        NamedPath(0.125, [Fact(back, 0.125, "")]),
    ]
    explained = [Explained(1, TRIPLE, facts=[Fact(there, -0.5, "")], paths=paths)]
    write_csv(tmp_path / "explanations.csv", explained)
    ((before,), _) = read_explanations(tmp_path, predictions=None)
    assert not before.paths  # nobody looked for them
    write_paths(tmp_path / "paths.csv", explained)
    ((one,), _) = read_explanations(tmp_path, predictions=1)
    assert len(one.paths) == 2
    (path,) = one.evidence
    assert (str(path), path.effect) == ("A ─R→ C ←S─ B", -0.25)
    assert [*path.triples] == [("a", "r", "c"), ("b", "s", "c")]
