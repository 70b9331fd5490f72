"""Products by either library are those of float64, whatever shapes, strides and parts they have."""

from __future__ import annotations

import random

import pytest
import torch

from kgops.jobs import on_device
from kgops.jobs.on_device import is_wider_on
from kgops.maths.models import products
from kgops.maths.trials.variants import peak_live_bytes

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
