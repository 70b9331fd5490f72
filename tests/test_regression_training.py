"""Regression on flights: it learns, is judged on what nobody trained on, and resumes as if never stopped."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_train_loop import Killed, Recorder, Stop, assert_identical

from kgops.errors import BadInput, BadJob
from kgops.flights.making import Sky, make_flights
from kgops.flights.reading import Flight, read_flights
from kgops.flights.windows import Windows
from kgops.jobs import regressing
from kgops.jobs.regression_config import RegressionConfig
from kgops.models.regression import RegressionModel
from kgops.training import checkpoints
from kgops.training.loop import Diverged
from kgops.training.optimizers import build_optimizer
from kgops.training.precision import resolve_precision
from kgops.training.regression import Regression, regress
from kgops.training.regression_checkpoints import read_trained
from kgops.training.regression_data import Scaling, Stream, Training, augmented, generator_for
from kgops.training.regression_figures import HeightLoss, Heights, judge
from kgops.training.regression_settings import RegressionSettings
from kgops.training.regression_stages import plan_stages
from kgops.training.regression_step import RegressionStep, resolve_compile

torch.set_num_threads(1)

TINY = RegressionConfig(
    16, 16, temporal_frames=3, architecture="ssm", channels=(4, 4, 8), film_width=4, states=2, dropout=0.2
)
QUICK = RegressionSettings(
    epochs=2, loo_epochs=1, batch_size=8, learning_rate=0.01, warmup_steps=3, augment=True
)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> list[Flight]:
    folder = tmp_path_factory.mktemp("flights")
    make_flights(folder, 3, Sky(frames=24, size=16), seed=4)
    return read_flights(folder, TINY.temporal_frames)


def train(
    flights: list[Flight], folder: Path, settings: RegressionSettings = QUICK, **options: Any
) -> Regression:
    config = options.pop("config", TINY)
    report = options.pop("report", None) or Recorder()
    stop = options.pop("stop", lambda: False)
    return regress(flights, config, settings, folder, report, stop, **options)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(checkpoints.read_checkpoint(path).model)


# --- it learns ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("architecture", ["transformer", "gnn", "ssm", "cnn"])
def test_every_architecture_learns_heights_of_a_flight_it_never_saw(
    tmp_path: Path, architecture: str
) -> None:
    make_flights(tmp_path / "data", 5, Sky(frames=160))
    flights = read_flights(tmp_path / "data", 2)
    config = RegressionConfig(
        32, 32, temporal_frames=2, architecture=architecture, channels=(16, 16, 32), dropout=0.0
    )
    settings = RegressionSettings(
        epochs=9, scheduler="cosine", learning_rate=3e-3, warmup_steps=20, pretrain=False, augment=True
    )
    found = train(flights, tmp_path / "out", settings, config=config).reports["final"]
    assert found.flight == "flight_05"
    assert found.model.r2 is not None and found.model.r2 > 0.5
    assert found.model.rmse < 0.7 * found.mean_predictor.rmse
    assert found.verdict.startswith("on flight_05, which was held out, R² is 0.")


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


@pytest.mark.parametrize("name", regressing.LOSSES)
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


def test_a_step_whose_fp16_gradients_overflow_changes_no_weight_and_is_counted(flights: list[Flight]) -> None:
    """With the scaler of a card, on numbers of a CPU: what is scaled is the loss, wherever it was computed."""
    torch.manual_seed(0)
    model = RegressionModel(replace(TINY, dropout=0.0))
    half = replace(resolve_precision("fp32", "cpu"), requested="fp16", effective="fp16")
    step = RegressionStep(model, HeightLoss("mse"), build_optimizer("adamw", model, 0.01), half, 16)
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


# --- figures --------------------------------------------------------------------------------------


def test_figures_are_what_plain_loops_give() -> None:
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


def test_the_mean_predictor_stands_beside_the_model_and_a_negative_r2_is_called_what_it_is() -> None:
    true = torch.tensor([1.0, 2.0, 3.0, 2.0])
    good = judge("a", true + 0.1, true, 2.5)
    assert good.mean_predictor.rmse == pytest.approx(math.sqrt((2.25 + 0.25 + 0.25 + 0.25) / 4))
    assert good.verdict == (
        "on a, which was held out, R² is 0.980: RMSE 0.1 km against 0.866 km for always saying 2.5 km, the mean of "
        "the training flights."
    )
    assert "worse than always saying 2.5 km" in judge("a", true + 1.5, true, 2.5).verdict
    between = judge("a", torch.full((4,), 1.2), true, 4.0).verdict
    assert "worse than knowing that flight's own mean (R² -1.280 is below 0), though better than" in between
    flat = judge("a", true, torch.ones(4), 1.0)
    assert flat.model.r2 is None and "R² has no meaning" in flat.verdict
    assert judge("a", true, torch.tensor([0.0, 1, 2, 3]), 1.0).model.mape is None


# --- data -----------------------------------------------------------------------------------------


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


def test_without_normalising_images_stay_as_they_are(flights: list[Flight]) -> None:
    windows = Windows(flights, 2)
    batch = windows.batch([0, 1])
    assert torch.equal(
        Scaling.of(windows, flat_field=False, zscore=False).images(batch.images), batch.images.float()
    )


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


# --- stages ---------------------------------------------------------------------------------------


def test_what_is_held_out_is_in_no_stage_trained_on(flights: list[Flight]) -> None:
    stages = plan_stages(flights, replace(QUICK, loo=True, overweight_factor=3.5))
    assert [stage.name for stage in stages] == [
        *("pretrain", "final", "loo flight_01", "loo flight_02", "loo flight_03")
    ]
    for stage in stages:
        assert stage.held_out not in (*stage.flights, *stage.scaled_by)
    pretrain, final, *folds = stages
    assert [flight.name for flight in pretrain.flights] == ["flight_01"] and not pretrain.judged
    assert final.heavier == {"flight_01": 3.5} and not final.fresh
    assert {fold.held_out.name for fold in folds} == {flight.name for flight in flights}
    assert all(fold.fresh and fold.epochs == QUICK.loo_epochs for fold in folds)


def test_naming_a_flight_to_train_on_that_is_held_out_is_refused(flights: list[Flight]) -> None:
    for key in ("pretrain_flight", "overweight_flight"):
        with pytest.raises(BadInput, match=f"{key} and the flight held out are both 'flight_03'"):
            plan_stages(flights, replace(QUICK, **{key: "flight_03"}))  # type: ignore[arg-type]
    named = plan_stages(flights, replace(QUICK, pretrain_flight="flight_03", validation_flight="flight_01"))
    assert named[0].flights[0].name == "flight_03"


def test_without_final_training_the_pretrained_network_is_judged(
    flights: list[Flight], tmp_path: Path
) -> None:
    found = train(flights, tmp_path, replace(QUICK, final=False))
    assert list(found.reports) == ["pretrain"] and found.reports["pretrain"].flight == "flight_03"
    only = train(flights, tmp_path / "loo", replace(QUICK, final=False, pretrain=False, loo=True))
    assert [found.flight for found in only.reports.values()] == ["flight_01", "flight_02", "flight_03"]


def test_final_training_starts_from_the_pretrained_weights(flights: list[Flight], tmp_path: Path) -> None:
    still = replace(QUICK, learning_rate=1e-12, weight_decay=0.0)
    train(flights, tmp_path, still)
    first, last = weights(tmp_path / "pretrained_model.pt"), weights(tmp_path / "best_model.pt")
    torch.manual_seed(still.seed)
    fresh = RegressionModel(TINY).state_dict()
    for name in first:
        torch.testing.assert_close(first[name], last[name], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(first[name], fresh[name], rtol=1e-6, atol=1e-8)


def test_a_heavier_flight_pulls_the_heights_towards_its_own(flights: list[Flight], tmp_path: Path) -> None:
    """A network that sees nothing says the weighted mean."""
    blind = replace(TINY, angles_mode="none", architecture="cnn", dropout=0.0, channels=(1, 1, 1))
    means = {flight.name: float(flight.heights.mean()) for flight in flights[:2]}
    low, high = sorted(means, key=means.__getitem__)
    said = {}
    for name in (low, high):
        settings = replace(
            QUICK,
            pretrain=False,
            overweight_flight=name,
            overweight_factor=50.0,
            epochs=15,
            loss="mse",
            augment=False,
            weight_decay=0.0,
            warmup_steps=0,
            batch_size=40,
            learning_rate=0.1,
        )
        train(flights, tmp_path / name, settings, config=blind)
        trained = read_trained(tmp_path / name / "best_model.pt")
        said[name] = float(trained.heights(torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 2)))
    assert said[low] < said[high]


# --- stopped and resumed --------------------------------------------------------------------------

FILES = ("pretrained_model.pt", "best_model.pt", *(f"loo/flight_0{n}.pt" for n in (1, 2, 3)))


@pytest.fixture(scope="module")
def never_stopped(flights: list[Flight], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Regression]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, train(flights, folder, replace(QUICK, loo=True))


@pytest.mark.parametrize("nth", [2, 4, 6, 11, 23])
@pytest.mark.parametrize("die", [True, False], ids=["killed", "stopped"])
def test_a_run_cut_short_anywhere_and_resumed_has_the_weights_of_one_never_cut(
    flights: list[Flight],
    never_stopped: tuple[Path, Regression],
    tmp_path: Path,
    nth: int,
    die: bool,
) -> None:
    folder, whole = never_stopped
    settings = replace(QUICK, loo=True, resume_every_s=0.0 if die else 1e9)
    if die:
        with pytest.raises(Killed):
            train(flights, tmp_path, settings, stop=Stop(nth, die=True))
    else:
        assert train(flights, tmp_path, settings, stop=Stop(nth)).stopped == "requested"
    torch.manual_seed(999)  # another process has other random states
    report = Recorder()
    again = train(flights, tmp_path, settings, resume=True, report=report)
    assert again.stopped == "finished"
    assert any("resumed in stage" in note for note in report.notes)
    for name in FILES:
        assert_identical(weights(tmp_path / name), weights(folder / name))
    assert again.predictions == whole.predictions
    assert [e["loss"] for e in again.history] == [e["loss"] for e in whole.history]


def test_a_learning_rate_that_fell_stays_down_after_a_resume(flights: list[Flight], tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=13, pretrain=False, learning_rate=0.3, patience=0, resume_every_s=0.0)
    whole = train(flights, tmp_path / "whole", settings)
    rates = [entry["learning_rate"] for entry in whole.history]
    assert rates[-1] < rates[1], "this test needs a plateau"
    with pytest.raises(Killed):
        train(flights, tmp_path / "cut", settings, stop=Stop(55, die=True))
    again = train(flights, tmp_path / "cut", settings, resume=True)
    assert [entry["learning_rate"] for entry in again.history] == rates
    assert again.predictions == whole.predictions


def test_a_finished_run_is_not_trained_again(
    flights: list[Flight], never_stopped: tuple[Path, Regression]
) -> None:
    folder, whole = never_stopped
    report = Recorder()
    again = train(flights, folder, replace(QUICK, loo=True), resume=True, report=report)
    assert again.predictions == whole.predictions and not report.metrics
    assert again.reports["final"] == whole.reports["final"]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    flights: list[Flight], tmp_path: Path
) -> None:
    brief = replace(QUICK, epochs=1, pretrain=False)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(flights, tmp_path / name, replace(brief, seed=seed))
    a, b, c = (weights(tmp_path / name / "best_model.pt") for name in "abc")
    assert_identical(a, b)
    assert not torch.equal(a["head.hidden.weight"], c["head.hidden.weight"])


def test_a_checkpoint_of_another_training_or_other_flights_is_refused(
    flights: list[Flight], tmp_path: Path
) -> None:
    brief = replace(QUICK, epochs=1, pretrain=False)
    train(flights, tmp_path, brief)
    with pytest.raises(BadInput, match="its loss, seed differ"):
        train(flights, tmp_path, replace(brief, seed=9, loss="mae"), resume=True)
    with pytest.raises(BadInput, match="its network differs"):
        train(flights, tmp_path, brief, config=replace(TINY, architecture="gnn"), resume=True)
    make_flights(tmp_path / "others", 3, Sky(frames=24, size=16), seed=5)
    with pytest.raises(BadInput, match="its flights differ"):
        train(read_flights(tmp_path / "others", 3), tmp_path, brief, resume=True)


def test_smaller_batches_and_pieces_go_on_from_a_checkpoint_and_fewer_frames_start_anew(
    flights: list[Flight], tmp_path: Path
) -> None:
    settings = replace(QUICK, epochs=3, pretrain=False)
    train(flights, tmp_path, settings, stop=Stop(7))
    report = Recorder()
    smaller = replace(settings, batch_size=4, microbatch=2, gradient_checkpointing=True)
    found = train(flights, tmp_path, smaller, resume=True, stop=Stop(5), report=report)
    assert found.stopped == "requested" and any("resumed in stage final" in note for note in report.notes)
    report = Recorder()
    fewer = train(
        flights, tmp_path, smaller, config=replace(TINY, temporal_frames=2), resume=True, report=report
    )
    assert fewer.stopped == "finished" and [e["epoch"] for e in fewer.history] == [1, 2, 3]
    assert "the training starts anew" in report.notes[0]


def test_the_best_epochs_weights_are_kept_and_training_stops_without_a_gain(
    flights: list[Flight], tmp_path: Path
) -> None:
    settings = replace(QUICK, epochs=60, pretrain=False, patience=2, learning_rate=0.05)
    found = train(flights, tmp_path, settings)
    losses = [entry["valid"]["loss"] for entry in found.history]
    best = min(range(len(losses)), key=losses.__getitem__)
    assert len(losses) == best + 3 < 60
    trained = read_trained(tmp_path / "best_model.pt")
    assert trained.epoch == best + 1
    batch = Windows([flights[2]], 3).batch([4, 5])
    assert trained.heights(batch.images, batch.angles).tolist() == pytest.approx(
        found.predictions["final"][0][4:6], rel=1e-6
    )


def test_a_gain_below_the_least_counts_as_none(flights: list[Flight], tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=10, pretrain=False, patience=1, min_delta=1e6)
    found = train(flights, tmp_path, settings)
    assert len(found.history) == 2 and read_trained(tmp_path / "best_model.pt").epoch == 1


def test_the_learning_rate_rises_over_the_warmup_steps(flights: list[Flight], tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=3, pretrain=False, warmup_steps=12, scheduler="constant")
    report = Recorder()
    train(flights, tmp_path, settings, report=report)
    rates = [value for name, value, _ in report.metrics if name == "learning_rate"]
    batches = len(Stream(Training.of(flights[:2], 3), 8, torch.device("cpu")))
    assert rates == pytest.approx([0.01 * min(1, n * batches / 12) for n in (1, 2, 3)])


def test_a_warmup_longer_than_the_training_is_told(flights: list[Flight], tmp_path: Path) -> None:
    report = Recorder()
    train(flights, tmp_path, replace(QUICK, epochs=1, pretrain=False, warmup_steps=2000), report=report)
    assert report.notes[0] == (
        "stage final has 5 steps and warmup_steps is 2,000: the learning rate never reaches 0.01."
    )


def test_divergence_stops_the_run_and_says_what_to_try(flights: list[Flight], tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=20, optimizer="sgd", learning_rate=1e20, warmup_steps=0, loss="mse")
    with pytest.raises(Diverged, match="the loss of epoch") as caught:
        train(flights, tmp_path, settings)
    assert "a learning rate below 3.3e+19 or more warmup_steps" in (caught.value.hint or "")


def test_all_faulty_settings_are_reported_at_once_and_names_are_those_of_the_job() -> None:
    with pytest.raises(BadJob) as caught:
        RegressionSettings(loss="hinge", epochs=0, learning_rate=float("nan"), loss_alpha=2, patience=-1)
    said = " ".join(caught.value.problems)
    for part in ("loss: 'hinge'", "epochs: 0", "learning_rate: nan", "loss_alpha: 2", "patience: -1"):
        assert part in said
    names = {key.name for key in regressing.KEYS} | regressing.LEVERS_OF_REGRESS
    renamed = {"loss", "patience", "min_delta", "resume_every_s"}
    assert RegressionSettings().to_dict().keys() - renamed <= names


# --- compile --------------------------------------------------------------------------------------


def test_graphs_beside_checkpointing_and_compiling_without_a_card_are_corrected_with_the_reason() -> None:
    assert resolve_compile("off", torch.device("cpu"), True) == ("off", None)
    mode, why = resolve_compile("reduce-overhead", torch.device("cpu"), True)
    assert mode in ("default", "off") and why is not None


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_steps_give_the_same_numbers_and_their_checkpoints_load_anywhere(
    flights: list[Flight], tmp_path: Path, checkpointing: bool
) -> None:
    brief = replace(QUICK, epochs=1, pretrain=False, gradient_checkpointing=checkpointing)
    report = Recorder()
    eager = train(flights, tmp_path / "eager", brief)
    compiled = train(flights, tmp_path / "compiled", replace(brief, compile="default"), report=report)
    assert report.levers["compile"][1] == "default", report.levers["compile"]
    for ours, theirs in zip(compiled.predictions["final"][0], eager.predictions["final"][0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    found = weights(tmp_path / "compiled" / "best_model.pt")
    assert not any("_orig_mod" in name for name in found)
    resumed = train(flights, tmp_path / "compiled", replace(brief, epochs=2), resume=True)
    assert resumed.stopped == "finished"


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_on_a_card_every_format_trains_compiled_or_frame_by_frame_and_resumes(
    flights: list[Flight], tmp_path: Path, precision: str
) -> None:
    settings = replace(QUICK, pretrain=False, precision=precision, gradient_checkpointing=True, epochs=3)
    settings = replace(settings, compile="reduce-overhead", resume_every_s=0.0)
    report = Recorder()
    torch.backends.cudnn.deterministic = True
    whole = train(flights, tmp_path / "whole", settings, device="cuda", report=report)
    assert report.levers["compile"][1] == "default"
    assert "do not go with gradient checkpointing" in str(report.levers["compile"][2])
    assert all(math.isfinite(entry["loss"]) for entry in whole.history)
    with pytest.raises(Killed):
        train(flights, tmp_path / "cut", settings, device="cuda", stop=Stop(7, die=True))
    train(flights, tmp_path / "cut", settings, device="cuda", resume=True)
    assert_identical(
        weights(tmp_path / "cut" / "best_model.pt"), weights(tmp_path / "whole" / "best_model.pt")
    )


# --- the worker -----------------------------------------------------------------------------------

JOB = """workload = "regress"
[regress]
data_directory = {data}
output_directory = {out}
save_name = "first"
epochs = {epochs}
resume_every = 0.05
early_stopping_patience = 0
device = "cpu"
left_out = ["hpc_mode"]
[levers]
batch_size = 8
memory_optimized = true
temporal_frames = 3
{levers}
[limits]
{limits}
"""


def worker(folder: Path, **change: Any) -> tuple[list[str], dict[str, str]]:
    folder.mkdir(exist_ok=True)
    data = change.pop("data", folder.parent / "data")
    if not data.exists():
        make_flights(data, 3, Sky(frames=24, size=16))
    filled = {"epochs": 2, "levers": "", "limits": "", **change}
    out = json.dumps(str(folder / "out"))
    (folder / "job.toml").write_text(JOB.format(data=json.dumps(str(data)), out=out, **filled))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return [sys.executable, "-P", "-m", "kgops.workers.regress", "job.toml"], environment


def by_hand(folder: Path, **change: Any) -> tuple[int, list[dict[str, Any]]]:
    argv, environment = worker(folder, **change)
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def told(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def test_the_worker_leaves_its_files_and_says_what_became_of_every_lever(tmp_path: Path) -> None:
    levers = 'precision = "fp16"\nnum_workers = 4\ncuda_graphs = true\nmicrobatch = 3\ngradient_checkpointing = true'
    code, events = by_hand(tmp_path / "run", levers=levers)
    assert code == 0
    results = tmp_path / "run" / "results"
    kept = (
        *("config.json", "training_history.json", "test_results.json", "predictions.tsv"),
        *("best_model.pt", "pretrained_model.pt"),
    )
    for name in kept:
        assert (tmp_path / "run/out/first" / name).read_bytes() == (results / name).read_bytes(), name
    assert (results / "manifest.json").exists()
    config = json.loads((results / "config.json").read_text())
    assert config["model"]["channels"] == [32, 64, 128] and config["data"]["flights"][0] == "flight_01"
    found = {name: (o["effective"], o["reason"]) for name, o in config["optimizations"].items()}
    assert found["precision"][0] == "fp32" and "fp16 products" in found["precision"][1]
    assert found["gradient_checkpointing"] == ("on", "frame by frame")
    assert found["microbatch"] == (3, None)
    assert found["cuda_graphs"] == ("off", "regression has no such lever")
    assert found["num_workers"][0] == 1
    figures = events[-1]["figures"]
    judged = json.loads((results / "test_results.json").read_text())["final"]
    assert figures["test_rmse"] == judged["model"]["rmse"]
    assert figures["mean_predictor_rmse"] == judged["mean_predictor"]["rmse"]
    notes = [event["text"] for event in told(events, "note")]
    assert "left out of the configuration: hpc_mode." in notes
    assert any(note.startswith("On flight_03, which was held out,") for note in notes)
    rows = (results / "predictions.tsv").read_text().splitlines()
    assert len(rows) == 1 + judged["model"]["count"] and rows[1].startswith("final\tflight_03\t")


def test_a_person_reads_at_the_end_what_the_model_is_worth(tmp_path: Path) -> None:
    argv, environment = worker(tmp_path / "run", epochs=1)
    environment["KGOPS_EVENTS"] = str(tmp_path / "events.jsonl")
    done = subprocess.run(argv, cwd=tmp_path / "run", env=environment, capture_output=True, text=True)
    verdict, figures = done.stdout.splitlines()
    assert verdict.startswith("On flight_03, which was held out, ") and "the mean of the training" in verdict
    assert "test_r2" in figures and "mean_predictor" not in figures


def wait_until(look: Callable[[], bool]) -> None:
    limit = time.monotonic() + 50
    while not look():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert by_hand(folder, epochs=6)[0] == 0
    return folder


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_ended_in_the_middle_goes_on_to_the_same_weights(
    undisturbed: Path, tmp_path: Path, how: signal.Signals
) -> None:
    cut = tmp_path / "cut"
    argv, environment = worker(cut, epochs=6, data=undisturbed.parent / "data")
    with subprocess.Popen(argv, cwd=cut, env=environment, stdout=subprocess.PIPE) as process:
        wait_until(lambda: bool(list(cut.glob("results/checkpoints/resume_000000[2-5]_*.pt"))))
        process.send_signal(how)
        assert process.wait() == -how
    assert not (cut / "results" / "manifest.json").exists()
    code, events = by_hand(cut, epochs=6, data=undisturbed.parent / "data")
    assert code == 0 and any("resumed in stage" in event["text"] for event in told(events, "note"))
    for name in ("pretrained_model.pt", "best_model.pt"):
        assert_identical(weights(cut / "results" / name), weights(undisturbed / "results" / name))


def test_a_worker_without_enough_memory_says_so(tmp_path: Path) -> None:
    make_flights(tmp_path / "data", 2, Sky(frames=20, size=160))
    limits = "memory_mib = 900"
    code, events = by_hand(tmp_path / "run", levers="", limits=limits, data=tmp_path / "data", epochs=1)
    assert code == 1
    assert "host memory ran out" in told(events, "out_of_memory")[0]["detail"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("bad.npz", b"", "bad.npz is damaged"),
        ("short", {"frames": np.ones((2, 8, 8))}, "has 2 frames, fewer than a window of 3"),
        (None, None, "has no flights"),
    ],
    ids=["damaged", "short", "empty"],
)
def test_bad_flights_fail_the_worker_with_file_and_reason(
    tmp_path: Path, name: str | None, content: Any, said: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if isinstance(content, bytes):
        (data / str(name)).write_bytes(content)
    elif content is not None:
        columns: dict[str, Any] = {
            n: np.arange(2.0) for n in ("solar_zenith", "solar_azimuth", "height", "time")
        }
        np.savez(data / f"{name}.npz", **content, **columns)
    code, events = by_hand(tmp_path / "run", data=data)
    assert code == 2
    reason = told(events, "failed")[0]["reason"]
    assert said in reason and str(data) in reason
