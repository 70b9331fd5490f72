"""TracIn's tables and summaries of the group's scripts become a run with influences."""

from __future__ import annotations

import csv
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from test_import_group import import_from, write

from kgops.interchange.import_scores import HEADER, MOST
from storage import influences, reports, runs

TREATS = ("CHEBI:34911", "predicate:28", "MONDO:0004525")
OTHER = ("CHEBI:7963", "predicate:28", "MONDO:0016595")
NAMES = {
    "CHEBI:34911": "Permethrin",
    "predicate:28": "biolink:treats",
    "predicate:29": "biolink:affects",
    "MONDO:0004525": 'scabies, "the itch"',
}


def write_scores(path: Path, test: tuple[str, ...], scores: list[float]) -> list[tuple[str, float]]:
    """As run_tracin.py does; the training triples are told apart by their heads."""
    rows = [(f"NCBIGene:{i}", score) for i, score in enumerate(scores)]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(HEADER)
        for head, score in rows:
            names = {**NAMES, head: f"gene {head[9:]}"}
            labels = (*test, head, "predicate:29", test[2])
            cells = [cell for label in labels for cell in (label, names.get(label, label))]
            out.writerow([*cells, repr(score)])
    return rows


def group_line(index: int, triple: tuple[str, ...], **told: Any) -> dict[str, Any]:
    return {"index": index, "triple": dict(zip(("head", "relation", "tail"), triple, strict=True)), **told}


def test_a_batch_of_the_groups_script_becomes_a_run_with_influences(
    conn: sqlite3.Connection, home: Path, tmp_path: Path
) -> None:
    generator = random.Random(7)
    scores = [generator.gauss(0, 1) for _ in range(400)]
    folder = write(
        tmp_path / "batch",
        batch_tracin_summary={
            "total_triples": 2,
            "successful": 1,
            "failed_tracin": 1,
            "elapsed_time_seconds": 3.5,
            "elapsed_time_formatted": "0h 0m 4s",
            "filter_method": "pyg",
            "results": [
                group_line(0, TREATS, filtering_success=True, tracin_success=True),
                group_line(4, OTHER, filtering_success=True, tracin_success=False),
            ],
        },
    )
    rows = write_scores(folder / "triple_000_CHEBI_34911_MONDO_0004525_tracin.csv", TREATS, scores)
    number = import_from(conn, home, folder).number
    run = runs.get(conn, number or 0)
    assert run is not None and number is not None
    assert (run.workload, run.state) == ("tracin", "succeeded")
    first, second = influences.tests_of(conn, number)
    assert (first.test, (first.head, first.relation, first.tail), first.trouble) == (0, TREATS, None)
    assert (second.test, second.trouble) == (4, "TracIn failed")
    found = influences.of_test(conn, number, 0)
    best = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])[:MOST]
    worst = sorted((row for row in rows if row[1] < 0), key=lambda row: row[1])[:MOST]
    assert [(i.head, i.score) for i in found if i.rank > 0] == best
    assert [(i.head, i.score) for i in sorted(found, key=lambda i: -i.rank) if i.rank < 0] == worst
    assert influences.names(conn, number)["MONDO:0004525"] == NAMES["MONDO:0004525"]
    assert reports.metrics(conn, number) == {
        "total_triples": 2,
        "successful": 1,
        "failed_tracin": 1,
        "elapsed_time_seconds": 3.5,
    }


@pytest.mark.parametrize("what", ["cut", "two"])
def test_scores_that_may_not_be_all_do_not_show_that_it_finished(
    conn: sqlite3.Connection, home: Path, tmp_path: Path, what: str
) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "tracin.csv"
    write_scores(path, TREATS, [1.0, -2.25])
    if what == "cut":
        path.write_bytes(path.read_bytes().rstrip()[:-1])  # a number that still is one
    else:
        write_scores(tmp_path / "out" / "other_tracin.csv", OTHER, [1.0])
    run = runs.get(conn, import_from(conn, home, tmp_path / "out").number or 0)
    assert run is not None and (run.state, run.reason) == (
        "interrupted",
        "its files do not show that it finished",
    )


def test_a_batch_in_which_all_failed_has_failed(conn: sqlite3.Connection, home: Path, tmp_path: Path) -> None:
    lines = [group_line(i, triple, filtering_success=False) for i, triple in enumerate((TREATS, OTHER))]
    one = import_from(conn, home, write(tmp_path / "out", batch_tracin_summary={"results": lines}))
    run = runs.get(conn, one.number or 0)
    assert run is not None and run.state == "failed"
    assert run.reason == "its summary says that all 2 test triples failed"
