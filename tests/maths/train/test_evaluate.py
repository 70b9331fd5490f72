"""Evaluation beside PyKEEN's evaluator on the same model: the same ranks, and the same metrics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ConvE as PykeenConvE

from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import from_pykeen_state
from kgops.maths.train.evaluate import Evaluation, Evaluator
from kgops.workloads.train.models import ConvEConfig

SIDES = ("head", "tail", "both")


def theirs(inverse: bool, dtype: torch.dtype, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    data = Nations(create_inverse_triples=inverse)
    model = PykeenConvE(triples_factory=data.training, embedding_dim=12, output_channels=4, random_seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def pykeen_ranks(model: Any, graph: Graph, batch_size: int = 64) -> tuple[dict[str, torch.Tensor], Any]:
    evaluator = RankBasedEvaluator(clear_on_finalize=False)
    result = evaluator.evaluate(
        model,
        graph.test,
        additional_filter_triples=[graph.train, graph.valid],
        batch_size=batch_size,
        use_tqdm=False,
    )
    ranks = {
        side: torch.cat([torch.as_tensor(part) for part in evaluator.ranks[side, "realistic"]])
        for side in ("head", "tail")
    }
    return ranks, result


def ours(model: ConvE, graph: Graph, chunk: int = 5) -> Evaluation:
    known = torch.cat([graph.train, graph.valid, graph.test])
    evaluation = Evaluator(known, graph.num_entities, chunk=chunk)(model, graph.test)
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
    for side in SIDES:
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
