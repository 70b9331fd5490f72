"""What a new run can set: values as their options are declared, a pipeline by a job file that really works, filtering
with what it leaves counted meanwhile, and a regression as on the command line."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from driving import Console
from screen_driving import open_screens
from test_screens_new_run import opened, turn, write

from kgops.cli import run_regress
from kgops.present.draft_fields import BadField
from kgops.present.drafts import Draft, job_of
from kgops.present.what_if import WhatIf, startable, step
from kgops.settings import Home
from kgops.workloads import configurations
from screens.new_run import NewRun
from storage.database import Connection


async def test_rate_seed_model_and_label_are_in_the_command_and_in_its_job(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (160, 40)) as seen:
        await opened(seen)
        await write(seen, "learning_rate", "0.02")
        await write(seen, "seed", "7")
        await write(seen, "label", "a try of mine")
        await turn(seen, "model", "TransE")
        await turn(seen, "optimizer", "adagrad")
        await seen.until_shows("--optimizer adagrad", "--label 'a try of mine'", "no memory estimate")
        await seen.press("y")
        await seen.until_shows("sent to the terminal: ")
        words = shlex.split(seen.app.clipboard)
        job = run_cli(*words[1:], "--dry-run", "--json").json()["job"]
        assert job["label"] == "a try of mine"
        wanted = {"engine": "pykeen", "model": "TransE", "learning_rate": 0.02, "seed": 7}
        assert wanted.items() <= job["train"].items()
        assert job["train"]["optimizer"] == "adagrad"


@pytest.mark.parametrize(
    ("workload", "field", "text", "why"),
    [
        ("train", "learning_rate", "fast", "expected a number, found 'fast'"),
        ("train", "learning_rate", "-1", "must be above 0, found -1"),
        ("train", "learning_rate", "nan", "must be a finite number"),
        ("train", "seed", "0.5", "expected a whole number, found '0.5'"),
        ("train", "seed", "-3", "must be at least 0, found -3"),
        ("train", "optimizer", "lion", "must be one of adam, adamw, adagrad, sgd; found 'lion'"),
        ("train", "loss", "hinge", "must be one of kvsall-bce"),
        ("train", "label", "x" * 101, "longer than 100 characters"),
        ("train", "num_epochs", "9" * 30, "must be at most"),
        ("pipeline", "max_triples", "0", "must be at least 1, found 0"),
        ("pipeline", "top_k", "few", "expected a whole number, found 'few'"),
        ("regress", "learning_rate", "0", "must be above 0, found 0"),
        ("regress", "config", "colab_optimised", "did you mean 'colab_optimized'?"),
        ("regress", "config", "missing.yaml", "missing.yaml"),
        ("regress", "data_directory", "nowhere", "nowhere"),
        ("regress", "epochs", "many", "expected a whole number, found 'many'"),
        ("regress", "epochs", "0", "must be at least 1, found 0"),
        ("regress", "architecture", "rnn", "must be one of"),
        ("tracin", "test_triple", "vitamin treats", "must be head, relation and tail"),
        ("exec", "label", "y" * 101, "longer than 100 characters"),
    ],
)
def test_a_wrong_value_says_why_at_its_field(workload: str, field: str, text: str, why: str) -> None:
    fields = {"data": "nations", "command": "true", "run": "1", field: text}
    with pytest.raises(BadField) as wrong:
        job_of(Draft(workload, fields))
    assert wrong.value.field == field
    assert why in wrong.value.message


async def test_a_pipeline_is_planned_and_its_command_is_a_file_that_works(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (160, 50)) as seen:
        await opened(seen)
        await turn(seen, "workload", "pipeline")
        await turn(seen, "num_epochs", "1", by="left")
        await write(seen, "embedding_dim", "16")
        await write(seen, "max_triples", "2")
        await write(seen, "label", "both")
        await seen.go_to("block")
        await seen.press("left")
        await seen.until_shows("to spare", "kgops run ", "y writes this job file")
        assert not (run_cli.home / "jobs").exists()
        await seen.press("y")
        await seen.until_shows("sent to the terminal: kgops run ")
        words = shlex.split(seen.app.clipboard)
        job = run_cli(*words[1:], "--dry-run", "--json").json()["job"]
        assert job["label"] == "both"
        assert job["options"]["block"] == 128
        assert job["pipeline"]["train"]["embedding_dim"] == 16
        assert job["pipeline"]["tracin"]["max_triples"] == 2
        before = Path(words[2]).read_text()
        await seen.press("x", "y")
        await seen.until(lambda: not isinstance(seen.app.screen, NewRun), "the run's screen")
        await seen.until_shows("1 pipeline both")
        assert Path(words[2]).read_text() == before
    assert run_cli.ended(1).state == "succeeded"
    assert run_cli("influences", "1").code == 0


@pytest.mark.parametrize("workload", ["train", "pipeline"])
def test_every_value_that_arrows_reach_is_one_of_the_option(home: Path, workload: str) -> None:
    draft = Draft(workload, {"data": "nations"}, gpu="t4")
    asks = WhatIf(Home(home))
    answer = asks.answer(draft)
    assert answer.options is not None and answer.trouble is None
    assert {"batch_size", *({"block", "tests_at_once"} if workload == "pipeline" else ())} <= set(
        answer.options
    )
    for option in answer.options.values():
        for by in (-1, 1):
            changed = draft.with_option(option.name, step(option, by))
            job_of(changed)  # raises where it is no value of the option
            assert asks.answer(changed).trouble is None, option


# --- filtering ---


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"n_hops": "3"}, {"n_hops": 3, "path_filtering": False}),
        ({"max_total_path_length": "4"}, {"n_hops": 2, "path_filtering": True, "max_total_path_length": 4}),
        ({"n_hops": "1", "strict": "ends"}, {"strict_hop_constraint": True, "strict_path_filtering": False}),
        (
            {"max_total_path_length": "3", "strict": "both"},
            {"strict_hop_constraint": True, "strict_path_filtering": True},
        ),
    ],
)
def test_a_field_of_filtering_turns_it_on(fields: dict[str, str], settings: dict[str, object]) -> None:
    traced = job_of(Draft("tracin", {"run": "1", **fields}))
    assert traced.options["filtering"] is True
    assert {name: traced.settings[name] for name in settings} == settings
    pipeline = job_of(Draft("pipeline", {"data": "nations", **fields}))
    assert pipeline.options["filtering"] is True
    assert {**settings, **pipeline.settings["tracin"]} == pipeline.settings["tracin"] | settings


async def test_counts_stand_beside_the_fields_and_the_command_has_their_flags(run_cli: Console) -> None:
    train = ("run", "train", "--dataset", "nations", "--num-epochs", "1", "--embedding-dim", "16")
    assert run_cli(*train, "--embedding-height", "4", "--embedding-width", "4").code == 0
    async with open_screens(run_cli.home, (250, 40)) as seen:  # wide, so that no sentence is wrapped
        await opened(seen)
        await turn(seen, "workload", "tracin")
        await write(seen, "test_triple", "usa, embassy, china")
        await seen.until_shows("1: ", " · 2: ", "of 1,592 left")
        await seen.go_to("n_hops")
        await seen.press("right")
        await seen.until_shows("of 1,592 left, about", "filtering 1 hop (asked): ", "--n-hops 1")
        await seen.go_to("max_total_path_length")
        await seen.press("right", "right")
        await seen.until_shows("1 hop, paths of up to 3 edges (asked): ", "--path-filtering")
        await turn(seen, "strict", "paths")
        await seen.until_shows("--strict-path-filtering")


# --- a regression ---


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    folder = tmp_path / "flights"
    folder.mkdir()
    for name in ("morning", "noon"):
        np.savez(folder / f"{name}.npz", frames=np.zeros((40, 16, 16), np.uint8))
    return folder


@pytest.mark.parametrize("config", configurations.names())
def test_a_draft_is_the_job_that_the_command_makes(config: str, flights: Path) -> None:
    given = {
        **dict.fromkeys(flag.name for flag in run_regress.FLAGS),
        "config": config,
        "data_directory": str(flights),
    }
    chosen = {"config": config, "data_directory": str(flights)}
    assert job_of(Draft("regress", chosen)) == run_regress.job_of({**given})
    given |= {"epochs": 7, "architecture": "gnn", "batch_size": 8, "memory_optimized": False}
    chosen |= {"epochs": "7", "architecture": "gnn"}
    draft = Draft("regress", chosen, {"batch_size": 8, "memory_optimized": False})
    assert job_of(draft) == run_regress.job_of(given)


def test_without_flights_there_is_a_plan_and_no_start(home: Path, conn: Connection) -> None:
    draft = Draft("regress", {"config": "colab_optimized"}, gpu="t4")
    answer = WhatIf(Home(home)).answer(draft)
    assert answer.planned is not None and answer.planned.predicted_mib
    with pytest.raises(BadField, match="the folder of flights is missing") as refused:
        startable(Home(home), conn, Draft("regress", {"config": "colab_optimized"}))
    assert refused.value.field == "data_directory"


async def test_a_regression_is_chosen_planned_and_started(run_cli: Console, flights: Path) -> None:
    async with open_screens(run_cli.home, (200, 60)) as seen:
        await seen.press("n")
        await seen.until_shows("PLAN", "kgops train")
        await turn(seen, "workload", "regress")
        await turn(seen, "config", "colab_optimized")
        await seen.until_shows("PLAN  flights: the folder of flights is missing")
        assert "the folder of flights is missing" in seen.row_of("flights")
        await seen.press("x")
        await seen.until(lambda: "flights is missing" in seen.lines()[-1], "why it cannot start")
        assert "start this run" not in seen.text
        await seen.go_to("architecture")
        await seen.press("right", "right")  # the first, then the next
        await write(seen, "data_directory", str(flights))
        await seen.until_shows("--architecture gnn", f"--data-directory {flights}", "to spare")
        await seen.press("x", "y")
        await seen.until(lambda: not isinstance(seen.app.screen, NewRun), "the run's screen")
        await seen.until_shows("1 regress", "Record")
    assert run_cli("show", "1", "--json").json()["job"]["regress"]["architecture"] == "gnn"
