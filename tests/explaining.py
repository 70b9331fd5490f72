"""Small random models, and the loss of one entity's row written out plainly, to hold explanations against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from kgops.explanations.head_encoder import HeadEncoder
from kgops.explanations.head_row import HeadRow, Surroundings
from kgops.explanations.prediction import Prediction
from kgops.explanations.targets import targets_of
from kgops.explanations.training_queries import Background, TrainingQueries
from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.batches import inverse_triples, query_rows
from kgops.training.evaluate import KnownAnswers

ENTITIES, RELATIONS, HEAD = 14, 3, 2


def some_train(seed: int, triples: int = 50) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    sizes = (ENTITIES, RELATIONS, ENTITIES)
    rows = torch.stack([torch.randint(n, (triples,), generator=draw) for n in sizes], dim=1)
    # Facts of one head, a loop among them, and a query with a single tail.
    own = [[HEAD, 0, 3], [HEAD, 0, 5], [HEAD, 1, 6], [7, 1, HEAD], [HEAD, 2, HEAD]]
    train: torch.Tensor = torch.unique(torch.cat([rows, torch.tensor(own)]), dim=0)
    return train


def some_model(seed: int, *, inverse: bool = True, batch_norm: bool = True, bias: bool = True) -> ConvE:
    """In float64 and in evaluation, with statistics that are not those of a new batch norm."""
    torch.manual_seed(seed)
    config = ConvEConfig(
        ENTITIES, RELATIONS, inverse, embedding_dim=12, output_channels=3, batch_norm=batch_norm
    )
    model = ConvE(config).double()
    with torch.no_grad():
        model.entities.mul_(4)
        if bias:
            model.biases.normal_(std=0.5)
        for _ in range(10 if batch_norm else 0):
            at = torch.randint(ENTITIES, (40,)), torch.randint(config.relation_rows, (40,))
            model(*at)
    return model.eval()


def head_row(
    model: ConvE,
    train: torch.Tensor,
    loss: str = "kvsall-bce",
    *,
    head: int = HEAD,
    damping: float = 0.1,
    at_once: int = 1 << 20,
) -> HeadRow:
    encoder, c = HeadEncoder(model), model.config
    targets = targets_of({"name": loss, "label_smoothing": 0.1}, c.num_entities)
    queries = TrainingQueries(train, relation_rows=c.relation_rows, inverse=c.inverse)
    background = Background(queries, encoder, model, targets)
    around = Surroundings(model, targets, queries, encoder, background, damping, at_once)
    return HeadRow(around, head)


def prediction_of(model: ConvE, train: torch.Tensor, triple: Sequence[int]) -> Prediction:
    h, r, t = triple
    known = KnownAnswers(train).of(torch.tensor([h]), torch.tensor([2 * r]))[1]
    return Prediction(model, HeadEncoder(model), (h, r, t), known)


def plain_loss(
    model: ConvE, train: torch.Tensor, loss: str, row: torch.Tensor, head: int = HEAD
) -> torch.Tensor:
    """The training loss as written in a paper, where `row` stands for the head in its own queries, and as a tail of
    all others."""
    sampling, kind = loss.split("-")
    rows = query_rows(train, model.config.inverse)
    if model.config.inverse:
        rows = torch.cat([rows, inverse_triples(train)])
    tails: dict[tuple[int, int], list[int]] = {}
    for h, r, t in rows.tolist():
        tails.setdefault((h, r), []).append(t)
    with_row = model.entities.detach().clone()
    with_row = torch.where(torch.arange(len(with_row))[:, None] == head, row, with_row)
    total = row.new_zeros(())
    for (h, r), true in tails.items():
        relation = model.relations.detach()[r : r + 1]
        if h == head:
            scores = model.encode_rows(row[None], relation) @ model.entities.detach().t()
        else:
            scores = model.encode_rows(model.entities.detach()[h : h + 1], relation) @ with_row.t()
        scores = scores[0] + model.biases.detach()
        for some in [true] if sampling == "kvsall" else [[one] for one in true]:
            total = total + _of_query(scores, some, kind)
    return total


def _of_query(scores: torch.Tensor, true: list[int], kind: str, smoothing: float = 0.1) -> torch.Tensor:
    labels = torch.zeros_like(scores)
    labels[true] = 1.0
    if kind == "bce":
        low = smoothing / (len(scores) - 1)
        labels = low + labels * (1 - smoothing - low)
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")
    return F.cross_entropy(scores[None], (labels / len(true))[None], label_smoothing=smoothing)
