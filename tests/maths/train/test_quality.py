"""Evaluation beside PyKEEN's: the same ranks and metrics; by relation, direction and degree means of those ranks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from driving import Console
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ConvE as PykeenConvE
from pykeen.models import DistMult
from pykeen.triples import TriplesFactory
from tracing import files, flags

from kgops.maths.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import from_pykeen_state
from kgops.maths.train.evaluate import Evaluation, Evaluator, Group, Metrics, quality_table
from kgops.maths.train.pykeen_callbacks import KeepRanks
from kgops.present.quality import FILTERS, quality_rows, read_quality
from kgops.workloads.train.models import ConvEConfig


def ranked(graph: Graph) -> Evaluation:
    """Some ranks of each test triple, halves included."""
    generator = torch.Generator().manual_seed(2)
    ranks = torch.randint(2, 60, (2, len(graph.test)), generator=generator).double() / 2
    return Evaluation(ranks[0], ranks[1])


def test_groups_are_means_of_their_own_ranks_and_cover_every_rank_once() -> None:
    graph = read_pykeen_dataset("umls")
    evaluation = ranked(graph)
    groups = quality_table(evaluation, graph)["groups"]
    for by in ("relation", "direction", "degree"):
        assert sum(one["count"] for one in groups[by]) == 2 * len(graph.test)
        mean = sum(one["count"] * one["mrr"] for one in groups[by]) / (2 * len(graph.test))
        assert mean == pytest.approx(evaluation.both.mrr)
    assert {one["name"]: one["mrr"] for one in groups["direction"]} == pytest.approx(
        {"head": evaluation.head.mrr, "tail": evaluation.tail.mrr}
    )
    for one in groups["relation"]:
        own = graph.test[:, 1] == graph.relations.ids[one["name"]]
        expected = Metrics.of(torch.cat([evaluation.head_ranks[own], evaluation.tail_ranks[own]]))
        assert (one["count"], one["mrr"]) == (expected.count, pytest.approx(expected.mrr))
        assert one["hits_at_10"] == pytest.approx(expected.hits[10])
    degree: Counter[int] = Counter(graph.train[:, [0, 2]].reshape(-1).tolist())
    over = next(one for one in groups["degree"] if one["name"] == "over 100")
    answers = [*graph.test[:, 0].tolist(), *graph.test[:, 2].tolist()]
    assert over["count"] == sum(degree[answer] > 100 for answer in answers)


def test_intervals_are_those_of_resampled_ranks_and_the_same_each_time() -> None:
    generator = np.random.default_rng(5)
    ranks = generator.geometric(0.2, size=400).astype(np.float64)
    group = Group.of("all", ranks, np.random.default_rng(0))
    again = Group.of("all", ranks, np.random.default_rng(0))
    assert group == again
    means = [float((1 / generator.choice(ranks, len(ranks))).mean()) for _ in range(4000)]
    low, high = np.quantile(means, (0.025, 0.975))
    assert group.intervals["mrr"] == pytest.approx((low, high), abs=0.1 * (high - low))
    assert group.intervals["mrr"][0] < group.means["mrr"] < group.intervals["mrr"][1]


def test_a_rank_that_is_not_a_number_is_in_no_group(nations: Graph) -> None:
    evaluation = ranked(nations)
    evaluation.head_ranks[0] = torch.nan
    groups = quality_table(evaluation, nations)["groups"]
    assert sum(one["count"] for one in groups["degree"]) == 2 * len(nations.test) - 1
    json.dumps(groups, allow_nan=False)


@pytest.mark.parametrize("engine", ["kgops", "pykeen"])
def test_a_training_writes_its_quality_and_show_compare_and_report_tell_it(
    run_cli: Console, engine: str
) -> None:
    small = ("--embedding-dim", "16", "--num-epochs", "2", "--device", "cpu", "--validate-every", "1")
    model = ("--output-channels", "2") if engine == "kgops" else ("--model", "DistMult")
    run_cli.must("run", "train", *flags(), "--engine", engine, *model, *small)
    results = Path(run_cli.show(1)["path"]) / "results"
    table = json.loads((results / "test_results.json").read_text())
    by_direction = {one["name"]: one for one in table["groups"]["direction"]}
    for side in ("head", "tail"):
        assert by_direction[side]["count"] == table[side]["count"]
        assert by_direction[side]["mrr"] == pytest.approx(table[side]["mrr"])
    graph = read_graph(*map(Path, files().values()))
    frequent: Counter[str] = Counter(graph.relations.labels[r] for r in graph.test[:, 1].tolist())
    assert {one["name"]: one["count"] for one in table["groups"]["relation"]} == {
        name: 2 * count for name, count in frequent.items()
    }
    groups = read_quality(results)
    assert [one.by for one in groups][:2] == ["direction", "direction"]
    shown = run_cli("show", "1").out
    first = quality_rows(results, relations=10)[0]
    assert "95 % INTERVAL" in shown and first[3] in shown
    if engine == "pykeen":
        return  # what was written is read alike
    assert " ".join(FILTERS.split()) in " ".join(shown.split())
    run_cli("run", "--again", "1")
    compared = next(
        line for line in run_cli("compare", "1", "2").out.splitlines() if "direction head" in line
    )
    assert compared.count(first[3]) >= 2
    assert run_cli("report", "1").code == 0
    assert "Quality by direction" in (run_cli.cwd / "run-1.html").read_text()
    assert run_cli("compare", "1", "2", "--html").code == 0
    page = (run_cli.cwd / "compare-1-2.html").read_text()
    assert "<td>direction head</td>" in page and page.count(f">{first[3]} {first[4]} ({first[2]})<") == 2


def test_ranks_that_pykeen_keeps_are_in_the_order_of_the_test_triples(nations: Graph) -> None:
    ids = nations.entities.ids, nations.relations.ids
    model = DistMult(triples_factory=TriplesFactory(nations.train, *ids), embedding_dim=8, random_seed=1)
    evaluator = KeepRanks()
    evaluator.evaluate(
        model, nations.test, additional_filter_triples=nations.train, batch_size=7, use_tqdm=False
    )
    known = set(map(tuple, torch.cat([nations.train, nations.test]).tolist()))
    with torch.no_grad():
        scores = model.predict_t(nations.test[:, :2])
    expected = []
    for row, (head, relation, tail) in zip(scores.tolist(), nations.test.tolist(), strict=True):
        others = [score for t, score in enumerate(row) if t == tail or (head, relation, t) not in known]
        greater = sum(score > row[tail] for score in others)
        expected.append(1 + greater + (others.count(row[tail]) - 1) / 2)
    assert evaluator.newest().tail_ranks.tolist() == expected


def theirs(inverse: bool, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    data = Nations(create_inverse_triples=inverse)
    model = PykeenConvE(triples_factory=data.training, embedding_dim=12, output_channels=4, random_seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def pykeen_ranks(model: Any, graph: Graph) -> tuple[dict[str, torch.Tensor], Any]:
    evaluator = RankBasedEvaluator(clear_on_finalize=False)
    how: dict[str, Any] = {"batch_size": 64, "use_tqdm": False}
    result = evaluator.evaluate(
        model, graph.test, additional_filter_triples=[graph.train, graph.valid], **how
    )
    ranks = {
        side: torch.cat([torch.as_tensor(part) for part in evaluator.ranks[side, "realistic"]])
        for side in ("head", "tail")
    }
    return ranks, result


def ours(model: ConvE, graph: Graph) -> Evaluation:
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluation = Evaluator(known, graph.num_entities, chunk=5)(model, graph.test)
    assert evaluation is not None
    return evaluation


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("inverse", [True, False])
def test_ranks_and_metrics_equal_pykeens(nations: Graph, inverse: bool, dtype: torch.dtype) -> None:
    reference = theirs(inverse, dtype)
    evaluation = ours(from_pykeen_state(reference.state_dict(), inverse=inverse).to(dtype), nations)
    ranks, result = pykeen_ranks(reference, nations)
    assert torch.equal(evaluation.head_ranks, ranks["head"].double())
    assert torch.equal(evaluation.tail_ranks, ranks["tail"].double())
    metrics = evaluation.to_dict()
    for side in ("head", "tail", "both"):
        for k in (1, 3, 10):
            expected = result.get_metric(f"{side}.realistic.hits_at_{k}")
            assert metrics[side][f"hits_at_{k}"] == pytest.approx(expected, abs=1e-9)
        expected = result.get_metric(f"{side}.realistic.inverse_harmonic_mean_rank")
        # PyKEEN takes this mean in float32: it is that much less exact than the ranks it comes from.
        assert metrics[side]["mrr"] == pytest.approx(expected, abs=1e-6)


def test_ties_count_half_as_they_do_in_pykeen(nations: Graph) -> None:
    reference = theirs(True, torch.float32)
    with torch.no_grad():
        table = reference.entity_representations[0]._embeddings.weight
        table[5:] = table[:9].clone()  # most entities have twins
        reference.entity_representations[1]._embeddings.weight.zero_()
    evaluation = ours(from_pykeen_state(reference.state_dict(), inverse=True), nations)
    ranks, _ = pykeen_ranks(reference, nations)
    assert torch.equal(evaluation.tail_ranks, ranks["tail"].double())
    assert torch.equal(evaluation.head_ranks, ranks["head"].double())
    assert (evaluation.tail_ranks % 1 == 0.5).any()


def test_a_model_that_scores_everything_alike_ranks_in_the_middle() -> None:
    model = ConvE(ConvEConfig(20, 1, embedding_dim=4, kernel_height=1, kernel_width=1, output_channels=2))
    with torch.no_grad():
        model.entities.zero_()
    evaluation = Evaluator(torch.tensor([[0, 0, 1]]), 20)(model, torch.tensor([[0, 0, 1]]))
    assert evaluation is not None
    assert evaluation.both.to_dict()["mean_rank"] == 10.5
    assert evaluation.both.hits[10] == 0


def test_a_model_of_nans_has_no_mrr_instead_of_the_best_one(nations: Graph) -> None:
    model = from_pykeen_state(theirs(True, torch.float32).state_dict(), inverse=True)
    with torch.no_grad():
        model.entities.fill_(torch.nan)
    mrr = ours(model, nations).both.mrr
    assert mrr is not None and mrr != mrr


def test_nothing_to_rank_gives_no_metrics_instead_of_zeros(nations: Graph) -> None:
    model = from_pykeen_state(theirs(True, torch.float32).state_dict(), inverse=True)
    evaluation = Evaluator(nations.train, nations.num_entities)(model, nations.test[:0])
    assert evaluation is not None
    assert evaluation.both.to_dict()["mrr"] is None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ranks_of_the_same_model_are_those_of_the_cpu(nations: Graph, device: str) -> None:
    known = torch.cat([nations.train, nations.valid, nations.test])
    ranks = []
    config = ConvEConfig(num_entities=14, num_relations=55, embedding_dim=32, output_channels=8)
    for place in (device, "cpu"):
        torch.manual_seed(3)
        found = Evaluator(known, nations.num_entities, device=place)(ConvE(config).to(place), nations.test)
        assert found is not None
        ranks.append((found.head_ranks.cpu(), found.tail_ranks.cpu()))
    for mine, theirs in zip(*ranks, strict=True):
        # A score that differs in its last bit may swap two neighbours, no more.
        assert (mine - theirs).abs().max() <= 1
        assert (mine != theirs).double().mean() < 0.01
