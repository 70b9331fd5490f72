"""One step of regression, compiled or not, its losses and metrics, and the windows it is fed with."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recording import Killed, Recorder, Stop, assert_identical
from tiny_regression import QUICK, TINY, train, weights

from kgops.maths.regress.batches import Prepared, Scaling, Stream, Training, Windows, augmented, generator_for
from kgops.maths.regress.flights import Flight
from kgops.maths.regress.metrics import HeightLoss, Heights
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import plan_stages
from kgops.maths.regress.step import RegressionStep
from kgops.maths.train.optimizers import GpuAdagrad, build_optimizer
from kgops.maths.train.settings import resolve_precision
from kgops.workloads.regress import options as regress
from kgops.workloads.train.options import OPTIMIZERS

# --- a step ---------------------------------------------------------------------------------------


def batch_of(flights: list[Flight], size: int = 11) -> tuple[torch.Tensor, ...]:
    windows = Windows(flights, TINY.temporal_frames)
    batch = windows.batch(list(range(0, len(windows), 5))[:size])
    scaling = Scaling.of(windows, flat_field=False, zscore=True)
    random = torch.rand(len(batch), dtype=torch.float64) + 0.5
    images = scaling.images(batch.images).double()
    return images, batch.angles.double(), scaling.standardised(batch.heights).double(), random


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("at_once", [11, 4, 1])
def test_a_step_in_pieces_is_the_step_of_autograd_on_the_whole_weighted_batch(
    flights: list[Flight], at_once: int, checkpointing: bool
) -> None:
    torch.manual_seed(0)
    config = replace(TINY, dropout=0.0)
    plain = RegressionModel(config).double()
    model = RegressionModel(config, checkpointing=checkpointing).double()
    model.load_state_dict(plain.state_dict())
    images, angles, heights, weight = batch_of(flights)
    step = RegressionStep(
        model,
        HeightLoss("mse"),
        build_optimizer("adamw", model, 0.01, 0.1),
        resolve_precision("fp32", "cpu"),
        at_once,
    )
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        value = step(images, angles, heights, weight)
        error = plain(images, angles) - heights
        expected = (weight * error.square()).sum() / weight.sum()
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert float(value) == pytest.approx(float(expected.detach()), rel=1e-6)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", regress.LOSSES)
@pytest.mark.parametrize(("alpha", "delta", "gamma", "under"), [(0.5, 1.0, 1.5, 1.0), (0.2, 0.4, 0.8, 3.0)])
def test_every_loss_is_what_its_name_says(
    name: str, alpha: float, delta: float, gamma: float, under: float
) -> None:
    predicted, true = torch.randn(2, 50, dtype=torch.float64, generator=generator_for("loss")) * 1.5
    found = HeightLoss(name, alpha, delta, gamma, under)(predicted, true)
    for p, t, value in zip(predicted.tolist(), true.tolist(), found.tolist(), strict=True):
        size = abs(p - t)
        huber = size**2 / 2 if size <= delta else delta * (size - delta / 2)
        plain = {
            "mse": size**2,
            "mae": size,
            "mse_mae": alpha * size**2 + (1 - alpha) * size,
            "huber": huber,
            "huber_mae": alpha * huber + (1 - alpha) * size**gamma,
        }[name.removeprefix("weighted_")]
        weight = under if name.startswith("weighted_") and p < t else 1.0
        assert value == pytest.approx(weight * plain, rel=1e-5, abs=1e-5)


def adagrad_of_gpus(model: RegressionModel) -> torch.optim.Optimizer:
    return GpuAdagrad(model.parameters(), lr=torch.tensor(0.01), weight_decay=0.1)


@pytest.mark.parametrize("built", [*OPTIMIZERS, adagrad_of_gpus])
def test_a_step_whose_fp16_gradients_overflow_changes_no_weight_and_is_counted(
    flights: list[Flight], built: str | Callable[[RegressionModel], torch.optim.Optimizer]
) -> None:
    """With the scaler of a GPU, on numbers of a CPU: what is scaled is the loss, wherever it was computed."""
    torch.manual_seed(0)
    model = RegressionModel(replace(TINY, dropout=0.0))
    half = replace(resolve_precision("fp32", "cpu"), requested="fp16", applied="fp16")
    optimizer = build_optimizer(built, model, 0.01) if isinstance(built, str) else built(model)
    step = RegressionStep(model, HeightLoss("mse"), optimizer, half, 16)
    assert step.scaler.is_enabled()
    images, angles, heights, weight = (part.float() for part in batch_of(flights))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step(images, angles, torch.full_like(heights, 1e30), weight)
    assert step.overflows == 1
    assert_identical(dict(model.named_parameters()), before)
    while step.overflows < 20:  # until the scale fits
        counted = step.overflows
        step(images, angles, heights, weight)
        if step.overflows == counted:
            break
    assert any(not torch.equal(p, before[name]) for name, p in model.named_parameters())


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_are_what_plain_loops_give() -> None:
    random = np.random.default_rng(1)
    true, predicted = random.uniform(0.5, 3, 101), random.uniform(0.5, 3, 101)
    found = Heights.of(torch.from_numpy(predicted), torch.from_numpy(true))
    errors = [abs(p - t) for p, t in zip(predicted, true, strict=True)]
    mean = sum(true) / len(true)
    assert found.mae == pytest.approx(sum(errors) / len(errors))
    assert found.rmse == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(errors)))
    assert found.mape == pytest.approx(sum(e / t for e, t in zip(errors, true, strict=True)) / len(errors))
    assert found.r2 == pytest.approx(1 - sum(e * e for e in errors) / sum((t - mean) ** 2 for t in true))
    ranked = sorted(errors)
    assert found.quantiles == pytest.approx(
        {0.5: ranked[50], 0.9: ranked[90], 0.95: ranked[95], 0.99: ranked[99]}
    )
    assert found.to_dict()["error_p90"] == ranked[90]


@pytest.mark.parametrize("flat_field", [False, True])
def test_normalised_images_of_the_training_flights_have_mean_0_and_deviation_1(
    flights: list[Flight], flat_field: bool
) -> None:
    windows = Windows(flights, 1)
    scaling = Scaling.of(windows, flat_field=flat_field, zscore=True)
    every = windows.batch(range(len(windows)))
    images = scaling.images(every.images).double()
    assert abs(float(images.mean())) < 1e-5
    assert float(images.std(correction=0)) == pytest.approx(1, rel=1e-5)
    if flat_field:
        assert float(images.mean((0, 1)).abs().max()) < 1e-4
    heights = scaling.standardised(every.heights)
    torch.testing.assert_close(scaling.in_km(heights).float(), every.heights)
    assert abs(float(heights.mean())) < 1e-5


# --- data -----------------------------------------------------------------------------------------


def test_validated_windows_share_no_frame_with_those_trained_on(flights: list[Flight]) -> None:
    for frames in (1, 3, 5):
        training = Training.of(flights, frames)
        windows = training.windows
        assert len(training.valid) and len(training.train) > 3 * len(training.valid)

        def frames_of(
            numbers: torch.Tensor, windows: Windows = windows, frames: int = frames
        ) -> set[tuple[int, int]]:
            return {
                (int(windows.flight_of[n]), int(windows._starts[n]) + i)
                for n in numbers.tolist()
                for i in range(frames)
            }

        assert not frames_of(training.train) & frames_of(training.valid)


def test_an_epoch_has_each_training_window_once_in_an_order_of_its_own(flights: list[Flight]) -> None:
    training = Training.of(flights, 3)
    stream = Stream(training, 7, torch.device("cpu"))

    def heights(key: str, skip: int = 0) -> list[float]:
        return [h for batch in stream.epoch(key, skip) for h in batch.heights.tolist()]

    first = heights("1")
    assert sorted(first) == sorted(training.windows.heights[training.train].tolist())
    assert heights("1") == first and heights("2") != first
    assert heights("1", skip=3) == first[21:]
    assert len(stream) == math.ceil(len(training.train) / 7)


def test_augmentation_mirrors_images_and_the_azimuth_with_them() -> None:
    """Where a shadow points from its cloud follows from the azimuth, before and after."""
    images = torch.zeros(64, 2, 9, 9)
    azimuth = torch.linspace(5, 355, 64)
    angles = torch.stack([torch.full_like(azimuth, 40.0), azimuth], dim=-1)[:, None].expand(64, 2, 2)
    for n, a in enumerate(torch.deg2rad(azimuth + 180)):
        images[n, :, 4 - round(3 * math.cos(a)), 4 + round(3 * math.sin(a))] = -5.0  # north is up
    seen, turned = augmented(images, angles, generator_for("mirror"))
    assert torch.equal(turned[..., 0], angles[..., 0])
    for n in range(64):
        row, column = divmod(int(seen[n, 0].argmin()), 9)
        away = math.radians(float(turned[n, 0, 1]) + 180)
        assert (row - 4, column - 4) == (-round(3 * math.cos(away)), round(3 * math.sin(away)))
    changed = (turned[..., 1] != angles[..., 1]).any(1)
    assert 30 < int(changed.sum()) < 64
    again, _ = augmented(images, angles, generator_for("mirror"))
    assert torch.equal(again, seen)


# --- compile --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_steps_give_the_same_numbers_and_their_checkpoints_load_anywhere(
    flights: list[Flight], tmp_path: Path, checkpointing: bool
) -> None:
    brief = replace(QUICK, epochs=1, pretrain=False, gradient_checkpointing=checkpointing)
    report = Recorder()
    eager = train(flights, tmp_path / "eager", brief)
    compiled = train(flights, tmp_path / "compiled", replace(brief, compile="default"), report=report)
    assert report.options["compile"][1] == "default", report.options["compile"]
    for ours, theirs in zip(compiled.predictions["final"][0], eager.predictions["final"][0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    found = weights(tmp_path / "compiled" / "best_model.pt")
    assert not any("_orig_mod" in name for name in found)
    resumed = train(flights, tmp_path / "compiled", replace(brief, epochs=2), resume=True)
    assert resumed.stopped == "finished"


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_on_a_gpu_the_host_never_waits_for_a_step(
    flights: list[Flight], precision: str, optimizer: str
) -> None:
    device = torch.device("cuda")
    model = RegressionModel(TINY).to(device)
    applied = resolve_precision(precision, device)
    step = RegressionStep(model, HeightLoss("mse"), build_optimizer(optimizer, model, 0.01), applied, 4)
    settings = replace(QUICK, flat_field_correction=True)
    data = Prepared(plan_stages(flights, settings)[0], TINY.temporal_frames, settings, device)
    for number, batch in enumerate(itertools.islice(data.stream.epoch("key"), 3)):
        if number == 2:
            torch.cuda.set_sync_debug_mode("error")
        try:
            step(*data.inputs(batch, "key"))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert step.overflows >= 0


@pytest.mark.triton
@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_on_a_gpu_every_format_trains_compiled_or_frame_by_frame_and_resumes(
    flights: list[Flight], tmp_path: Path, precision: str
) -> None:
    settings = replace(QUICK, pretrain=False, precision=precision, gradient_checkpointing=True, epochs=3)
    settings = replace(settings, compile="reduce-overhead", resume_every=0.0)
    report = Recorder()
    torch.backends.cudnn.deterministic = True
    whole = train(flights, tmp_path / "whole", settings, device="cuda", report=report)
    assert report.options["compile"][1] == "default"
    assert "fail with gradient checkpointing" in str(report.options["compile"][2])
    assert all(math.isfinite(entry["loss"]) for entry in whole.history)
    with pytest.raises(Killed):
        train(flights, tmp_path / "cut", settings, device="cuda", stop=Stop(7, die=True))
    train(flights, tmp_path / "cut", settings, device="cuda", resume=True)
    assert_identical(
        weights(tmp_path / "cut" / "best_model.pt"), weights(tmp_path / "whole" / "best_model.pt")
    )
