"""Optimizers and schedules: what they train, how they step, and what they are restored from."""

from dataclasses import replace

import pytest
import torch

from kgops.errors import BadInput
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.conve import ConvE
from kgops.maths.train.batches import Batches
from kgops.maths.train.losses import EntityLoss
from kgops.maths.train.optimizers import (
    GpuAdagrad,
    Schedule,
    build_optimizer,
    rate_of,
    restore,
    set_rate,
)
from kgops.maths.train.step import TrainStep
from kgops.workloads.train.models import ConvEConfig
from kgops.workloads.train.options import OPTIMIZERS

# An optimizer imports torch's compiler.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def test_a_scale_that_no_loss_depends_on_keeps_its_value(nations: Graph) -> None:
    """Adam moves it a whole step at a time, and beyond zero all feature maps have the other sign."""
    torch.manual_seed(0)
    model = ConvE(ConvEConfig(nations.num_entities, nations.num_relations, embedding_dim=12)).double()
    heads, relations = torch.arange(14), torch.arange(14)
    model.config = replace(model.config, input_dropout=0.0, feature_map_dropout=0.0, output_dropout=0.0)
    assert model.input_norm is not None
    scores = model.train()(heads, relations).detach()
    with torch.no_grad():
        model.input_norm.weight.mul_(3)
    torch.testing.assert_close(model(heads, relations).detach(), scores, rtol=1e-3, atol=1e-3)
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=50, seed=1)
    for name in OPTIMIZERS:
        optimizer = build_optimizer(name, model, 0.1, weight_decay=0.1)
        step = TrainStep(model, EntityLoss("softmax", 0.1, 5, torch.float64), optimizer)
        before = model.conv.weight.detach().clone()
        step(next(batches.epoch(1)))
        assert model.input_norm.weight.item() == 3 and not torch.equal(model.conv.weight, before)
    # A checkpoint of a kgops that trained it cannot be resumed from.
    with pytest.raises(BadInput, match="trained other parameters"):
        restore(build_optimizer("adam", model, 0.1), torch.optim.Adam(model.parameters()).state_dict())
    # Channels have scales of their own, which the loss does depend on.
    several = ConvEConfig(5, 2, embedding_dim=12, input_channels=2, embedding_height=2, embedding_width=3)
    assert ConvE(several).untrained == ()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad_of_gpus_is_torchs_adagrad(decay: float) -> None:
    torch.manual_seed(0)
    mine, torchs = (torch.nn.Parameter(torch.arange(6, dtype=torch.float64)) for _ in range(2))
    ours = GpuAdagrad([mine], lr=torch.tensor(0.1, dtype=torch.float64), weight_decay=decay)
    theirs = torch.optim.Adagrad([torchs], lr=0.1, weight_decay=decay)
    for _ in range(5):
        mine.grad = torchs.grad = torch.randn(6, dtype=torch.float64)
        ours.step()
        theirs.step()
        torch.testing.assert_close(mine, torchs, rtol=1e-12, atol=0)
    before = mine.clone()
    ours.found_inf = torch.tensor(1.0)
    mine.grad = torch.full((6,), torch.inf, dtype=torch.float64)
    ours.step()
    assert torch.equal(mine, before)


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "sgd"])
def test_an_optimizer_restored_from_another_device_keeps_its_own_way_to_step(name: str) -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = build_optimizer(name, layer, 0.1)
    layer(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    set_rate(optimizer, 0.025)
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:  # as a GPU writes them
        group |= {"lr": torch.tensor(0.025), "fused": None, "capturable": True}
    other = build_optimizer(name, layer, 0.1)
    restore(other, saved)
    assert rate_of(other) == pytest.approx(0.025)
    assert isinstance(other.param_groups[0]["lr"], float)
    assert other.param_groups[0]["fused"] is True
    other.step()


def test_schedules() -> None:
    cosine = Schedule("cosine", 1.0, 10, warmup_epochs=2, lowest=0.1)
    rates = [cosine.rate(e) for e in range(1, 11)]
    assert rates[0] < rates[1] < rates[2] == 1.0
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] > 0.1
    plateau = Schedule("plateau", 1.0, 10, factor=0.5, patience=1)
    for mrr in (0.1, 0.2, 0.2, 0.1):
        plateau.observe(mrr)
    assert plateau.rate(5) == 0.5
    restored = Schedule("plateau", 1.0, 10, factor=0.5, patience=1)
    restored.load_state_dict(plateau.state_dict())
    assert restored == plateau
    assert Schedule("constant", 0.3, 10).rate(7) == 0.3
