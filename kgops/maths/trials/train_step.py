"""PyKEEN's ConvE with the options of the group's scripts, and what else the compared trainings share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import to_pykeen_state

CLEANUP_EVERY = 8  # batches or triples, as in the group's scripts
COMPILED = "the two stacks of the model; compile time and memory are not counted"
MIXED = "their mixed precision is CUDA's"
T = TypeVar("T")


def forever(epoch: Callable[[int], Iterator[T]]) -> Iterator[T]:
    number = 0
    while True:
        yield from epoch(number)
        number += 1


def state_bytes(model: torch.nn.Module) -> int:
    """Bytes of gradients and Adam's two moments, without weights."""
    return 3 * sum(p.numel() * p.element_size() for p in model.parameters())


def factory(graph: Graph) -> Any:
    """PyKEEN's triples factory of the training triples, inverses included."""
    from pykeen.triples import CoreTriplesFactory

    return CoreTriplesFactory(
        graph.train,
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
        create_inverse_triples=True,
    )


def pykeen_model(graph: Graph, model: ConvE) -> Any:
    from pykeen.losses import BCEWithLogitsLoss
    from pykeen.models import ConvE as Theirs

    c = model.config
    theirs = Theirs(
        triples_factory=factory(graph),
        embedding_dim=c.embedding_dim,
        output_channels=c.output_channels,
        embedding_height=c.height,
        embedding_width=c.width,
        kernel_height=c.kernel_height,
        kernel_width=c.kernel_width,
        loss=BCEWithLogitsLoss(),
        random_seed=0,
    )
    theirs.load_state_dict(to_pykeen_state(model))
    return theirs.eval()


class Wrapped:
    """PyKEEN's ConvE with the options of the group's scripts."""

    model: Any
    cleans_up = False

    def with_cleanup(self) -> None:
        """Gives cached GPU memory back after every few batches or triples."""
        self.cleans_up = True

    def clean_up(self, done: int) -> None:
        if self.cleans_up and done % CLEANUP_EVERY == 0:
            torch.cuda.empty_cache()

    def with_checkpointing(self) -> None:
        """Recomputes the convolution's activations in the backward pass."""
        convolution = self.model.interaction.hr2d
        plain = convolution.forward
        convolution.forward = lambda x: checkpoint(plain, x, use_reentrant=False)

    def compiled(self) -> None:
        self.model.interaction.hr2d = torch.compile(self.model.interaction.hr2d)
        self.model.interaction.hr1d = torch.compile(self.model.interaction.hr1d)


@contextmanager
def matrix_product() -> Iterator[None]:
    """Replaces PyKEEN's one function that materialises batch x entities x dim."""
    import pykeen.nn.modules as modules

    shipped = modules.batched_dot
    modules.batched_dot = _matrix_product
    try:
        yield
    finally:
        modules.batched_dot = shipped


def _matrix_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dim() == b.dim() == 3 and a.shape[1] == 1 and b.shape[0] == 1:
        return a[:, 0] @ b[0].t()
    return (a * b).sum(dim=-1)


def synthetic(entities: int, relations: int = 100) -> Graph:
    """Random triples, five per entity: a step's time depends on the number of entities, hardly on the number of
    triples."""
    g = torch.Generator().manual_seed(0)
    columns = [torch.randint(n, (5 * entities,), generator=g) for n in (entities, relations, entities)]
    triples = torch.stack(columns, dim=1)
    names = [Vocabulary.of(map(str, range(n))) for n in (entities, relations)]
    return Graph(triples, triples[:0], triples[:0], names[0], names[1])
