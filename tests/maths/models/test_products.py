"""Products by either library are those of float64, whatever shapes, strides and parts they have. Columns of a plane are
reduced to the same values with hardly any memory beside the plane."""

import random
from collections.abc import Callable
from typing import Literal

import pytest
import torch

from kgops.jobs import on_device
from kgops.jobs.on_device import is_wider_on
from kgops.maths.models import products
from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers
from kgops.maths.models.products import column_maxima, column_sums, fold_columns
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.train.models import ConvEConfig
from kgops.workloads.train.options import COLUMN_FOLDS

has_both = pytest.mark.skipif(not products._torch_has_both(), reason="torch has not both libraries here")


@pytest.fixture(params=[pytest.param("onednn", marks=has_both), "torch's own"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Parts are small, so that most products have several."""
    monkeypatch.setattr(on_device, "onednn_is_wider", lambda: request.param == "onednn")
    monkeypatch.setattr(on_device, "_WORTH", 1000)
    monkeypatch.setattr(on_device, "_PART", 2000)
    return str(request.param)


def factors(draw: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Contiguous, transposed, or a part of something larger."""
    rows, inner, columns = (draw.choice((1, 3, 16, 40, 130)) for _ in range(3))

    def matrix(height: int, width: int) -> torch.Tensor:
        kind = draw.choice(("plain", "transposed", "rows", "columns"))
        if kind == "transposed":
            return torch.randn(width, height).t()
        if kind == "rows":
            return torch.randn(height + 5, width)[2 : height + 2]
        return torch.randn(height, 2 * width)[:, :width] if kind == "columns" else torch.randn(height, width)

    return matrix(rows, inner), matrix(inner, columns)


def close(found: torch.Tensor, exact: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


def test_products_and_sums_are_those_of_float64(library: str) -> None:
    draw = random.Random(5)
    torch.manual_seed(5)
    for _ in range(150):
        a, b = factors(draw)
        exact, before = a.double() @ b.double(), torch.randn(len(a), 2 * b.shape[1])
        close(products.mm(a, b), exact)
        for out in (before[:, : b.shape[1]].clone(), before.clone()[:, : b.shape[1]]):
            earlier = out.double()
            assert products.add_product(out, a, b) is out
            close(out, earlier + exact)
            assert products.mm_into(out, a, b, scale=3.0) is out
            close(out, 3 * exact)
            assert products.mm_into(out, a, b) is out
            close(out, exact)
            for c in (torch.randn(b.shape[1]), torch.randn(len(a), 1)):
                assert products.addmm(c, a, b, out=out) is out
                close(out, c.double() + exact)


_512 = "fma avx avx2 avx512f avx512dq avx512bw avx512vl"


@pytest.mark.parametrize(
    ("vendor", "flags", "environment", "wider"),
    [
        ("AuthenticAMD", _512, {}, True),
        ("AuthenticAMD", _512, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}, True),
        ("AuthenticAMD", _512, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, False),
        ("AuthenticAMD", _512, {"ATEN_CPU_CAPABILITY": "default"}, False),
        ("AuthenticAMD", "fma avx avx2", {}, False),
        ("GenuineIntel", _512, {}, False),
    ],
)
def test_onednn_is_wider_where_mkl_keeps_to_avx2(
    vendor: str, flags: str, environment: dict[str, str], wider: bool
) -> None:
    text = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: one\nflags\t\t: fpu {flags}\n\n"
    assert is_wider_on(text, environment) is wider


def test_a_product_takes_no_more_than_its_parts() -> None:
    if not on_device.onednn_is_wider():
        pytest.skip("torch's own products are the wider ones on this CPU")
    for rows, inner, columns in ((2048, 200, 256), (256, 2048, 200), (256, 200, 4608), (200, 256, 10368)):
        for transposed in ("", "a"):
            a = torch.randn(inner, rows).t() if transposed else torch.randn(rows, inner)
            b, out = torch.randn(inner, columns), torch.empty(rows, columns)
            taken = peak_live_bytes(lambda a=a, b=b, out=out: products.mm_into(out, a, b))  # type: ignore[misc]
            parts = (
                on_device.rows_at_once(columns) * columns,
                on_device.inner_at_once(rows) * rows if transposed else 0,
            )
            assert taken <= 1.1 * 4 * sum(parts)


# --- columns of a plane ---------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, COLUMN_FOLDS - 1, COLUMN_FOLDS, COLUMN_FOLDS + 1, 1000, 14541])
def test_folded_columns_have_the_sums_and_the_maxima_of_the_plane(rows: int) -> None:
    plane = torch.randn(rows, 7, generator=torch.Generator().manual_seed(rows))
    assert torch.equal(fold_columns(plane, torch.amax, torch.maximum), plane.amax(0))
    exact = plane.double().sum(0)
    torch.testing.assert_close(fold_columns(plane, torch.sum, torch.add).double(), exact, rtol=0, atol=2e-3)
    counted = fold_columns((plane > 0).float(), torch.sum, torch.add)
    assert torch.equal(counted.long(), (plane > 0).sum(0))


def test_more_candidates_than_float32_can_count_are_counted() -> None:
    entities = (1 << 24) + 3
    sides = ("embedding_dim", "embedding_height", "embedding_width", "kernel_height", "kernel_width")
    model = ConvE(ConvEConfig(entities, 1, **dict.fromkeys(sides, 1)))  # type: ignore[arg-type]
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
