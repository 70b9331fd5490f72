"""Names as people type them, questions about what nobody has, and files of answers in bounded memory."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Console
from small_graph import put_graph

from kgops.errors import BadInput
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.predict.answer_files import Answer, must_have_parquet, write_csv, write_json, write_parquet
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
    return NamedVocabulary("entity", Vocabulary.of(names), names)


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


def test_predict_says_that_it_can_only_guess(run_cli: Console) -> None:
    put_graph(run_cli.cwd)
    train = run_cli.cwd / "train.txt"
    train.write_text(train.read_text() + "PLACE:1\tnear\tPLACE:2\nPLACE:2\tnear\tPLACE:1\n")
    small = "--embedding-dim 16 --output-channels 2 --num-epochs 2 --checkpoint-frequency 2 --device cpu"
    assert run_cli("run", "train", "--train", "train.txt", *small.split()).code == 0
    (run_cli.cwd / "asked.tsv").write_text("PLACE:1\ttreats\t?\nCHEBI:1\ttreats\t?\n")
    assert run_cli("run", "predict", "--run", "1", "--queries", "asked.tsv", "--device", "cpu").code == 0
    shown = " ".join(run_cli("show", "2").out.split())
    assert "question 1: no head of 'treats' has any relation in common with 'PLACE:1'" in shown
    assert shown.count("no head of") == 1


ABOUT = {"model": 'a "b"\n\\.pt', "probability": None, "entities": 3}


def answer(question: int, place: int, asked: str = "tail") -> Answer:
    named = ("ü", 'Ü "x"\n  y', "r", "is of", "b", "B\u2028")
    return Answer(question, asked, place + 1.5, *named, -0.1 * place, None if place % 2 else 0.25, "new")


def as_one_object(questions: list[dict[str, Any]], answers: dict[int, list[Answer]]) -> str:
    def plain(one: Answer) -> dict[str, Any]:
        named = {"entity": one.tail, "name": one.tail_name}
        if one.asked == "pair":
            named = {name: getattr(one, name) for name in ("head", "head_name", "tail", "tail_name")}
        rest = {"score": one.score, "probability": one.probability, "known": one.known, "marked": ""}
        return {"rank": one.rank, **named, **rest}

    whole = [{**asked, "answers": [*map(plain, answers.get(asked["question"], []))]} for asked in questions]
    return json.dumps({**ABOUT, "questions": whole}, ensure_ascii=False, indent=1) + "\n"


@pytest.mark.parametrize("asked", ["tail", "pair"])
@pytest.mark.parametrize("sizes", [[3], [0], [2, 0, 1], []])
def test_json_is_what_one_object_would_be(tmp_path: Path, asked: str, sizes: list[int]) -> None:
    questions = [{"question": n, "asked": asked, "head": "ü\n", "tail": None} for n, _ in enumerate(sizes, 1)]
    answers = {n: [answer(n, place, asked) for place in range(size)] for n, size in enumerate(sizes, 1)}
    write_json(tmp_path / "a.json", ABOUT, questions, lambda n: answers[n])
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == as_one_object(questions, answers)


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_memory_of_writing_does_not_grow_with_the_answers(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        must_have_parquet()

    def peak(many: int) -> int:
        def rows() -> Iterator[Answer]:
            return (answer(1, place) for place in range(many))

        tracemalloc.start()
        try:
            if kind == "json":
                write_json(tmp_path / "a", ABOUT, [{"question": 1}], lambda _: rows())
            else:
                {"csv": write_csv, "parquet": write_parquet}[kind](tmp_path / "a", rows())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # imports
    few = 1 << 14 if kind == "parquet" else 3000
    grown = peak(4 * few) - peak(2 * few)
    assert grown < 50 * 2 * few  # bytes of an answer; as an object it took 700
