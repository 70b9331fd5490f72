"""What a convolution takes inside itself is enough on every CPU, and known to the byte where CPUs take most."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from kgops.maths.train.meta_trace import trace_peak
from kgops.maths.trials.variants import peak_live_bytes


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """With more threads torch asks oneDNN for small batches too, and weights' gradients are summed up by thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Convolution:
    rows: int
    entering: int  # channels
    leaving: int
    size: int = 8
    kernel: int = 3
    padding: int = 0
    wants_gradient: bool = False
    back: bool = False

    def __call__(self) -> None:
        x = torch.empty(self.rows, self.entering, self.size, self.size, requires_grad=self.wants_gradient)
        weight = torch.empty(self.leaving, self.entering, self.kernel, self.kernel, requires_grad=True)
        bias = torch.empty(self.leaving, requires_grad=True)
        y = torch.conv2d(x, weight, bias, padding=self.padding)
        if self.back:
            y.backward(torch.empty_like(y))  # type: ignore[no-untyped-call]


def drawn(rng: random.Random, *, back: bool) -> Convolution:
    return Convolution(
        rows=rng.choice((20, 64, 300)),
        entering=rng.choice((1, 3, 4, 8, 12, 16, 32)),
        leaving=rng.choice((3, 4, 8, 12, 16, 32)),
        size=rng.choice((8, 10, 16)),
        kernel=rng.choice((2, 3, 5)),
        padding=rng.choice((0, 1)),
        wants_gradient=rng.random() < 0.7,
        back=back,
    )


def takes_most_on_avx2(work: Convolution) -> bool:
    """There few channels are copied in which AVX-512 reads as they are."""
    return work.entering <= 3 and not work.wants_gradient if work.back else 8 <= work.entering < 16


def is_grouped_by_16() -> bool:
    """Whether a result of one channel was written as sixteen: so oneDNN does it with AVX-512."""
    plane = 4 * 300 * 6 * 6
    return peak_live_bytes(Convolution(rows=300, entering=1, leaving=1)) > 16 * plane


@pytest.mark.parametrize("back", [False, True])
def test_a_real_convolution_takes_no_more_than_a_traced_one(back: bool) -> None:
    rng, is_exact = random.Random(back), is_grouped_by_16()
    for _ in range(20):
        work = drawn(rng, back=back)
        with torch.device("meta"):
            traced = trace_peak(work)
        real = peak_live_bytes(work)
        # Tensors of our own are all there; what the library takes beside them is enough for any CPU.
        assert traced.peak - traced.private <= real <= 1.01 * traced.peak, work
        if is_exact and not takes_most_on_avx2(work):
            assert traced.peak == pytest.approx(real, rel=0.01), work


def test_where_factors_are_conjugated_or_scores_not_in_one_piece_their_copies_count() -> None:
    def product() -> None:
        a, b = torch.empty(300, 200, dtype=torch.cfloat), torch.empty(200, 500, dtype=torch.cfloat)
        a.conj() @ b

    def loss() -> None:
        scores = torch.empty(300, 500, dtype=torch.cfloat).real
        torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.zeros(300, 500))

    for work in (product, loss):
        with torch.device("meta"):
            traced = trace_peak(work).peak
        assert traced == pytest.approx(peak_live_bytes(work), rel=0.001)
