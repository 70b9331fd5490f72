"""The head's row: gradient, curvature and effects of removals, held against plain autograd in float64."""

from __future__ import annotations

import pytest
import torch
from explaining import HEAD, head_row, plain_loss, prediction_of, some_model, some_train
from torch.autograd.functional import hessian

from kgops.explanations.head_row import HeadRow
from kgops.explanations.settle import settled, solved
from kgops.models.conve import ConvE
from kgops.training.losses import LOSSES

torch.set_num_threads(1)

_KINDS = [
    {"inverse": True, "batch_norm": True, "bias": True},
    {"inverse": True, "batch_norm": False, "bias": False},
    {"inverse": False, "batch_norm": True, "bias": False},
]


def everything(head: HeadRow) -> torch.Tensor:
    return torch.ones(len(head.facts), dtype=torch.bool)


def without(train: torch.Tensor, triple: torch.Tensor) -> torch.Tensor:
    return train[(train != triple).any(dim=1)]


def gradient_of(model: ConvE, train: torch.Tensor, loss: str, row: torch.Tensor) -> torch.Tensor:
    row = row.clone().requires_grad_()
    (found,) = torch.autograd.grad(plain_loss(model, train, loss, row), row)
    return found


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", _KINDS)
def test_slope_and_curvature_are_those_of_the_plain_loss(loss: str, kind: dict[str, bool]) -> None:
    train, model = some_train(1), some_model(1, **kind)
    head = head_row(model, train, loss)
    at = head.at(head.start, everything(head), want_curvature=True)
    assert at.curvature is not None
    assert at.gradient.abs().max() < 1e-12, "the trained row is where nothing pulls"
    of_loss = hessian(  # type: ignore[no-untyped-call]
        lambda row: plain_loss(model, train, loss, row), head.start
    )
    held = 0.1 * of_loss.trace() / len(head.start)
    assert head.held == pytest.approx(float(held))
    torch.testing.assert_close(at.curvature, of_loss + held * torch.eye(len(head.start)).double())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_removed_fact_pulls_as_a_training_without_it(loss: str, kind: dict[str, bool]) -> None:
    train, model = some_train(2), some_model(2, **kind)
    head = head_row(model, train, loss)
    whole = gradient_of(model, train, loss, head.start)
    for fact, triple in enumerate(head.facts.triples):
        kept = everything(head)
        kept[fact] = False
        found = head.at(head.start, kept).gradient
        plain = gradient_of(model, without(train, triple), loss, head.start) - whole
        torch.testing.assert_close(found, plain, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", _KINDS)
def test_effects_are_the_first_change_of_the_row_trained_again(loss: str, kind: dict[str, bool]) -> None:
    train, model = some_train(3), some_model(3, **kind)
    head = head_row(model, train, loss)
    prediction = prediction_of(model, train, (HEAD, 1, 9))
    kept = everything(head)
    at = head.at(head.start, kept, want_curvature=True)
    assert at.curvature is not None
    direction = solved(at.curvature) @ prediction.slope(head.start)
    effects = head.effects(at, kept, direction)
    whole, share = gradient_of(model, train, loss, head.start), 1e-5
    before = prediction.standing(head.start).margin
    for fact, triple in enumerate(head.facts.triples):
        fewer = without(train, triple)

        def objective(row: torch.Tensor, fewer: torch.Tensor = fewer) -> torch.Tensor:
            moved = row - head.start
            mixed = (1 - share) * plain_loss(model, train, loss, row)
            mixed = mixed + share * plain_loss(model, fewer, loss, row)
            return mixed - whole @ moved + head.held / 2 * moved @ moved

        row = head.start.clone()
        for _ in range(3):  # Newton: so near its end, exact
            row.requires_grad_()
            (slope,) = torch.autograd.grad(objective(row), row)
            row = (row - torch.linalg.solve(at.curvature, slope)).detach()
        after = prediction.standing(row).margin
        assert (after - before) / share == pytest.approx(float(effects[fact]), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_settled_row_has_no_slope_left_and_a_lower_loss(loss: str) -> None:
    train, model = some_train(4), some_model(4)
    head = head_row(model, train, loss)
    start = head.at(head.start, everything(head), want_curvature=True)
    assert start.curvature is not None
    kept = everything(head)
    kept[:4] = False
    first = head.at(head.start, kept)
    then = settled(head, start, kept, solved(start.curvature), tolerance=1e-8, most=100)
    assert then.gradient.norm() < 1e-6 * first.gradient.norm()
    assert then.value < first.value
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        nearby = then.vector + 0.1 * torch.randn(len(then.vector), generator=generator).double()
        assert head.at(nearby, kept).value > then.value


@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_of_queries_change_no_number(loss: str) -> None:
    train, model = some_train(5), some_model(5)
    whole, one_by_one = head_row(model, train, loss), head_row(model, train, loss, at_once=1)
    row = whole.start + 0.05
    kept = everything(whole)
    kept[1] = False
    ours, theirs = (one.at(row, kept, want_curvature=True) for one in (whole, one_by_one))
    assert ours.value == pytest.approx(theirs.value, rel=1e-12)
    assert ours.curvature is not None and theirs.curvature is not None
    torch.testing.assert_close(ours.gradient, theirs.gradient)
    torch.testing.assert_close(ours.curvature, theirs.curvature)
    direction = ours.gradient
    found = [one.effects(at, kept, direction) for one, at in ((whole, ours), (one_by_one, theirs))]
    torch.testing.assert_close(found[0], found[1])
