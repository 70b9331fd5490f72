"""Recipes: jobs that ship with kgops and can be run, changed and pointed at a person's own files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from driving import Console

from kgops.jobs import recipes
from kgops.jobs.job import read_job_file
from kgops.models.conve import ConvEConfig
from kgops.workers.train import model_config, train_settings

NAMES = ["codex-s", "fb15k-237", "kinships", "umls", "wn18rr"]


def test_every_recipe_that_is_promised_ships() -> None:
    assert recipes.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_a_job_that_training_accepts_and_begins_with_its_command(name: str) -> None:
    path = recipes.find(name)
    assert path.read_text().startswith(f"# kgops run train --recipe {name}")
    job = read_job_file(path)
    assert train_settings(job).batch_size == job.options["batch_size"]

    class Size:
        num_entities, num_relations = 100, 10

    config: ConvEConfig = model_config(job.settings, Size())  # type: ignore[arg-type]
    assert config.embedding_dim == job.settings["embedding_dim"]


@pytest.mark.parametrize("name", ["fb15k-237", "wn18rr"])
def test_a_recipe_whose_metric_was_not_measured_says_so(name: str) -> None:
    text = " ".join(line.lstrip("# ") for line in recipes.find(name).read_text().splitlines())
    assert "kgops has not been measured against" in text


def dry(run_cli: Console, *args: str) -> dict[str, Any]:
    done = run_cli("run", "train", *args, "--dry-run")
    assert done.code == 0, done.err
    return tomllib.loads(done.out)


def test_flags_stand_over_the_recipe_and_named_files_replace_its_data(
    run_cli: Console, tmp_path: Path
) -> None:
    plain = dry(run_cli, "--recipe", "umls")
    assert (plain["train"]["dataset"], plain["options"]["batch_size"]) == ("umls", 128)
    auto = tomllib.loads((Path(__file__).parents[2] / "profiles/auto.toml").read_text())["options"]
    assert plain["options"] == {"batch_size": 128, **auto}
    changed = dry(
        run_cli, "--recipe", "umls", "--train", "mine.tsv", "--num-epochs", "3", "--batch-size", "64"
    )
    assert "dataset" not in changed["train"]
    assert changed["train"]["train"] == str(tmp_path / "mine.tsv")
    assert (changed["train"]["num_epochs"], changed["options"]["batch_size"]) == (3, 64)
    assert changed["train"]["learning_rate"] == plain["train"]["learning_rate"]


def test_an_unknown_recipe_is_a_mistake_that_names_the_nearest(run_cli: Console) -> None:
    done = run_cli("run", "train", "--recipe", "kinship")
    assert done.code == 2
    assert "did you mean 'kinships'?" in done.err
