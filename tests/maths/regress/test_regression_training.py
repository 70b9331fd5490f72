"""Regression on flights: it learns, is judged on what nobody trained on, and resumes as if never stopped."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from recording import Killed, Recorder, Stop, assert_identical
from tiny_regression import QUICK, TINY, read_trained, train, weights

from kgops.errors import BadInput
from kgops.maths.regress.batches import Windows
from kgops.maths.regress.flights import Flight, read_flights
from kgops.maths.regress.loop import Regression
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import RegressionSettings, plan_stages
from kgops.maths.train.loop import Diverged
from kgops.workloads.regress.job import RegressionConfig

# --- it learns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "architecture",
    ["transformer", *(pytest.param(one, marks=pytest.mark.long) for one in ("gnn", "ssm", "cnn"))],
)
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
        with pytest.raises(BadInput, match=f"{key} and the held-out flight are both 'flight_03'"):
            plan_stages(flights, replace(QUICK, **{key: "flight_03"}))  # type: ignore[arg-type]
    named = plan_stages(flights, replace(QUICK, pretrain_flight="flight_03", validation_flight="flight_01"))
    assert named[0].flights[0].name == "flight_03"


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
    plain = RegressionSettings(epochs=15, pretrain=False, loss_type="mse", weight_decay=0.0)
    steps = replace(plain, warmup_steps=0, batch_size=40, learning_rate=0.1, overweight_factor=50.0)
    for name in (low, high):
        train(flights, tmp_path / name, replace(steps, overweight_flight=name), config=blind)
        trained = read_trained(tmp_path / name / "best_model.pt")
        said[name] = float(trained.heights(torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 2)))
    assert said[low] < said[high]


# --- stopped and resumed --------------------------------------------------------------------------


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
    settings = replace(QUICK, loo=True, resume_every=0.0 if die else 1e9)
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
    for name in ("pretrained_model.pt", "best_model.pt", *(f"loo/flight_0{n}.pt" for n in (1, 2, 3))):
        assert_identical(weights(tmp_path / name), weights(folder / name))
    assert again.predictions == whole.predictions
    assert [e["loss"] for e in again.history] == [e["loss"] for e in whole.history]


def test_a_learning_rate_that_fell_stays_down_after_a_resume(flights: list[Flight], tmp_path: Path) -> None:
    settings = replace(
        QUICK, epochs=13, pretrain=False, learning_rate=0.3, early_stopping_patience=0, resume_every=0.0
    )
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
    with pytest.raises(BadInput, match="its loss_type, seed differ"):
        train(flights, tmp_path, replace(brief, seed=9, loss_type="mae"), resume=True)
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
    assert "training starts at epoch 1" in report.notes[0]


def test_the_best_epochs_weights_are_kept_and_training_stops_without_a_gain(
    flights: list[Flight], tmp_path: Path
) -> None:
    settings = replace(QUICK, epochs=60, pretrain=False, early_stopping_patience=2, learning_rate=0.05)
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


def test_divergence_stops_the_run_and_says_what_to_try(flights: list[Flight], tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=20, optimizer="sgd", learning_rate=1e20, warmup_steps=0, loss_type="mse")
    with pytest.raises(Diverged, match="the loss of epoch") as caught:
        train(flights, tmp_path, settings)
    assert "a learning rate below 3.3e+19 or more warmup_steps" in (caught.value.hint or "")
