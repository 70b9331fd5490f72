"""What a convolution takes inside itself on a CPU is known to the byte, so that a trace can count it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

from kgops.bench.live_bytes import peak_live_bytes
from kgops.training.meta_trace import trace_peak

Work = Callable[[], None]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """With more threads torch asks oneDNN for small batches too, and weights' gradients are summed up by thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def convolved(rng: random.Random, *, back: bool) -> Work:
    rows, entering, leaving = (
        rng.choice((20, 64, 300)),
        rng.choice((1, 3, 16, 32)),
        rng.choice((3, 4, 16, 32)),
    )
    size, kernel, padding = rng.choice((8, 10, 16)), rng.choice((2, 3, 5)), rng.choice((0, 1))
    wanted = rng.random() < 0.7

    def work() -> None:
        x = torch.empty(rows, entering, size, size, requires_grad=wanted)
        weight = torch.empty(leaving, entering, kernel, kernel, requires_grad=True)
        y = torch.conv2d(x, weight, torch.empty(leaving, requires_grad=True), padding=padding)
        if back:
            y.backward(torch.empty_like(y))  # type: ignore[no-untyped-call]

    return work


@pytest.mark.parametrize("back", [False, True])
def test_a_traced_convolution_takes_what_a_real_one_takes(back: bool) -> None:
    rng = random.Random(back)
    for _ in range(12):
        work = convolved(rng, back=back)
        with torch.device("meta"):
            traced = trace_peak(work).peak
        assert traced == pytest.approx(peak_live_bytes(work), rel=0.01)


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
