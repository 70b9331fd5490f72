"""People type labels, readable names or ids, in any case; what is unknown or ambiguous is told."""

from __future__ import annotations

import pytest

from kgops.errors import BadInput
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.predict.questions import NamedVocabulary


@pytest.fixture
def drugs() -> NamedVocabulary:
    names = {
        "CHEBI:8378": "Prednisolone",
        "CHEBI:8382": "Prednisone",
        "C:1": "Gold",
        "C:2": "gold",
        "C:3": "heart_failure",
    }
    return NamedVocabulary("entity", Vocabulary.of(["CHEBI:8378", "CHEBI:8382", "C:1", "C:2", "C:3"]), names)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("CHEBI:8378", 0),
        ("chebi:8382", 1),
        ("prednisolone", 0),
        ("PREDNISONE", 1),
        ("Gold", 2),
        ("gold", 3),
        ("Heart failure", 4),
        ("4", 4),
    ],
)
def test_a_label_a_name_and_an_id_are_found(drugs: NamedVocabulary, text: str, number: int) -> None:
    assert drugs.find(text) == number


def test_the_nearest_names_are_offered_as_they_are_written(drugs: NamedVocabulary) -> None:
    with pytest.raises(BadInput, match="no entity is named 'Prednisolon': did you mean 'Prednisolone' or"):
        drugs.find("Prednisolon")
    with pytest.raises(BadInput, match=r"no entity is named 'xyzzy'\.$"):
        drugs.find("xyzzy")


def test_a_name_of_several_lists_their_labels(drugs: NamedVocabulary) -> None:
    with pytest.raises(BadInput, match="2 entities are named 'GOLD': 'C:1', 'C:2'"):
        drugs.find("GOLD")


def test_numbers_that_are_labels_are_no_ids() -> None:
    numbered = NamedVocabulary("entity", Vocabulary.of(["10", "20"]), {})
    assert numbered.find("20") == 1
    with pytest.raises(BadInput) as refused:
        numbered.find("1")
    assert refused.value.hint == "the graph has 2 entities; names are label or readable name."
