"""Recipes: jobs that ship with kgops and can be run, changed and pointed at a person's own files."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console

from benchmarks.quality import Silent
from benchmarks.recipes import pykeen_metrics, write_measured
from kgops.cli import main
from kgops.graphs.triples import read_pykeen_dataset
from kgops.jobs import recipes
from kgops.jobs.job import read_job_file
from kgops.jobs.recipes import Measured, MeasuredRun
from kgops.jobs.train import ConvEConfig
from kgops.models.conve import ConvE
from kgops.training.checkpoints import read_checkpoint
from kgops.training.evaluate import Evaluator
from kgops.training.loop import fit
from kgops.training.settings import TrainSettings
from kgops.views.quality import FILTERS
from kgops.workers.train import model_config, train_settings

QUICK = ["codex-s", "fb15k-237", "kinships", "umls", "wn18rr"]
NAMES = sorted([*QUICK, "fb15k-237-best"])


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


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_was_measured_as_it_is_now_or_says_that_it_was_not(name: str) -> None:
    found = recipes.measured(name)
    if found is None:
        text = " ".join(line.lstrip("# ") for line in recipes.find(name).read_text().splitlines())
        assert not recipes.find(name).with_suffix(".json").exists(), "measured before the recipe changed"
        assert "has not been measured" in text
        return
    seeds = [run.seed for run in found.runs]
    assert seeds == ([0, 1, 2] if name in QUICK else [*range(len(seeds))]) and seeds
    for run in found.runs:
        assert run.test == pytest.approx(run.pykeen, abs=1e-4)
        epochs, seconds, _ = zip(*run.curve, strict=True)
        assert list(epochs) == sorted(epochs) and epochs[-1] <= run.epochs
        assert list(seconds) == sorted(seconds) and seconds[-1] <= run.seconds


RUNS = [
    MeasuredRun(
        seed,
        seconds=61.0,
        epochs=30,
        test={"mrr": mrr, "hits_at_1": 0.4, "hits_at_10": 0.8},
        pykeen={"mrr": mrr, "hits_at_1": 0.4, "hits_at_10": 0.8},
        curve=[(epoch, 2.0 * epoch, mrr * epoch / 40) for epoch in range(1, 31)],
    )
    for seed, mrr in enumerate((0.5, 0.53, 0.56))
]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one recipe that was measured, in place of those that ship."""
    recipe = tmp_path / "umls.toml"
    recipe.write_text(recipes.find("umls").read_text())
    monkeypatch.setattr(recipes, "_shipped", lambda: iter([recipe]))
    write_measured(Measured("2026-11-23", "EPYC, 2 cores", recipes.fingerprint_of("umls"), RUNS), "umls")
    return recipe


def page_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["recipes", *args]) == 0
    return capsys.readouterr().out


def test_the_list_and_the_page_show_what_was_measured(
    shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(r"umls +umls +0.5300 ± 0.0300 +3 +1:01 +EPYC, 2 cores", page_of(capsys))
    page = page_of(capsys, "show", "umls")
    assert page.startswith(shipped.read_text())
    assert re.search(r"1 +0.5300 +0.4000 +0.8000 +0.5300 +30 +1:01", page)
    assert re.search(r"seed 1:\n.*\n +2 +0:04 +0.0265\n", page)  # the middle one, every second epoch
    assert page.rstrip().splitlines()[-4].split() == ["30", "1:00", "0.3975"]
    assert " ".join(page.split()).endswith(FILTERS)
    listed = json.loads(page_of(capsys, "--json"))
    assert recipes.measured("umls") is not None
    assert listed[0]["measured"]["runs"][1] == json.loads(json.dumps(asdict(RUNS[1])))


def test_what_was_measured_ends_with_a_change_of_the_recipe(
    shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped.write_text("# another remark\n" + shipped.read_text())
    assert recipes.measured("umls") is not None
    shipped.write_text(shipped.read_text().replace("batch_size = 128", "batch_size = 64"))
    assert recipes.measured("umls") is None
    assert "not measured" in page_of(capsys)
    assert "Not measured: nobody has run this recipe as it is now" in page_of(capsys, "show", "umls")


def test_a_model_is_evaluated_by_pykeen_as_by_kgops(tmp_path: Path) -> None:
    graph = read_pykeen_dataset("nations")
    torch.manual_seed(1)
    model = ConvE(ConvEConfig(14, 55, embedding_dim=12, output_channels=4))
    fit(model, graph, TrainSettings(num_epochs=4, validate_every=2), tmp_path, Silent())
    model.load_state_dict(dict(read_checkpoint(tmp_path / "best_model.pt", torch.device("cpu")).model))
    own = Evaluator(torch.cat([graph.train, graph.valid, graph.test]), 14)(model, graph.test)
    assert own is not None
    theirs = pykeen_metrics(graph, tmp_path / "best_model.pt")
    assert theirs == pytest.approx({name: own.both.to_dict()[name] for name in theirs}, abs=1e-6)


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
