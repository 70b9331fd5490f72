"""Files of answers: the same text as from one object, made in memory that does not grow with the answers."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kgops.maths.predict.answer_files import Answer, must_have_parquet, write_csv, write_json, write_parquet

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
