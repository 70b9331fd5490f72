"""A step traced on `meta` takes what a real one takes, and what the closed form of our own step says."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from traced_steps import trace_step

from kgops.jobs import cpu_products
from kgops.maths.models.build import build_model
from kgops.maths.train.batches import Batch
from kgops.maths.train.losses import Positives
from kgops.maths.train.meta_trace import trace_peak
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.maths.trials.variants import peak_live_bytes
from kgops.workloads.graphs.counts import Answers, Counts
from kgops.workloads.job_files import read_job
from kgops.workloads.train.sizes import train_shape

Make = Callable[[], nn.Module]
LossOf = Callable[[nn.Module], torch.Tensor]
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer | None] = {
    "none": None,
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
    "adam": lambda parameters: torch.optim.Adam(parameters, foreach=False),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, foreach=False),
}


class Branches(nn.Module):
    """One vector is read three times, so its gradients are added up."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.first(x))
        out: torch.Tensor = self.last(F.gelu(y) + y * 2 + y.sigmoid())
        return out


def drawn(rng: random.Random) -> tuple[Make, LossOf]:
    rows, width, hidden = rng.randint(100, 900), rng.randint(8, 300), rng.randint(50, 600)
    kind = rng.choice(("branches", "classes", "many labels"))
    if kind == "branches":
        return (
            lambda: Branches(width, hidden),
            lambda m: F.mse_loss(m(torch.empty(rows, width)), torch.empty(rows, width)),
        )
    if kind == "classes":
        return (
            lambda: nn.Sequential(
                nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 90)
            ),
            lambda m: F.cross_entropy(m(torch.empty(rows, width)), torch.zeros(rows, dtype=torch.long)),
        )
    return (
        lambda: nn.Sequential(nn.Linear(width, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, hidden)),
        lambda m: F.binary_cross_entropy_with_logits(m(torch.empty(rows, width)), torch.zeros(rows, hidden)),
    )


def measured(make: Make, loss_of: LossOf, optimizer: Optimizer | None, autocast: torch.dtype | None) -> int:
    def work() -> None:
        module = make().train()
        moved = None if optimizer is None else optimizer(module.parameters())
        for _ in range(2):
            module.zero_grad()
            with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
                loss = loss_of(module)
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
            if moved is not None:
                moved.step()

    return peak_live_bytes(work)


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # torch.backends.mkldnn.flags warns of Intel's GPUs
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_traced_step_takes_what_a_real_one_takes(optimizer: str) -> None:
    rng = random.Random(optimizer)
    for _ in range(6):
        make, loss_of = drawn(rng)
        traced = trace_step(make, loss_of, optimizer=OPTIMIZERS[optimizer])
        real = measured(make, loss_of, OPTIMIZERS[optimizer], None)
        # Products copy what is not in one piece, such as the gradient of a mean: nobody hears of that.
        assert -0.1 < traced.peak / real - 1 < 0.02, (traced, real)


def test_autocast_is_followed_though_meta_has_none() -> None:
    rng = random.Random(7)
    for _ in range(6):
        width, hidden, rows = rng.randint(50, 300), rng.randint(50, 600), rng.randint(100, 900)
        # Labels for which the loss on GPUs and on CPUs is made of the same casts.
        make: Make = lambda w=width, h=hidden: nn.Sequential(nn.Linear(w, h), nn.ReLU(), nn.Linear(h, 80))  # type: ignore[misc]  # noqa: E731
        loss_of: LossOf = lambda m, n=rows, w=width: F.cross_entropy(  # type: ignore[misc]  # noqa: E731
            m(torch.empty(n, w)), torch.zeros(n, dtype=torch.long)
        )
        traced = trace_step(make, loss_of, optimizer=OPTIMIZERS["adam"], autocast=torch.bfloat16)
        # A GPU is stood in for by a CPU, whose oneDNN may widen bf16 to float32 inside itself: leave that out.
        with without_onednn():
            real = measured(make, loss_of, OPTIMIZERS["adam"], torch.bfloat16)
        assert -0.1 < traced.peak / real - 1 < 0.02, (traced, real)
        plainly = trace_step(make, loss_of).peak
        assert trace_step(make, loss_of, autocast=torch.bfloat16).peak != plainly


def our_step(rng: random.Random) -> Callable[[str], None]:
    """Two steps of ours on a device."""
    loss = rng.choice(("kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce"))
    settings: dict[str, Any] = {"dataset": "drawn", "optimizer": "sgd", "loss": loss}
    settings |= {"embedding_dim": rng.choice((32, 64, 100)), "output_channels": rng.choice((3, 16, 32))}
    settings |= {"batch_norm": rng.random() < 0.7, "label_smoothing": rng.choice((0.0, 0.1))}
    batch, entities = rng.randint(20, 600), rng.randint(100, 4000)
    options = {"batch_size": batch, "gradient_checkpointing": rng.random() < 0.3}
    queries = Answers(batch, batch, batch, 1)
    counts = Counts(entities, 3, batch, 0, 0, queries, Answers())
    settings["inverse"] = False
    shape = train_shape(
        read_job({"workload": "train", "train": settings, "options": options}, "test"), counts, None
    )
    assert shape is not None
    training = TrainSettings(
        batch_size=batch, loss=loss, label_smoothing=settings["label_smoothing"], optimizer="sgd"
    )

    def work(device: str) -> None:
        model = build_model(shape.model).to(device).train()
        chunk = training.chunk_for(torch.device("cpu"))
        step = TrainStep(
            model,
            training.build_loss(torch.float32, chunk),
            build_optimizer("sgd", model, 0.1, 0.0)
            if device == "cpu"
            else torch.optim.SGD(model.parameters(), 0.1),
            recompute=bool(options["gradient_checkpointing"]),
        )
        for _ in (1, 2):
            ids, rows = (
                torch.zeros(2, batch, dtype=torch.long, device=device),
                torch.arange(batch, device=device),
            )
            step.gradients(Batch(ids[0], ids[1], Positives(rows, torch.zeros_like(rows))))

    return work


def test_trace_and_measurement_of_our_own_step_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's own products: a trace does not see what a library takes inside."""
    monkeypatch.setattr(cpu_products, "onednn_is_wider", lambda: False)
    rng = random.Random(11)
    for _ in range(10):
        work = our_step(rng)
        with torch.device("meta"):
            traced = trace_peak(lambda w=work: w("meta"))  # type: ignore[misc]
        real = peak_live_bytes(lambda w=work: w("cpu"))  # type: ignore[misc]
        assert traced.peak == pytest.approx(real, rel=0.03), traced


def test_what_is_added_out_of_place_counts_where_both_stay() -> None:
    def work() -> None:
        a, b = torch.empty(1000), torch.empty(1000)
        kept = a + b
        del a, b, kept

    with torch.device("meta"):
        assert trace_peak(work).peak == 3 * 4000


def test_what_depends_on_values_is_refused_and_never_guessed() -> None:
    def loss_of(module: nn.Module) -> torch.Tensor:
        x = module(torch.empty(10, 4))
        found: torch.Tensor = x[x > 0].sum()
        return found

    with pytest.raises((NotImplementedError, RuntimeError)):
        trace_step(lambda: nn.Linear(4, 4), loss_of)
