"""Columns of a plane are reduced to the same values with hardly any memory beside the plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch

from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers
from kgops.maths.models.products import column_maxima, column_sums, fold_columns
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.workloads.train.models import ConvEConfig
from kgops.workloads.train.options import COLUMN_FOLDS

ROWS = [1, COLUMN_FOLDS - 1, COLUMN_FOLDS, COLUMN_FOLDS + 1, 1000, 14541]


@pytest.mark.parametrize("rows", ROWS)
def test_folded_columns_have_the_sums_and_the_maxima_of_the_plane(rows: int) -> None:
    plane = torch.randn(rows, 7, generator=torch.Generator().manual_seed(rows))
    assert torch.equal(fold_columns(plane, torch.amax, torch.maximum), plane.amax(0))
    exact = plane.double().sum(0)
    torch.testing.assert_close(fold_columns(plane, torch.sum, torch.add).double(), exact, rtol=0, atol=2e-3)
    counted = fold_columns((plane > 0).float(), torch.sum, torch.add)
    assert torch.equal(counted.long(), (plane > 0).sum(0))


@pytest.mark.slow
def test_more_candidates_than_float32_can_count_are_counted() -> None:
    entities = (1 << 24) + 3
    model = ConvE(
        ConvEConfig(
            entities,
            1,
            embedding_dim=1,
            embedding_height=1,
            embedding_width=1,
            kernel_height=1,
            kernel_width=1,
        )
    )
    with torch.no_grad():
        model.entities.zero_()
        model.biases.fill_(10).narrow(0, 0, 2).fill_(0)
    triples = torch.tensor([[0, 0, 1]])
    evaluation = Evaluator(triples, entities, chunk=1 << 22)(model, triples)
    assert evaluation is not None
    # All but entity 0, which has the score of the answer, are better.
    assert evaluation.tail_ranks.tolist() == [entities - 2 + 1 + 0.5]


PLANE = 8192 * 512 * 4  # bytes


def peak_beside(work: Callable[[], object]) -> int:
    """Bytes that `work` takes for a moment, with its buffers there already."""
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", [column_sums, column_maxima])
def test_on_a_gpu_reducing_columns_takes_a_fraction_of_the_plane(
    reduce: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    plane = torch.randn(8192, 512, device="cuda")
    assert peak_beside(lambda: reduce(plane)) < PLANE / 32
    cpu = plane.cpu()
    torch.testing.assert_close(reduce(plane).cpu(), reduce(cpu), rtol=1e-5, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "planes"), [("softmax", 0), ("bce", 1)])
def test_on_a_gpu_a_loss_takes_hardly_more_than_its_buffers(
    kind: Literal["softmax", "bce"], planes: int
) -> None:
    entities, queries = torch.randn(8192, 8, device="cuda"), torch.randn(512, 8, device="cuda")
    biases, rows = torch.zeros(8192, device="cuda"), torch.arange(512, device="cuda")
    d_entities, d_biases = torch.empty_like(entities), torch.empty_like(biases)
    buffers = Buffers(torch.device("cuda"))
    loss = EntityLoss(kind, 0.1, 8192)
    inputs = queries, entities, biases, Positives(rows, rows), d_entities, d_biases
    # The value of the binary cross-entropy needs a plane of softplus.
    assert peak_beside(lambda: loss(*inputs, buffers=buffers)) < PLANE / 8 + planes * PLANE


@pytest.mark.gpu
def test_on_a_gpu_an_evaluation_takes_hardly_more_than_its_buffers() -> None:
    triples = torch.stack([torch.arange(256), torch.zeros(256, dtype=torch.long), torch.arange(256)], dim=1)
    model = ConvE(ConvEConfig(8192, 1, embedding_dim=16, output_channels=1)).cuda()
    evaluator = Evaluator(triples, 8192, device="cuda")
    # Only candidates near the true score need a plane of marks: three bytes for each score.
    assert peak_beside(lambda: evaluator(model, triples)) < PLANE
