"""Small random models and trainings, to hold explanations against."""

from collections.abc import Sequence

import torch

from kgops.maths.explain.prediction import Prediction, Query
from kgops.maths.models.conve import ConvE
from kgops.maths.train.evaluate import KnownAnswers
from kgops.workloads.train.models import ConvEConfig

ENTITIES, RELATIONS, HEAD = 14, 3, 2


def some_train(seed: int, triples: int = 50) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    sizes = (ENTITIES, RELATIONS, ENTITIES)
    rows = torch.stack([torch.randint(n, (triples,), generator=draw) for n in sizes], dim=1)
    # Facts of one head, a loop among them, and a query with a single tail.
    own = [[HEAD, 0, 3], [HEAD, 0, 5], [HEAD, 1, 6], [7, 1, HEAD], [HEAD, 2, HEAD]]
    train: torch.Tensor = torch.unique(torch.cat([rows, torch.tensor(own)]), dim=0)
    return train


def some_model(seed: int) -> ConvE:
    """In float64 and in evaluation, with statistics that are not those of a new batch norm."""
    torch.manual_seed(seed)
    config = ConvEConfig(ENTITIES, RELATIONS, embedding_dim=12, output_channels=3)
    model = ConvE(config).double()
    with torch.no_grad():
        model.entities.mul_(4)
        model.biases.normal_(std=0.5)
        for _ in range(10):
            at = torch.randint(ENTITIES, (40,)), torch.randint(config.relation_rows, (40,))
            model(*at)
    return model.eval()


def prediction_of(
    model: ConvE, train: torch.Tensor, triple: Sequence[int], *, asks_head: bool = False
) -> Prediction:
    h, r, t = triple
    query = Query((h, r, t), asks_head)
    given, relation, _ = query.row(inverse=True)
    known = KnownAnswers(train).of(torch.tensor([given]), torch.tensor([relation]))[1]
    return Prediction(model, query, known)
