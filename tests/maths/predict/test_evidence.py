"""A question about what nobody has says so: by types where they are given, else by the relations of entities."""

from __future__ import annotations

from pathlib import Path

import torch
from driving import Console
from small_graph import put_graph

from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.predict.evidence import Evidence
from kgops.maths.predict.known import KnownTriples
from kgops.maths.predict.names import NamedVocabulary

TRIPLES = (
    ("drug a", "treats", "disease a"),
    ("drug b", "treats", "disease b"),
    ("disease a", "affects", "organ"),
    ("disease b", "affects", "organ"),
    ("drug c", "binds", "gene"),
    ("drug a", "binds", "gene"),
)


def evidence_of(folder: Path) -> tuple[Graph, Evidence]:
    path = folder / "train.txt"
    path.write_text("".join("\t".join(one) + "\n" for one in TRIPLES))
    graph = read_graph(path)
    entities = NamedVocabulary("entity", graph.entities, {"organ": "an organ"})
    relations = NamedVocabulary("relation", graph.relations, {})
    return graph, Evidence(graph.train, KnownTriples(graph), entities, relations)


def test_without_types_the_relations_of_entities_say_who_is_alike(tmp_path: Path) -> None:
    graph, evidence = evidence_of(tmp_path)

    def missing(entity: str, relation: str) -> str | None:
        return evidence.missing(graph.entities.ids[entity], graph.relations.ids[relation], is_head=True)

    assert missing("drug a", "treats") is None  # it has the relation
    assert missing("drug c", "treats") is None  # it binds, as drug a does
    assert missing("organ", "treats") == (
        "no head of 'treats' has any relation in common with 'an organ'; `kgops run predict --best 20` with that "
        "relation lists what it does relate"
    )


def test_a_relation_without_triples_says_so(tmp_path: Path) -> None:
    graph, evidence = evidence_of(tmp_path)
    nothing = Evidence(graph.train[:0], KnownTriples(emptied(graph)), evidence.entities, evidence.relations)
    assert "no triple has the relation 'binds'" in str(
        nothing.missing(0, graph.relations.ids["binds"], is_head=True)
    )


def emptied(graph: Graph) -> Graph:
    none = torch.zeros((0, 3), dtype=torch.long)
    return Graph(none, none, none, graph.entities, graph.relations)


def test_predict_says_that_it_can_only_guess(run_cli: Console) -> None:
    put_graph(run_cli.cwd)
    train = run_cli.cwd / "train.txt"
    train.write_text(train.read_text() + "PLACE:1\tnear\tPLACE:2\nPLACE:2\tnear\tPLACE:1\n")
    small = (
        "--embedding-dim",
        "16",
        "--output-channels",
        "2",
        "--num-epochs",
        "2",
        "--checkpoint-frequency",
        "2",
    )
    assert run_cli("run", "train", "--train", "train.txt", *small, "--device", "cpu").code == 0
    asked = ("--head", "PLACE:1", "--relation", "treats", "--device", "cpu")
    assert run_cli("run", "predict", "--run", "1", *asked).code == 0
    shown = " ".join(run_cli("show", "2").out.split())
    assert "question 1: no head of 'treats' has any relation in common with 'PLACE:1'" in shown
    known = ("--head", "CHEBI:1", "--relation", "treats", "--device", "cpu")
    assert run_cli("run", "predict", "--run", "1", *known).code == 0
    assert "no head of" not in run_cli("show", "3").out
