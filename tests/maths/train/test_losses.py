"""Chunked losses beside dense ones: same value, same gradients, a fraction of the memory."""

from typing import Literal

import pytest
import torch
from chunked_loss import chunked_loss, dense_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import grad
from torch.utils._python_dispatch import TorchDispatchMode

from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.train.settings import resolve_precision

KINDS: tuple[Literal["bce", "softmax"], ...] = ("bce", "softmax")
Case = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Positives]


def case(batch: int, total: int, dim: int, seed: int, dtype: torch.dtype, single: bool) -> Case:
    g = torch.Generator().manual_seed(seed)
    queries = torch.randn(batch, dim, generator=g, dtype=torch.float64)
    if batch > 2:
        queries[1] = queries[0]  # the same query twice in a batch
    entities = torch.randn(total, dim, generator=g, dtype=torch.float64)
    biases = torch.randn(total, generator=g, dtype=torch.float64)
    if single:
        labels = torch.zeros(batch, total, dtype=torch.bool)
        labels[torch.arange(batch), torch.randint(total, (batch,), generator=g)] = True
    else:
        labels = torch.rand(batch, total, generator=g) < 0.3
        labels[:, 0] = True
    rows, columns = labels.nonzero(as_tuple=True)
    shuffled = torch.randperm(len(rows), generator=g)
    positives = Positives(rows[shuffled], columns[shuffled])
    return queries.to(dtype), entities.to(dtype), biases.to(dtype), positives


@given(
    kind=st.sampled_from(KINDS),
    batch=st.integers(1, 9),
    total=st.integers(2, 40),
    dim=st.integers(1, 8),
    chunk=st.integers(1, 45),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    single=st.booleans(),
    seed=st.integers(0, 2**16),
    wide=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_chunked_loss_equals_the_dense_loss_in_value_and_gradient(
    kind: Literal["bce", "softmax"],
    batch: int,
    total: int,
    dim: int,
    chunk: int,
    smoothing: float,
    single: bool,
    seed: int,
    wide: bool,
) -> None:
    dtype, tolerance = (torch.float64, 1e-12) if wide else (torch.float32, 1e-6)
    queries, entities, biases, positives = case(batch, total, dim, seed, dtype, single)
    loss = EntityLoss(kind, smoothing, chunk, dtype)
    leaves = [t.requires_grad_() for t in (queries, entities, biases)]
    got = chunked_loss(loss, queries, entities, biases, positives)
    # Judged by float64: at these sizes dense float32 is no nearer to the truth than the chunks are.
    exact_leaves = [t.detach().double().requires_grad_() for t in leaves]
    scores = exact_leaves[0] @ exact_leaves[1].t() + exact_leaves[2]
    expected, largest = dense_loss(loss, scores, positives), scores.abs().max()
    assert abs(got - expected) <= tolerance * max(abs(expected), largest)
    # A gradient is Σ (probability - label) · vector. Where both nearly cancel, what is left cannot be
    # more exact than the labels' part it was taken from.
    labels_part = (exact_leaves[0][positives.rows] * exact_leaves[1][positives.entities]).sum()
    parts = grad(labels_part + 0 * exact_leaves[2].sum(), exact_leaves)
    per_pair = 1 / (batch * total if kind == "bce" else batch)
    for a, b, part in zip(grad(got, leaves), grad(expected, exact_leaves), parts, strict=True):
        assert (a - b).norm() <= tolerance * (b.norm() + per_pair * (part.norm() + len(positives) ** 0.5))


@given(
    batch=st.integers(1, 9),
    total=st.integers(2, 40),
    chunk=st.integers(1, 45),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_weighted_by_its_positives_a_query_has_the_loss_of_its_triples(
    batch: int, total: int, chunk: int, smoothing: float, seed: int
) -> None:
    queries, entities, biases, positives = case(batch, total, 5, seed, torch.float64, False)
    many, rows = len(positives), positives.rows
    leaves = [t.requires_grad_() for t in (queries, entities, biases)]
    grouped = EntityLoss("softmax", smoothing, chunk, torch.float64, many / batch)
    got = chunked_loss(grouped, queries, entities, biases, positives)
    apart = Positives(torch.arange(many), positives.entities)
    expected = dense_loss(EntityLoss("softmax", smoothing), queries[rows] @ entities.t() + biases, apart)
    assert got.item() == pytest.approx(expected.item(), rel=1e-12)
    for a, b in zip(grad(got, leaves), grad(expected, leaves), strict=True):
        assert (a - b).abs().max() <= 1e-12 * max(1, b.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_low_precision_stays_near_and_keeps_small_gradients(
    kind: Literal["bce", "softmax"], dtype: torch.dtype
) -> None:
    queries, entities, biases, positives = case(32, 3000, 16, 2, torch.float32, True)
    exact = EntityLoss(kind)
    rough = EntityLoss(kind, dtype=dtype)
    outs = [(torch.empty_like(entities), torch.empty_like(biases)) for _ in range(2)]
    a = exact(queries, entities, biases, positives, *outs[0])
    b = rough(queries, entities, biases, positives, *outs[1])
    assert a.value is not None and b.value is not None
    assert abs(a.value - b.value) < 2e-2 * a.value
    assert (a.d_queries - b.d_queries).norm() < 3e-2 * a.d_queries.norm()
    assert (outs[0][0] - outs[1][0]).norm() < 3e-2 * outs[0][0].norm()
    # 1 / (batch · entities) is about 1e-5: taken inside an fp16 product, most of this would be zero.
    assert (outs[1][0] == 0).sum() <= (outs[0][0] == 0).sum() + 5


def test_large_scores_overflow_nothing() -> None:
    queries, entities, biases, positives = case(4, 50, 6, 3, torch.float32, True)
    for kind in KINDS:
        leaves = [t.clone().requires_grad_() for t in (queries * 1e4, entities, biases)]
        value = chunked_loss(EntityLoss(kind, chunk=7), leaves[0], leaves[1], leaves[2], positives)
        assert torch.isfinite(value)
        assert all(torch.isfinite(g).all() for g in grad(value, leaves))


def test_no_tensor_of_batch_times_entities_is_ever_made() -> None:
    largest = 0

    class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    queries, entities, biases, positives = case(64, 5000, 4, 5, torch.float32, True)
    d_entities, d_biases = torch.empty_like(entities), torch.empty_like(biases)
    for kind in KINDS:
        with Sizes():  # type: ignore[no-untyped-call]
            EntityLoss(kind, 0.1, 256)(queries, entities, biases, positives, d_entities, d_biases)
    assert largest == 64 * 256


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_chunks_do_not_change_a_loss_or_its_gradients(
    device: str, kind: Literal["bce", "softmax"], precision: str
) -> None:
    # On a GPU as a training there computes: bf16 is not for every one.
    dtypes = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = dtypes[resolve_precision(precision, device).applied if device == "cuda" else precision]
    generator = torch.Generator().manual_seed(1)
    positives = Positives(torch.arange(6).to(device), torch.randint(40, (6,), generator=generator).to(device))
    shapes = ((6, 16), (40, 16), (40,))
    told = []
    for chunk in (7, 40):
        generator.manual_seed(2)
        inputs = [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]
        queries, entities, biases = inputs
        value = chunked_loss(EntityLoss(kind, 0.1, chunk, dtype), queries, entities, biases, positives)
        value.backward()  # type: ignore[no-untyped-call]
        told.append([value.detach(), *(one.grad for one in inputs)])
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for mine, theirs in zip(*told, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))
