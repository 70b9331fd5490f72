"""Training and evaluation say the same on every device. The rows with a GPU are run by `make gpu-check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from chunked_loss import chunked_loss

from kgops.maths.graphs.triples import read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.train.settings import TrainSettings, resolve_precision
from kgops.workloads.train.models import ConvEConfig

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SETTINGS = TrainSettings(num_epochs=4, batch_size=64, validate_every=2, seed=3, learning_rate=3e-3)


class Silent:
    """A listener that keeps the options."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        self.options[name] = applied

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None: ...

    def artifact(self, path: Path, kind: str) -> None: ...

    def note(self, text: str) -> None: ...


def _model(device: str, **changes: Any) -> ConvE:
    torch.manual_seed(3)
    config = ConvEConfig(num_entities=14, num_relations=55, embedding_dim=32, output_channels=8, **changes)
    return ConvE(config).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "auto"])
def test_training_learns_and_says_which_precision_took_effect(
    tmp_path: Path, device: str, precision: str
) -> None:
    graph = read_pykeen_dataset("nations")
    listener = Silent()
    settings = TrainSettings(**{**SETTINGS.to_dict(), "precision": precision})
    done = fit(_model(device), graph, settings, tmp_path, listener)
    losses = [entry["loss"] for entry in done.history]
    assert losses[-1] < losses[0]
    assert listener.options["precision"] in ("fp32", "tf32", "bf16", "fp16")


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_seed_gives_the_same_curve_as_on_the_cpu_without_dropout(
    tmp_path: Path, device: str
) -> None:
    graph = read_pykeen_dataset("nations")
    none = {"input_dropout": 0.0, "feature_map_dropout": 0.0, "output_dropout": 0.0}
    here = fit(_model(device, **none), graph, SETTINGS, tmp_path / "here", Silent())
    there = fit(_model("cpu", **none), graph, SETTINGS, tmp_path / "cpu", Silent())
    assert [entry["loss"] for entry in here.history] == pytest.approx(
        [entry["loss"] for entry in there.history], rel=1e-3
    )


@pytest.mark.parametrize("device", DEVICES)
def test_ranks_of_the_same_model_are_those_of_the_cpu(device: str) -> None:
    graph = read_pykeen_dataset("nations")
    known = torch.cat([graph.train, graph.valid, graph.test])
    ranks = []
    for place in (device, "cpu"):
        found = Evaluator(known, graph.num_entities, device=place)(_model(place), graph.test)
        assert found is not None
        ranks.append((found.head_ranks.cpu(), found.tail_ranks.cpu()))
    for mine, theirs in zip(*ranks, strict=True):
        # A score that differs in its last bit may swap two neighbours, no more.
        assert (mine - theirs).abs().max() <= 1
        assert (mine != theirs).double().mean() < 0.01


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["bce", "softmax"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_chunks_do_not_change_a_loss_or_its_gradients(
    device: str, kind: Literal["bce", "softmax"], precision: str
) -> None:
    # On a GPU as a training there computes: bf16 is not for every one.
    dtypes = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = dtypes[resolve_precision(precision, device).applied if device == "cuda" else precision]
    generator = torch.Generator().manual_seed(1)
    positives = Positives(torch.arange(6).to(device), torch.randint(40, (6,), generator=generator).to(device))
    shapes = ((6, 16), (40, 16), (40,))
    told = []
    for chunk in (7, 40):
        generator.manual_seed(2)
        inputs = [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]
        queries, entities, biases = inputs
        value = chunked_loss(EntityLoss(kind, 0.1, chunk, dtype), queries, entities, biases, positives)
        value.backward()  # type: ignore[no-untyped-call]
        told.append([value.detach(), *(one.grad for one in inputs)])
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for mine, theirs in zip(*told, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))
