"""All pairs of a relation: ranks, AUROC and recall are those of a plain count, with ties, blocks and left-out pairs."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from driving import Console

from kgops.maths.evaluate.matrix import (
    Matrix,
    Ranked,
    matrix_of,
    of_chance,
    of_frequency,
    ranked,
    table_of,
)
from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.predict.questions import NodeTypes


def some_matrix(seed: int) -> tuple[Matrix, torch.Tensor]:
    """A third of its scores occur twice or more."""
    draw = random.Random(seed)
    heads, tails = draw.randrange(2, 12), draw.randrange(2, 9)
    pairs = [(h, t) for h in range(heads) for t in range(tails)]
    draw.shuffle(pairs)
    many = max(1, len(pairs) // 5)
    tested, known = pairs[:many], pairs[many : len(pairs) // 2]
    scores = torch.tensor(
        [[draw.choice((draw.random(), 0.25, 0.5)) for _ in range(heads)] for _ in range(tails)]
    )
    shape = torch.tensor(tested).reshape(-1, 2), torch.tensor(known).reshape(-1, 2)
    return Matrix(0, torch.arange(heads), torch.arange(tails), *shape), scores


@pytest.mark.parametrize("seed", range(30))
def test_ranks_are_those_of_a_plain_count(seed: int) -> None:
    matrix, scores = some_matrix(seed)
    found = ranked(matrix, lambda heads: scores[:, heads].clone(), at_once=1 + seed % 4)
    assert found is not None
    tested, known = ({(h, t) for h, t in pairs.tolist()} for pairs in (matrix.tested, matrix.left_out))
    every = {(h, t): float(scores[t, h]) for h in range(scores.shape[1]) for t in range(scores.shape[0])}
    negatives = {pair: score for pair, score in every.items() if pair not in tested | known}
    assert matrix.negatives == len(negatives)
    for at, (h, t) in enumerate(matrix.tested.tolist()):
        own = every[h, t]
        others = {pair: every[pair] for pair in [*negatives, *tested] if pair != (h, t)}
        assert float(found.ranks[at]) == 1 + places_above(own, others.values())
        of_tail = [score for (_, tail), score in negatives.items() if tail == t]
        assert float(found.of_tail[at]) == 1 + places_above(own, of_tail)
        if negatives:
            above = places_above(own, negatives.values())
            assert float(found.below[at]) == pytest.approx(1 - above / len(negatives))


def places_above(own: float, others: Iterable[float]) -> float:
    """Ties count half."""
    return sum(1.0 if other > own else 0.5 if other == own else 0.0 for other in others)


def test_its_entities_are_of_the_narrowest_types_that_the_relation_joins() -> None:
    """Everything is a thing; one head has no type, and one drug treats nothing."""
    labels = [f"e{n}" for n in range(12)]
    triples = torch.tensor([[h, 0, t] for h in range(4) for t in (6, 7)])
    graph = Graph(triples[:6], triples[6:7], triples[7:], Vocabulary.of(labels), Vocabulary.of(["treats"]))
    drugs = dict.fromkeys((1, 2, 3, 4), ("Thing", "Drug"))
    types = NodeTypes(Path("t"), {**drugs, **dict.fromkeys((6, 7, 8), ("Thing", "Disease")), 9: ("Thing",)})
    matrix = matrix_of(graph, graph.test, 0, types)
    assert matrix.types == ("Drug", "Disease")
    assert (matrix.heads.tolist(), matrix.tails.tolist()) == ([0, 1, 2, 3, 4], [6, 7, 8])
    assert (matrix.tested.tolist(), len(matrix.left_out), matrix.negatives) == ([[3, 1]], 7, 7)
    plain = matrix_of(graph, graph.test, 0, None)
    assert (plain.heads.tolist(), plain.tails.tolist()) == ([0, 1, 2, 3], [6, 7])


def test_metrics_are_means_within_their_intervals() -> None:
    matrix, _ = some_matrix(3)
    many = len(matrix.tested)
    ranks = torch.linspace(1, 2000, many, dtype=torch.float64)
    found = table_of(matrix, Ranked(ranks, torch.full((many,), 4.0), torch.linspace(0.5, 1, many).double()))
    assert found["mrr"] == 0.25 and found["mrr_interval"] == [0.25, 0.25]
    assert found["hits_at_1"] == 0 and found["hits_at_10"] == 1
    assert found["recall_at_1000"] == pytest.approx(float((ranks <= 1000).double().mean()))
    low, high = found["auroc_interval"]
    assert found["auroc"] == pytest.approx(0.75) and low <= found["auroc"] <= high


def test_the_baselines_know_nothing_of_the_model() -> None:
    matrix, _ = some_matrix(5)
    heads = torch.arange(len(matrix.heads))
    counts = of_frequency(matrix)(heads)
    of_head = torch.bincount(matrix.left_out[:, 0], minlength=len(heads)) + 1
    of_tail = torch.bincount(matrix.left_out[:, 1], minlength=len(matrix.tails)) + 1
    assert torch.equal(counts, (of_tail[:, None] * of_head).double())
    chance = of_chance(matrix)
    assert torch.equal(chance(heads), chance(heads))


def test_a_run_ranks_all_pairs_of_a_relation_next_to_the_baselines(run_cli: Console, tmp_path: Path) -> None:
    trained = ("--dataset", "nations", "--model", "complex", "--rank", "16", "--loss", "1vsall-ce")
    assert run_cli("train", *trained, "--num-epochs", "30", "--learning-rate", "0.01").code == 0
    run = run_cli("evaluate", "--run", "1", "--matrix", "commonbloc1", "--json").json()
    assert run["metric"]["matrix_auroc"] > run["metric"]["frequency_auroc"] - 0.2
    assert {"matrix_recall_at_100", "matrix_mrr", "random_auroc"} <= run["metric"].keys()
    shown = run_cli("show", str(run["id"])).out
    groups = {tuple(line.split()[:2]) for line in shown.splitlines()}
    assert {("matrix", "model"), ("matrix", "frequency"), ("matrix", "random")} <= groups
    (tmp_path / "types.tsv").write_text("usa\tLarge\nbrazil\tLarge\nchina\tLarge\nuk\tLarge\n")
    of_types = ("--matrix", "embassy", "--node-types", "types.tsv")
    run = run_cli("evaluate", "--run", "1", *of_types, "--json").json()
    assert run["state"] == "succeeded"
    assert "by" in run_cli("logs", str(run["id"]), "--grep", "matrix: ").out
    said = run_cli("evaluate", "--run", "1", "--matrix", "embasy").err
    assert "did you mean 'embassy'" in said
    said = run_cli("evaluate", "--run", "1", "--node-types", "types.tsv").err
    assert "--node-types: only with matrix" in said
