"""The products that no exact TracIn score of a ConvE can do without, alone and at their shapes.

Nothing is read, masked, grouped or added up: what kgops takes beyond this can be saved, the rest cannot be, short of
another number format. Products are by the library that kgops takes on this CPU. A block of samples has fewer groups
(head and relation), which share the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kgops.models.conve import ConvE
from kgops.models.products import mm
from kgops.tracin.loss import TracinLoss
from kgops.training.batches import query_rows


def bare_products(
    model: ConvE, loss: TracinLoss, tests: torch.Tensor, block: int, chunk: int
) -> Callable[[torch.Tensor], object]:
    c = model.config
    of_tests = _groups(tests)
    entities, project = torch.randn(c.num_entities, c.embedding_dim), model.project.weight.detach()
    kernel = model.conv.weight.detach().flatten(1)
    maps_of_tests = torch.randn(project.shape[1], of_tests)
    delta_of_tests = torch.randn(c.num_entities, of_tests if loss.all_scores else 0)
    vectors, small = torch.randn(c.embedding_dim, len(tests)), torch.randn(kernel.numel(), len(tests))

    def work(triples: torch.Tensor) -> None:
        for some in torch.split(query_rows(triples, c.inverse), block):
            groups, samples = _groups(some), len(some)
            patches = torch.randn(1, kernel.shape[1], 1).expand(groups, -1, c.map_height * c.map_width)
            maps = _forward(kernel, patches, project)
            mm(maps, maps_of_tests)
            x = vectors.new_zeros(groups, c.embedding_dim)
            if loss.all_scores:
                _over_entities(x, entities, delta_of_tests, chunk)
            u = vectors.new_zeros(samples, c.embedding_dim)
            mm(u, vectors)
            # As `products` has it: forward along the tests where that is less than backward for each sample.
            if groups * len(tests) < samples:
                for _ in range(len(tests)):
                    _forward(kernel, patches, project)
            else:
                _backward(u, project, kernel, patches, c.output_channels)
                mm(u.new_zeros(samples, kernel.numel()), small)

    return work


def _groups(rows: torch.Tensor) -> int:
    return len(torch.unique(rows[:, :2], dim=0))


def _forward(kernel: torch.Tensor, patches: torch.Tensor, project: torch.Tensor) -> torch.Tensor:
    maps = torch.matmul(kernel, patches).flatten(1)
    mm(maps, project.t())
    return maps


def _backward(
    u: torch.Tensor, project: torch.Tensor, kernel: torch.Tensor, patches: torch.Tensor, channels: int
) -> None:
    for some in torch.split(u, 128):  # stays in the cache
        d_maps = mm(some, project).view(len(some), channels, -1)
        d_maps @ patches[:1].expand(len(some), -1, -1).transpose(1, 2)
        kernel.t() @ d_maps


def _over_entities(x: torch.Tensor, entities: torch.Tensor, delta: torch.Tensor, chunk: int) -> None:
    for first in range(0, len(entities), chunk):
        part = entities[first : first + chunk]
        plane = mm(x, part.t())
        mm(plane, part)
        mm(plane, delta[first : first + chunk])
