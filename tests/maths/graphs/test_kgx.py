"""Graphs in KGX become triples, names and types; splits give no test triple away. From outside, by the command."""

import csv
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Console
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.errors import BadInput
from kgops.maths.graphs.splitting import Request, split

NODES = [
    ("D:1", "aspirin", "biolink:Drug|biolink:ChemicalEntity"),
    ("D:2", "", "biolink:Drug"),
    ("M:1", "asthma", "biolink:Disease"),
    ("G:1", "a gene", "biolink:Gene"),
    ("X:1", "alone", "biolink:Gene"),
]
EDGES: list[dict[str, Any]] = [
    {"subject": "D:1", "predicate": "biolink:treats", "object": "M:1", "knowledge_level": "prediction"},
    {"subject": "D:1", "predicate": "biolink:treats", "object": "M:1"},
    {
        "subject": "D:2",
        "predicate": "biolink:affects",
        "object": "G:1",
        "object_direction_qualifier": "decreased",
    },
    {"subject": "G:1", "predicate": "biolink:interacts_with", "object": "D:2"},
    {"subject": "D:2", "predicate": "biolink:interacts_with", "object": "G:1"},
    {"subject": "D:9", "predicate": "biolink:treats", "object": "M:1"},
]
NUMBERS = {"edges given again": 1, "edges to missing nodes": 1, "nodes without edges": 1}


def write(folder: Path, *, as_json: bool, zipped: bool) -> Path:
    folder.mkdir(parents=True)
    columns = list(dict.fromkeys(key for edge in EDGES for key in edge))
    keys = ("id", "name", "category")
    nodes = [dict(zip(keys, node, strict=True)) for node in NODES]
    for name, rows, names in (("nodes", nodes, keys), ("edges", EDGES, columns)):
        if as_json:
            for row in rows if name == "nodes" else []:
                row["category"] = row["category"].split("|")  # type: ignore[assignment]
            text = "".join(json.dumps(row) + "\n" for row in rows) + '{"cut\n'
        else:
            lines = ["\t".join(names), *("\t".join(str(row.get(key, "")) for key in names) for row in rows)]
            text = "\n".join([*lines, "cut", ""])
        path = folder / f"{name}.{'jsonl' if as_json else 'tsv'}{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return folder


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("kgx")
    made = Console(folder / "home", folder)
    yield made
    made.close()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
def test_tables_and_json_lines_become_the_same_triples(console: Console, as_json: bool, zipped: bool) -> None:
    name = f"{as_json}{zipped}"
    write(console.cwd / f"kgx{name}", as_json=as_json, zipped=zipped)
    done = console.must("data", "kgx", f"kgx{name}", "--make", f"out{name}", "--qualifiers", "--json")
    counts = done.json()["counts"]
    assert {**counts, **NUMBERS} == counts and (counts["edges"], counts["nodes"]) == (4, 4)
    out = console.cwd / f"out{name}"
    assert (out / "triples.txt").read_text().splitlines() == [
        "D:1\ttreats\tM:1",
        "D:2\taffects|decreased\tG:1",
        "G:1\tinteracts_with\tD:2",
        "D:2\tinteracts_with\tG:1",
    ]
    assert (out / "names.tsv").read_text().splitlines()[:2] == ["D:1\taspirin", "D:2\tD:2"]
    assert (out / "nodes.tsv").read_text().splitlines()[:2] == ["id\ttype", "D:1\tDrug|ChemicalEntity"]
    where = "edges.jsonl" if as_json else "edges.tsv"
    assert f"edges to missing nodes: {where}{'.gz' if zipped else ''}:{6 if as_json else 7}: D:9" in done.err


def test_edges_are_chosen_and_what_nobody_has_is_named(console: Console) -> None:
    write(console.cwd / "some", as_json=False, zipped=False)
    chosen = ("--category", "Drug", "--category", "biolink:Gene", "--symmetric", "interacts_with")
    done = console("data", "kgx", "some", "--make", "few", *chosen, "--json")
    assert done.json()["counts"]["edges"] == 2  # one affects, and one of both directions
    done = console("data", "kgx", "some", "--make", "level", "--knowledge-level", "prediction", "--json")
    assert done.json()["counts"]["edges"] == 1
    refused = console("data", "kgx", "some", "--make", "none", "--predicate", "treat")
    assert refused.code == 2 and "did you mean 'treats'?" in refused.err
    refused = console("data", "kgx", "some", "--make", "none", "--source", "infores:other")
    assert refused.code == 2
    assert "no edge is left: " in refused.err and "edges not asked for (5)" in refused.err
    assert "has no file of edges" in console("data", "kgx", "few", "--make", "again").err
    assert "is not empty" in console("data", "kgx", "some", "--make", "few").err


def test_what_was_split_trains_and_is_not_overwritten(console: Console) -> None:
    assert console("data", "drugs", "--make", "robokop", "--drugs", "60", "--diseases", "30").code == 0
    assert console("data", "kgx", "robokop", "--make", "graph").code == 0
    done = console("data", "split", "graph", "--relation", "treats")
    assert done.code == 0 and "train: " in done.out
    files = [f"--{part}=graph/{part}.txt" for part in ("train", "valid", "test")]
    names = ("--node-name-dict", "graph/names.tsv", "--node-types", "graph/nodes.tsv")
    assert console("train", *files, "--model", "complex", "--rank", "8", "--num-epochs", "2").code == 0
    asked = ("--tail", "disease 3", "--relation", "treats", "--candidate-type", "Drug")
    answered = console("predict", "--run", "last", *asked, *names, "--top-k", "3")
    assert answered.code == 0 and "drug " in answered.out
    (console.cwd / "trials.tsv").write_text(
        "drug 7\tdisease 3\tphase 3\nCHEBI:8\tMONDO:3\nCHEBI:9\tnobody\tlost\n"
    )
    each = ("--relation", "treats", "--each", "Disease", "--candidate-type", "Drug", "--top-k", "60")
    listed = console("predict", "--run", "last", *each, *names, "--mark", "trials.tsv", "--output", "all.csv")
    assert listed.code == 0 and "marks: 2 pairs; the graph lacks an entity of 1 more." in listed.err
    rows = list(csv.DictReader((console.cwd / "all.csv").read_text().splitlines()))
    assert len({row["tail_name"] for row in rows}) == 30 and len(rows) == 30 * 60
    marked = {(row["head_name"], row["tail_name"]): row["marked"] for row in rows if row["marked"]}
    assert marked == {("drug 7", "disease 3"): "phase 3", ("drug 8", "disease 3"): "listed"}
    drugs = ("--relation", "treats", "--each", "Drug", "--candidate-type", "Disease", "--best", "2000")
    assert console("predict", "--run", "last", *drugs, *names, "--output", "best.csv").code == 0
    best = list(csv.DictReader((console.cwd / "best.csv").read_text().splitlines()))
    assert {row["known"] for row in best} == {"new"} and 1000 < len(best) <= 60 * 30
    assert {row["head_name"].split()[0] for row in best} == {"drug"}
    refused = console("predict", "--run", "last", *each[:2], "--each", "Gene", *names)
    assert refused.code != 0 and "has no entity of type 'Gene' in any triple" in refused.err
    refused = console("predict", "--run", "last", *drugs[:2], "--each", "Disease", "--best", "9", *names)
    assert refused.code != 0 and "has no head of type 'Disease' in any triple" in refused.err
    again = console("data", "split", "graph")
    assert again.code == 2 and "--force" in again.err
    assert "have no dates" in console("data", "split", "graph", "--by", "date", "--force").err


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999),
    entities=st.integers(3, 30),
    many=st.integers(20, 200),
    by=st.sampled_from(["pair", "tail", "date"]),
    chosen=st.booleans(),
)
def test_no_split_gives_a_test_triple_away(
    tmp_path_factory: pytest.TempPathFactory, seed: int, entities: int, many: int, by: str, chosen: bool
) -> None:
    draw = random.Random(seed)
    folder = tmp_path_factory.mktemp("split")
    rows = {
        (f"e{draw.randrange(entities)}", f"r{draw.randrange(3)}", f"e{draw.randrange(entities)}")
        for _ in range(many)
    }
    dates = {row: str(draw.randrange(1990, 2020)) for row in sorted(rows)}
    lines = ["\t".join([*row, date]) + "\n" for row, date in dates.items()]
    (folder / "triples.txt").write_text("".join(lines))
    relations = ("r0",) if chosen and any(row[1] == "r0" for row in rows) else ()
    try:
        counts = split(folder, Request(by, relations, 0.2, 0.3, seed))["counts"]
    except BadInput as error:  # so few triples that a part is empty
        assert "are left to train" in str(error)
        return
    parts = {
        name: [tuple(line.split("\t")) for line in (folder / f"{name}.txt").read_text().splitlines()]
        for name in ("train", "valid", "test")
    }
    left_out = counts["left out, between pairs that are held out"]
    assert sum(map(len, parts.values())) + left_out == len(rows)
    assert set().union(*parts.values()) <= rows
    pairs = {name: {frozenset((h, t)) for h, _, t in part} for name, part in parts.items()}
    assert not pairs["train"] & (pairs["test"] | pairs["valid"]) and not pairs["test"] & pairs["valid"]
    held = [*parts["valid"], *parts["test"]]
    if relations:
        assert {r for _, r, _ in held} == {"r0"}
    if by == "tail":
        asked = [row for row in parts["train"] if not relations or row[1] in relations]
        known = {t for _, _, t in asked}
        # A pair joins the part of its other direction, whose tail was drawn.
        assert all(t not in known or any(h == other for _, _, other in held) for h, _, t in held)
    if by == "date" and not relations:
        oldest = {
            pair: min(dates[row] for row in rows if frozenset((row[0], row[2])) == pair)
            for pair in pairs["train"] | pairs["test"]
        }
        assert max(oldest[pair] for pair in pairs["train"]) <= min(oldest[pair] for pair in pairs["test"])


def test_a_relation_that_nothing_is_left_of_is_named(tmp_path: Path) -> None:
    lines = [f"a{n}\tcommon\tb{n}\n" for n in range(50)] + ["a\trare\tb\n"]
    (tmp_path / "triples.txt").write_text("".join(lines))
    found = split(tmp_path, Request(relations=("rare",), valid=0.0, test=0.5, by="pair"))
    assert found["cautions"][0].startswith("relation rare: no triple is left to train on, 1 are held out")
