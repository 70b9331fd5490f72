"""Reference training steps for benchmarks: PyKEEN's, and the bare arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kgops.maths.graphs.triples import Graph
from kgops.maths.models.products import add_product, mm_into
from kgops.workloads.train.models import ConvEConfig

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


class PykeenStep:
    """A step of PyKEEN's LCWA training loop on batches of its data loader; loading is not timed."""

    def __init__(
        self, graph: Graph, config: ConvEConfig, batch_size: int, *, patched: bool, device: str = "cpu"
    ) -> None:
        from pykeen.losses import BCEWithLogitsLoss
        from pykeen.models import ConvE
        from pykeen.training import LCWATrainingLoop

        self.patched, self.batch_size = patched, batch_size
        triples = factory(graph)
        self.model: Any = ConvE(
            triples_factory=triples,
            embedding_dim=config.embedding_dim,
            loss=BCEWithLogitsLoss(),
            random_seed=0,
        )
        self.model.to(device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loop: Any = LCWATrainingLoop(model=self.model, triples_factory=triples, optimizer=self.optimizer)
        loader = self.loop._create_training_data_loader(
            triples, sampler=None, batch_size=batch_size, shuffle=True, drop_last=True
        )
        batches = iter(loader)
        self._batches = [next(batches) for _ in range(3)]
        self._taken = 0

    def take(self) -> None:
        batch = self._batches[self._taken % len(self._batches)]
        self._taken += 1
        with matrix_product() if self.patched else nullcontext():
            self.optimizer.zero_grad()
            self.loop._forward_pass(batch, 0, self.batch_size, self.batch_size, 0.0, None)
            self.optimizer.step()
            self.model.post_parameter_update()

    def afresh_twice(self) -> None:
        """Two steps that begin without gradients and moments allocated."""
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer.state.clear()
        self.take()
        self.take()


def factory(graph: Graph) -> Any:
    """PyKEEN's triples factory of the training triples, inverses included."""
    from pykeen.triples import CoreTriplesFactory

    return CoreTriplesFactory(
        graph.train,
        num_entities=graph.num_entities,
        num_relations=graph.num_relations,
        create_inverse_triples=True,
    )


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


class Floor:
    """The operations every implementation needs: nine large products, convolution forward and backward,
    fused Adam. No loss, norms or dropout; all results go into preallocated memory.
    """

    def __init__(self, config: ConvEConfig, batch_size: int, chunk: int = 1024) -> None:
        self.config, self.chunk = config, chunk
        c, dim, features = config, config.embedding_dim, config.features
        self.entities = torch.nn.Parameter(0.1 * torch.randn(c.num_entities, dim))
        self.weight = torch.nn.Parameter(0.01 * torch.randn(dim, features))
        for parameter in (self.entities, self.weight):
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer = torch.optim.Adam([self.entities, self.weight], fused=True)
        self.queries = torch.randn(batch_size, dim)
        self.projected = torch.empty(batch_size, dim)
        self.d_queries = torch.zeros(batch_size, dim)
        self.scores = torch.empty(chunk, batch_size)
        self.image = torch.randn(batch_size, c.channels, 2 * c.height, c.width)
        self.kernel = torch.randn(c.output_channels, c.channels, c.kernel_height, c.kernel_width)
        self.maps = torch.randn(batch_size, features)
        self.d_maps = torch.randn(batch_size, features)

    @torch.no_grad()
    def __call__(self) -> None:
        c = self.config
        F.conv2d(self.image, self.kernel)
        mm_into(self.projected, self.maps, self.weight.t())
        assert self.entities.grad is not None and self.weight.grad is not None
        for start in range(0, c.num_entities, self.chunk):
            block = self.entities[start : start + self.chunk]
            scores = self.scores[: len(block)]
            mm_into(scores, block, self.queries.t())
            mm_into(self.entities.grad[start : start + self.chunk], scores, self.queries)
            add_product(self.d_queries, scores.t(), block)
        self.d_queries.zero_()
        mm_into(self.weight.grad, self.queries.t(), self.maps)
        mm_into(self.d_maps, self.queries, self.weight)
        shape = (-1, c.output_channels, c.map_height, c.map_width)
        torch.ops.aten.convolution_backward(
            self.d_maps.view(shape),
            self.image,
            self.kernel,
            None,
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
            [True, True, False],
        )
        self.optimizer.step()
