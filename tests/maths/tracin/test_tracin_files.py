"""The files of a TracIn run hold what was found, whatever the labels are made of, and take no memory for all of it."""

import csv
import json
import math
import tracemalloc
from pathlib import Path

import pytest
import torch

from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.tracin.finished_tests import FinishedTest
from kgops.maths.tracin.outputs import CSV_HEADER, csv_file, json_file
from kgops.maths.tracin.results import Table
from kgops.maths.tracin.test_triples import TestTriple
from kgops.workloads.graphs.text_sizes import NO_NAMES, Names

HOSTILE = (
    'quoted " and, comma',
    "line\nbreak",
    "back\\slash",
    "\u202eright to left",
    "half \udc80 a character",
)
NOTHING = torch.empty(0, 3, dtype=torch.long)


def table_of(train: torch.Tensor, entities: list[str], names: Names | None = None) -> Table:
    graph = Graph(train, NOTHING, NOTHING, Vocabulary.of(entities), Vocabulary.of(["is, or was"]))
    return Table(graph, names or NO_NAMES)


def found(
    number: int, rows: list[int], scores: list[float], trouble: str | None = None
) -> tuple[TestTriple, FinishedTest]:
    labels = HOSTILE[number], "is, or was", HOSTILE[1]
    test = TestTriple(number, labels, None if trouble else (number, 0, 1), trouble)
    return test, FinishedTest(
        number, torch.tensor(rows, dtype=torch.long), torch.tensor(scores), len(rows), trouble
    )


def test_json_and_csv_say_the_same_of_labels_that_would_break_a_line_and_of_scores_that_are_no_numbers(
    tmp_path: Path,
) -> None:
    train = torch.tensor([[0, 0, 1], [2, 0, 3], [4, 0, 0]])
    table = table_of(train, list(HOSTILE), Names({HOSTILE[2]: 'a "name"'}, {"is, or was": "IS"}))
    tests = [found(0, [2, 0], [0.5, -1e-30]), found(3, [1], [math.nan]), found(4, [], [], "it is not known")]
    with (
        csv_file(tmp_path / "a.csv", table) as to_csv,
        json_file(tmp_path / "a.json", table, {"loss": "target"}, of_many=True) as to_json,
    ):
        for test, part in tests:
            to_csv(test, part)
            to_json(test, part)
    text = (tmp_path / "a.json").read_text("utf-8", "surrogateescape")
    body = json.loads(text, parse_constant=pytest.fail)  # NaN is no JSON
    assert body["loss"] == "target"
    assert [len(one["influences"]) for one in body["results"]] == [2, 1, 0]
    assert [one["error"] for one in body["results"]] == [None, None, "it is not known"]
    first = body["results"][0]["influences"][0]
    assert (first["head"], first["tail"], first["score"]) == (HOSTILE[4], HOSTILE[0], 0.5)
    assert body["results"][1]["influences"][0]["head_label"] == 'a "name"'
    assert body["results"][1]["influences"][0]["score"] is None
    with (tmp_path / "a.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        header, *lines = csv.reader(file)
    assert tuple(header) == CSV_HEADER
    told = [
        [one[key] for key in ("head", "head_label", "relation", "relation_label", "tail", "tail_label")]
        for result in body["results"]
        for one in result["influences"]
    ]
    assert [line[6:12] for line in lines] == told
    assert [line[0] for line in lines] == [HOSTILE[0], HOSTILE[0], HOSTILE[3]]


def test_a_file_that_could_not_be_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    table = table_of(torch.tensor([[0, 0, 1]]), list(HOSTILE))
    with (
        pytest.raises(OSError, match="the disk is full"),
        json_file(tmp_path / "half.json", table, {}, of_many=True) as add,
    ):
        add(*found(0, [0], [1.0]))
        raise OSError("the disk is full")
    assert list(tmp_path.iterdir()) == []


def test_many_test_triples_take_the_memory_of_one(tmp_path: Path) -> None:
    train = torch.randint(0, 5, (2000, 3))
    train[:, 1] = 0
    table = table_of(train, list(HOSTILE))
    _, part = found(0, list(range(2000)), [0.25] * 2000)

    def peak(tests: int) -> int:
        tracemalloc.start()
        try:
            with (
                csv_file(tmp_path / "a.csv", table) as to_csv,
                json_file(tmp_path / "a.json", table, {}, of_many=True) as to_json,
            ):
                for _ in range(tests):
                    to_csv(found(0, [], [])[0], part)
                    to_json(found(0, [], [])[0], part)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(20) < 1.5 * peak(2)
