"""Replayed steps find the weights plain ones find, with the batches and optimizers that a CUDA graph needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_compiled_step import CPU, GPU, SETTINGS, STILL, assert_same, trained
from test_train_loop import small

from kgops.maths.graphs.triples import Graph
from kgops.maths.train.acceleration import ReplayedStep, StaticBatch
from kgops.maths.train.batches import Batch, Batches
from kgops.maths.train.losses import EntityLoss, Positives
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.step import TrainStep

# As for compiled steps: an optimizer imports torch's compiler.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("kind", ["bce", "softmax"])
@pytest.mark.parametrize("chunk", [3, 7, 64])
def test_positives_past_the_last_entity_count_for_nothing(kind: Any, chunk: int) -> None:
    generator = torch.Generator().manual_seed(4)
    queries, entities = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (5, 13))
    biases = torch.randn(13, generator=generator, dtype=torch.float64)
    positives = Positives(torch.tensor([0, 0, 1, 2, 3, 4]), torch.tensor([2, 12, 0, 7, 7, 12]))
    batch = Batch(torch.arange(5), torch.arange(5), positives)
    static = StaticBatch(5, 11, 13, CPU)
    for rows in (11, 6):  # once full, then with what the earlier batch left behind
        full = Positives(torch.arange(rows) % 5, torch.arange(rows))
        static.fill(replace(batch, positives=full))
    static.fill(batch)
    told = []
    for given in (positives, static.batch.positives):
        grads = torch.empty_like(entities), torch.empty_like(biases)
        loss = EntityLoss(kind, 0.1, chunk, torch.float64)
        result = loss(queries, entities, biases, given, *grads)
        told.append([result.value, result.d_queries, *grads])
    for plain, padded in zip(*told, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-12, atol=1e-15)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here a capture would succeed")
def test_a_step_that_cannot_be_captured_runs_as_it_is_and_says_why(nations: Graph) -> None:
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1)
    models = small(nations), small(nations)
    plain, replayed = (TrainStep(m, EntityLoss(), build_optimizer("adam", m, 0.01)) for m in models)
    instead = ReplayedStep(replayed, 64)
    for take in (plain, instead):
        torch.manual_seed(2)
        for batch in batches.epoch(1):
            take(batch)
    assert instead.failure is not None and not instead._graphs
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adagrad", "sgd"])
@pytest.mark.parametrize("loss", ["kvsall-bce", "1vsall-ce"])
def test_replayed_training_has_the_losses_and_weights_of_plain_training(
    nations: Graph, tmp_path: Path, device: str, optimizer: str, loss: str
) -> None:
    settings = replace(SETTINGS, optimizer=optimizer, loss=loss, label_smoothing=0.1)
    plain = trained(nations, tmp_path / "plain", settings, device, **STILL)
    replayed = trained(nations, tmp_path / "replayed", replace(settings, cuda_graphs=True), device, **STILL)
    assert replayed[2].options["cuda_graphs"] == (True, "on", None)
    assert_same(replayed, plain)


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_replayed_training_learns_in_every_precision(
    nations: Graph, tmp_path: Path, device: str, precision: str, checkpointing: bool
) -> None:
    settings = replace(
        SETTINGS,
        num_epochs=12,
        learning_rate=3e-3,
        precision=precision,
        cuda_graphs=True,
        gradient_checkpointing=checkpointing,
    )
    _, done, listener = trained(nations, tmp_path, settings, device)
    assert listener.options["cuda_graphs"] == (True, "on", None)
    assert done.history[-1]["loss"] < 0.9 * done.history[0]["loss"]


@contextmanager
def on_a_stream_of_its_own() -> Iterator[None]:
    """Steps cannot be captured on the default stream."""
    own = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own):
        yield
    torch.cuda.current_stream().wait_stream(own)


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("precision", [torch.float32, torch.float16])
def test_batches_with_more_positives_than_there_is_room_are_captured_again(
    nations: Graph, device: str, precision: torch.dtype
) -> None:
    def batch(positives: int) -> Batch:
        heads, pairs = torch.arange(positives, positives + 16) % 14, torch.arange(positives)
        true = Positives((pairs % 16).to(device), (pairs // 16).to(device))
        return Batch(heads.to(device), 2 * heads.to(device), true)

    models = small(nations, device, **STILL), small(nations, device, **STILL)
    steps = [TrainStep(m, EntityLoss(dtype=precision), build_optimizer("adam", m, 1e-3)) for m in models]
    replayed = ReplayedStep(steps[0], 16)
    with on_a_stream_of_its_own():
        for count in (20, 20, 20, 20, 20, 40, 40, 100, 20):
            ours, theirs = replayed(batch(count)), steps[1](batch(count))
            assert replayed.failure is None
            assert ours is not None and theirs is not None
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    assert replayed._graphs


@pytest.mark.parametrize("device", [GPU])
def test_a_failed_capture_leaves_the_stream_and_the_memory_as_they_were(nations: Graph, device: str) -> None:
    model = small(nations, device)
    step = TrainStep(model, EntityLoss(), build_optimizer("adam", model, 1e-3))
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1, device=device)
    source = [batch for batch in batches.epoch(1) if len(batch) == 64]
    replayed = ReplayedStep(step, 64)

    def wait_for_the_device(*_: object) -> None:
        torch.zeros(16 << 20, device=device)  # in the pool of the capture
        float(model.biases.sum())

    with on_a_stream_of_its_own():
        before = torch.cuda.current_stream()
        for batch in source[:3]:
            replayed(batch)
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        hook = step.optimizer.register_step_pre_hook(wait_for_the_device)
        replayed(source[3])
        hook.remove()
        assert replayed.failure is not None and not replayed._graphs
        assert torch.cuda.current_stream() == before
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() <= reserved
        assert replayed(source[4]) is not None


@pytest.mark.parametrize("device", [GPU])
def test_a_replayed_step_of_fp16_that_overflows_changes_no_weight_and_is_counted(
    nations: Graph, device: str
) -> None:
    model = small(nations, device, batch_norm=False, output_dropout=0.0)
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1, device=device)
    step = TrainStep(model, EntityLoss(dtype=torch.float16), build_optimizer("adam", model, 1e-3))
    replayed = ReplayedStep(step, 64)
    source = [batch for batch in batches.epoch(1) if len(batch) == 64]
    with on_a_stream_of_its_own():
        for batch in source[:6]:
            replayed(batch, want_value=False)
    assert replayed._graphs and replayed.failure is None and step.overflows == 0
    with torch.no_grad():
        model.conv.weight.mul_(1e30)
    before = {name: p.clone() for name, p in model.named_parameters()}
    replayed(source[6], want_value=False)
    assert step.overflows == 1
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name
