"""TracIn for PyKEEN's models beside one plain backward pass for each triple, in float64."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
import torch
from pykeen import models
from pykeen.triples import TriplesFactory
from sequential_tracin import row_loss

from kgops.errors import BadInput
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.engines import engine_for
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, KnownTails, TracinLoss
from kgops.maths.tracin.models import chosen_parameters, last_layers
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.train.batches import inverse_triples

# PyKEEN and what it loads warn of their own affairs, which are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

ENTITIES, RELATIONS = 11, 3
# Heads, relations and tails occur again within and across the two, as each other, and within a triple.
TRAIN = torch.tensor(
    [[0, 1, 2], [0, 1, 3], [0, 1, 2], [5, 0, 1], [2, 2, 0], [1, 1, 5], [4, 2, 4], [7, 0, 6], [6, 2, 2]]
)
TESTS = torch.tensor([[0, 1, 2], [2, 1, 10], [0, 1, 7], [6, 0, 0], [4, 2, 4]])
SMOOTH = TracinLoss("bce", smoothing=0.2, known=KnownTails(TRAIN, RELATIONS))
LOSSES = {
    "target": TARGET,
    "one-to-n": ONE_TO_N,
    "softmax": TracinLoss("softmax", smoothing=0.1),
    "known tails": SMOOTH,
    "smoothed as PyKEEN does": replace(SMOOTH, over_others=True),
}
SMALL = Settings(block=4, chunk=5, tests_at_once=2)

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "DistMult": ("DistMult", {"embedding_dim": 6}),
    "ComplEx": ("ComplEx", {"embedding_dim": 4}),
    "RESCAL": ("RESCAL", {"embedding_dim": 4}),
    "HolE": ("HolE", {"embedding_dim": 6}),
    "TransE, absolute": ("TransE", {"embedding_dim": 6}),
    "TransE, Euclidean": ("TransE", {"embedding_dim": 6, "scoring_fct_norm": 2}),
    "TransE, squared": ("TransE", {"embedding_dim": 6, "scoring_fct_norm": 2, "power_norm": True}),
    "RotatE": ("RotatE", {"embedding_dim": 4}),
    "normalised": (
        "DistMult",
        {"embedding_dim": 6, "entity_representations_kwargs": {"normalizer": "softmax"}},
    ),
    "SimplE": ("SimplE", {"embedding_dim": 5}),
    "PairRE": ("PairRE", {"embedding_dim": 5}),
    "TransD": ("TransD", {"embedding_dim": 5, "relation_dim": 4}),
    "TuckER": ("TuckER", {"embedding_dim": 5, "relation_dim": 4}),
    "ConvKB": ("ConvKB", {"embedding_dim": 5, "num_filters": 3}),
    "ERMLP": ("ERMLP", {"embedding_dim": 5}),
    "ConvE": ("ConvE", {"embedding_dim": 12, "output_channels": 3, "kernel_height": 2, "kernel_width": 2}),
    "CompGCN": ("CompGCN", {"embedding_dim": 4}),
}


def made(name: str, *, inverse: bool | None = None, seed: int = 2) -> Any:
    cls, shape = MODELS[name]
    inverse = cls in ("ConvE", "CompGCN") if inverse is None else inverse
    factory = TriplesFactory(
        TRAIN,
        entity_to_id={f"e{i}": i for i in range(ENTITIES)},
        relation_to_id={f"r{i}": i for i in range(RELATIONS)},
        create_inverse_triples=inverse,
    )
    model = getattr(models, cls)(triples_factory=factory, random_seed=seed, **shape).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model.eval()


def plain_gradient(
    model: Any, loss: TracinLoss, row: torch.Tensor, names: Collection[str] | None
) -> torch.Tensor:
    """The whole gradient as one vector, by PyKEEN's own scoring and autograd."""
    chosen = [p for name, p in model.named_parameters() if names is None or name in names]
    if isinstance(model, models.CompGCN):
        model.entity_representations[0].combined.enriched_representations = None  # kept from the row before
    if loss.kind == "target":
        value = torch.nn.functional.softplus(-model.score_hrt(row[None])[0, 0])
    else:
        value = row_loss(model.score_t(row[None, :2])[0], row, loss)
    grads = torch.autograd.grad(value, chosen, allow_unused=True)
    flat = [torch.zeros_like(p) if g is None else g for p, g in zip(chosen, grads, strict=True)]
    return torch.cat([g.flatten() for g in flat])


def numbered(model: Any, triples: torch.Tensor) -> torch.Tensor:
    factor = 2 if model.use_inverse_triples else 1
    return torch.stack([triples[:, 0], factor * triples[:, 1], triples[:, 2]], dim=1)


def plain(
    model: Any,
    loss: TracinLoss,
    train: torch.Tensor,
    tests: torch.Tensor,
    names: Collection[str] | None = None,
) -> torch.Tensor:
    sides = [
        torch.stack([plain_gradient(model, loss, row, names) for row in numbered(model, side)])
        for side in (tests, train)
    ]
    return 0.1 * sides[0] @ sides[1].t()


def scanned(
    model: Any, loss: TracinLoss, how: Settings = SMALL, names: Collection[str] | None = None
) -> torch.Tensor:
    sink = AllScores(len(TESTS), len(TRAIN))
    Scoring([TracinCheckpoint(model, 0.1)], loss, how, names)(TRAIN, TESTS, sink)
    return sink.scores


def assert_close(found: torch.Tensor, truth: torch.Tensor, within: float = 1e-10) -> None:
    assert float(truth.abs().max()) > 0
    assert float((found - truth).abs().max()) <= within * float(truth.abs().max())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_plain_gradients_whatever_the_model_and_the_loss(name: str, loss: str) -> None:
    model, kind = made(name), LOSSES[loss]
    if kind.known is not None and model.use_inverse_triples:
        kind = TracinLoss("bce", smoothing=0.2, known=KnownTails(numbered(model, TRAIN), 2 * RELATIONS))
    truth = plain(model, kind, TRAIN, TESTS)
    assert_close(scanned(model, kind), truth)
    assert_close(scanned(model, kind, Settings()), truth)
    own = Scoring([TracinCheckpoint(model, 0.1)], kind, SMALL).self_influence(TRAIN)
    assert_close(own, plain(model, kind, TRAIN, TRAIN).diagonal())


@pytest.mark.parametrize("name", ["DistMult", "RotatE", "TransE, absolute", "TuckER", "SimplE"])
@pytest.mark.parametrize("loss", ["target", "one-to-n"])
def test_with_inverse_relations_both_directions_add_their_gradients(name: str, loss: str) -> None:
    model = made(name, inverse=True)
    assert_close(scanned(model, LOSSES[loss]), plain(model, LOSSES[loss], TRAIN, TESTS))

    def both(triples: torch.Tensor) -> torch.Tensor:
        rows = zip(numbered(model, triples), inverse_triples(triples), strict=True)
        pairs = [[plain_gradient(model, LOSSES[loss], row, None) for row in pair] for pair in rows]
        return torch.stack([there + back for there, back in pairs])

    how = replace(SMALL, both_directions=True)
    train, tests = both(TRAIN), both(TESTS)
    assert_close(scanned(model, LOSSES[loss], how), 0.1 * tests @ train.t())
    own = Scoring([TracinCheckpoint(model, 0.1)], LOSSES[loss], how).self_influence(TRAIN)
    assert_close(own, 0.1 * (train**2).sum(1))


@pytest.mark.parametrize("name", ["DistMult", "TransE, Euclidean", "ConvKB", "CompGCN"])
@pytest.mark.parametrize("loss", ["target", "one-to-n"])
def test_layers_are_chosen_by_the_models_own_names(name: str, loss: str) -> None:
    model = made(name)
    for names in (
        last_layers(model, 1),
        last_layers(model, 2),
        chosen_parameters(model, ["entity_representations"]),
    ):
        assert names <= {parameter for parameter, _ in model.named_parameters()}
        found = scanned(model, LOSSES[loss], names=names)
        assert_close(found, plain(model, LOSSES[loss], TRAIN, TESTS, names))


@pytest.mark.parametrize("name", ["DistMult", "ComplEx", "TransE, absolute", "TransE, Euclidean", "RotatE"])
@pytest.mark.parametrize("loss", ["target", "one-to-n", "softmax"])
def test_float32_stays_close_to_the_truth(name: str, loss: str) -> None:
    model = made(name)
    truth = plain(model, LOSSES[loss], TRAIN, TESTS)
    found = scanned(model.float(), LOSSES[loss], Settings())
    assert found.dtype == torch.float32
    assert_close(found.double(), truth, 5e-6)


def test_weights_that_are_no_numbers_and_ids_outside_the_model_are_refused() -> None:
    model = made("RotatE")
    for triples, said in (([[0, 0, ENTITIES]], "entity 11"), ([[0, RELATIONS, 1]], "relation 3")):
        with pytest.raises(BadInput, match=said):
            Scoring([TracinCheckpoint(model, 0.1)], TARGET).self_influence(torch.tensor(triples))
    with pytest.raises(BadInput, match="no parameter 'conv'"):
        engine_for(TracinCheckpoint(model, 0.1), TARGET, SMALL, {"conv"})
    points = [TracinCheckpoint(one, 0.1) for one in (model, made("DistMult"))]
    with pytest.raises(BadInput, match="different sizes"):
        Scoring(points, TARGET).self_influence(TRAIN)
    with torch.no_grad():
        model.entity_representations[0]._embeddings.weight[3, 1] = torch.nan
    with pytest.raises(BadInput, match="not finite"):
        Scoring([TracinCheckpoint(model, 0.1)], TARGET).self_influence(TRAIN)
    with pytest.raises(BadInput, match="cannot score with a Linear"):
        engine_for(TracinCheckpoint(torch.nn.Linear(2, 2).eval(), 0.1), TARGET, SMALL)
