"""Lower precision and fewer layers: what they cost is measured by which triples are found."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import DistMult
from recording import events
from test_tracin_worker import TRIPLE, Trace, rows, trace_model
from test_tracin_worker import trace as trace
from tracing import files

from kgops.maths.graphs.triples import read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.models.products import allow_tf32, product
from kgops.maths.tracin.agreement import compare
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, TracinLoss
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.train.checkpoints import kept_checkpoints, read_checkpoint
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.settings import Precision
from kgops.workloads.train.models import ConvEConfig


def a_model(dtype: torch.dtype = torch.float32) -> ConvE:
    torch.manual_seed(0)
    config = ConvEConfig(
        60, 5, inverse=True, embedding_dim=24, embedding_height=4, embedding_width=6, output_channels=4
    )
    return ConvE(config).to(dtype).eval()


def triples(many: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    columns = [torch.randint(n, (many,), generator=draw) for n in (60, 5, 60)]
    return torch.stack(columns, dim=1)


def scores(model: ConvE, loss: TracinLoss, settings: Settings) -> torch.Tensor:
    train, tests = triples(300, 1), triples(9, 2)
    sink = AllScores(len(tests), len(train))
    Scoring([TracinCheckpoint(model, 0.1)], loss, settings)(train, tests, sink)
    return sink.scores


def test_agreement_is_by_hand_what_it_says() -> None:
    exact = torch.arange(1.0, 41.0)[None]
    swapped = exact.clone()
    swapped[0, [29, 30]] = exact[0, [30, 29]]  # ranks 10 and 11 from the top change places
    found = compare(exact, swapped)
    assert (found.tests, found.trains) == (1, 40)
    assert found.top == {10: 0.9}
    assert found.largest_error == pytest.approx(1 / 40)
    assert found.spearman == pytest.approx(1 - 6 * 2 / (40 * (40**2 - 1)))


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_product_rounds_its_factors_and_not_its_sums(low: torch.dtype) -> None:
    a, b = torch.randn(7, 2000), torch.randn(2000, 5)
    rounded = a.to(low).double() @ b.to(low).double()
    # One rounding of the result at most, where the CPU sums in float32 and answers in the short format.
    torch.testing.assert_close(product(a, b, low).double(), rounded, rtol=2 * torch.finfo(low).eps, atol=0.05)
    assert torch.equal(product(a, b, None), a @ b)


@pytest.mark.parametrize("loss", [TARGET, ONE_TO_N, TracinLoss("softmax", 0.1)])
def test_lower_precision_leaves_scores_within_a_percent_on_average(loss: TracinLoss) -> None:
    model = a_model()
    exact = scores(a_model(torch.float64), loss, Settings(block=64))
    full = compare(exact, scores(model, loss, Settings(block=64, precision=torch.bfloat16)))
    plain = compare(exact, scores(model, loss, Settings(block=64)))
    assert plain.largest_error < 5e-6
    # A rounded score may fall on the other side of a ReLU, so only the average is bounded.
    assert plain.mean_error < full.mean_error < 0.01


def test_many_entities_do_not_overflow_fp16() -> None:
    torch.manual_seed(1)
    config = ConvEConfig(
        70_000, 2, inverse=False, embedding_dim=12, embedding_height=3, embedding_width=4, output_channels=2
    )
    model = ConvE(config).eval()
    train, tests = torch.tensor([[1, 0, 2], [69_999, 1, 5]]), torch.tensor([[1, 1, 3]])
    sink = AllScores(1, 2)
    settings = Settings(precision=torch.float16)
    Scoring([TracinCheckpoint(model, 1.0)], ONE_TO_N, settings)(train, tests, sink)
    assert bool(torch.isfinite(sink.scores).all()) and bool(sink.scores.any())


def test_a_training_in_tf32_leaves_tracin_and_evaluations_of_its_process_as_they_are(
    trace: Trace, trained: Path
) -> None:
    saved = read_checkpoint(kept_checkpoints(trained / "checkpoints")[-1])
    graph = read_graph(*map(Path, files().values()))
    evaluator = Evaluator(graph.train, graph.num_entities)
    Precision("tf32", "tf32", None).apply()
    trace(test_triple=TRIPLE, top_k=5)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
    assert evaluator(saved.build_model(), graph.test) is not None
    allow_tf32(True)
    evaluator(saved.build_model(), graph.test)
    assert torch.get_float32_matmul_precision() == "high"
    allow_tf32(False)


@pytest.mark.gpu
@pytest.mark.parametrize("requested", ["bf16", "fp16"])
def test_on_any_gpu_a_lower_precision_gives_scores(trace: Trace, requested: str) -> None:
    asked = {"test_triple": TRIPLE, "loss": "one-to-n", "top_k": 5}
    results = trace(**asked, device="cuda", options={"precision": requested})
    assert all(math.isfinite(float(row["TracInScore"])) for row in rows(results / "tracin.csv"))


@pytest.mark.gpu
def test_on_a_gpu_a_model_that_is_not_factored_has_no_tf32_whatever_is_requested(
    trace: Trace, tmp_path: Path
) -> None:
    data = Nations()
    torch.save(DistMult(triples_factory=data.training, embedding_dim=4), tmp_path / "model.pkl")
    allow_tf32(True)
    how = {"trust_pickle": True, "learning_rate": 0.1, "device": "cuda", "options": {"precision": "tf32"}}
    run = trace_model(trace, tmp_path / "model.pkl", **how)
    applied = {event["name"]: event["applied"] for event in events(run.parent, "option")}
    assert applied["precision"] == "fp32"
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(("prefix", "value"), [("precision", "bf16"), ("last_layers", 1)])
def test_cheaper_scores_say_how_many_of_the_top_triples_they_still_find(
    trace: Trace, prefix: str, value: Any
) -> None:
    results = trace(max_triples=3, top_k=3, options={prefix: value})
    metrics = events(results.parent, "result")[-1]["metrics"]
    assert 0 <= metrics[f"{prefix}_top50"] <= 1 and metrics[f"{prefix}_largest_error"] > 0
    assert any("of the top 50" in note["text"] for note in events(results.parent, "note"))
    applied = {option["name"]: option["applied"] for option in events(results.parent, "option")}
    assert applied[prefix] == value
