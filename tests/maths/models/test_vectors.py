"""ComplEx and DistMult of kgops' own engine beside PyKEEN's models, and their training step beside plain autograd."""

from typing import Any, Literal

import pytest
import torch
from chunked_loss import dense_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from pykeen.models import model_resolver
from pykeen.triples import KGInfo
from torch.nn import functional as F

from kgops.maths.models.build import build_model
from kgops.maths.models.pykeen_bridge import own_vectors, to_pykeen_state
from kgops.maths.train.batches import Batch
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.train.penalties import Penalties
from kgops.maths.train.step import TrainStep
from kgops.workloads.train.models import VectorConfig, weight_bytes

NAMES = ["ComplEx", "DistMult"]


def made(name: str, *, entities: int = 11, rank: int = 5, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = build_model(VectorConfig(entities, 3, rank=rank, model=name)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_pykeen_with_the_same_weights(name: str) -> None:
    model = made(name)
    facts = KGInfo(num_entities=11, num_relations=3, create_inverse_triples=True)
    kind: Any = model_resolver.lookup(name)
    theirs = kind(triples_factory=facts, embedding_dim=5, random_seed=0).double().eval()
    theirs.load_state_dict(to_pykeen_state(model), strict=False)
    rows = torch.tensor([[0, 0], [3, 2], [10, 4]])  # relation rows: inverses stand between
    h, t = model.entities[rows[:, 0]], model.entities
    tails = torch.tensor([[1], [2], [3]])
    expected = theirs.score_hrt(torch.cat([rows, tails], dim=1)).detach()[:, 0]
    ours = model(rows[:, 0], rows[:, 1])
    torch.testing.assert_close(ours.gather(1, tails)[:, 0], expected)
    # The prediction of relations asks for the same score.
    again = (model.relation_rows(h, t[[1, 2, 3]]) * model.relations[rows[:, 1]]).sum(1)
    torch.testing.assert_close(again, expected)


def dense(model: Any, batch: Batch, loss: EntityLoss, n3: float, relations: float) -> torch.Tensor:
    """The objective written out with a score for every entity."""
    rows, tails = batch.positives.rows, batch.positives.entities
    value = dense_loss(loss, model(batch.heads, batch.relations), batch.positives)
    h, r, t = model.entities[batch.heads[rows]], model.relations[batch.relations[rows]], model.entities[tails]
    if n3:
        cubes = [_moduli(model, side).pow(3).sum(1) for side in (h, r, t)]
        value = value + n3 * torch.stack(cubes).sum(0).mean()
    if relations:
        every = torch.stack([(model.encode_rows(h, one.expand_as(h)) * t).sum(1) for one in model.relations])
        value = value + relations * F.cross_entropy(every.t(), batch.relations[rows])
    return value


def _moduli(model: Any, rows: torch.Tensor) -> torch.Tensor:
    if model.config.model == "DistMult":
        return rows.abs()
    real, imaginary = rows.chunk(2, 1)
    return (real**2 + imaginary**2).sqrt()


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(["bce", "softmax"]),
    entities=st.integers(2, 30),
    rank=st.integers(1, 9),
    batch=st.integers(1, 12),
    smoothing=st.sampled_from([0.0, 0.2]),
    n3=st.sampled_from([0.0, 0.3]),
    relations=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_a_step_has_the_gradients_of_autograd(
    name: str,
    kind: Literal["bce", "softmax"],
    entities: int,
    rank: int,
    batch: int,
    smoothing: float,
    n3: float,
    relations: float,
    seed: int,
) -> None:
    model = made(name, entities=entities, rank=rank, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    labels = torch.rand(batch, entities, generator=draw) < 0.3
    labels[:, 0] = True
    rows, tails = labels.nonzero(as_tuple=True)
    heads = torch.randint(entities, (batch,), generator=draw)
    asked = Batch(heads, torch.randint(6, (batch,), generator=draw), Positives(rows, tails))
    loss = EntityLoss(kind, smoothing, chunk=7, dtype=torch.float64)
    value = dense(model, asked, loss, n3, relations)
    expected = torch.autograd.grad(value, [model.entities, model.relations])
    step = TrainStep(
        model, loss, torch.optim.SGD(model.parameters(), lr=0.0), penalties=Penalties(n3, relations)
    )
    # A batch of fixed size is filled up with pairs past the last entity, which count for nothing.
    padded = Positives(
        torch.cat([rows, rows.new_zeros(2)]), torch.cat([tails, tails.new_full((2,), entities)])
    )
    for one in (asked, Batch(asked.heads, asked.relations, padded)):
        plain = step.gradients(one)
        for mine, theirs in zip((model.entities.grad, model.relations.grad), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
        without = dense(model, asked, loss, 0.0, 0.0).detach()
        torch.testing.assert_close(plain, without, rtol=1e-10, atol=1e-12)


def test_a_model_is_the_bytes_that_its_sizes_say() -> None:
    for name in NAMES:
        model = made(name).float()
        assert weight_bytes(model.config) == sum(4 * p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_pykeen_trained_is_ours_with_equal_scores(name: str) -> None:
    kind: Any = model_resolver.lookup(name)
    facts = KGInfo(num_entities=7, num_relations=2, create_inverse_triples=False)
    theirs = kind(triples_factory=facts, embedding_dim=6, random_seed=1).double().eval()
    ours = own_vectors(theirs)
    assert ours is not None and not ours.config.inverse
    rows = torch.cartesian_prod(torch.arange(7), torch.arange(2), torch.arange(7))
    scores = ours(rows[:, 0], rows[:, 1])[torch.arange(len(rows)), rows[:, 2]]
    torch.testing.assert_close(scores, theirs.score_hrt(rows)[:, 0])
    assert own_vectors(model_resolver.lookup("RotatE")(triples_factory=facts, random_seed=1)) is None
