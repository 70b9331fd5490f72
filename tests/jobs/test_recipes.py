"""Recipes: jobs that ship with kgops and can be run, changed and pointed at a person's own files."""

import copy
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console
from torch.nn import functional as F

from benchmarks.measure import Silent
from benchmarks.recipes import pykeen_metrics
from kgops.maths.graphs.triples import Graph, read_pykeen_dataset
from kgops.maths.models.build import build_model
from kgops.maths.models.conve import ConvE
from kgops.maths.train.batches import Batches
from kgops.maths.train.checkpoints import read_checkpoint
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import fit
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.maths.train.worker import train_settings
from kgops.workloads.job_files import read_job, read_job_file
from kgops.workloads.train import recipes
from kgops.workloads.train.models import ConvEConfig, ModelConfig, VectorConfig, model_of_settings

_GRAPHS = ("codex-s", "fb15k-237", "kinships", "umls", "wn18rr")
QUICK = [*_GRAPHS, *(f"{graph}-complex" for graph in _GRAPHS)]
NAMES = sorted([*QUICK, "fb15k-237-complex-best", "wn18rr-complex-best"])


def test_the_script_recipe_trains_the_objective_of_train_pytorch(nations: Graph) -> None:
    """Its loss and gradients, in float64, beside the formula that the scripts' documents print."""
    data = {"train": {"dataset": "nations", "embedding_dim": 16, "output_channels": 2}, "options": {}}
    job = read_job(recipes.with_changes("script", data), "the recipe")
    settings = replace(train_settings(job), batch_size=50)
    sizes = model_of_settings(job.settings, nations.num_entities, nations.num_relations)
    assert isinstance(sizes, ConvEConfig)
    config = replace(sizes, input_dropout=0.0, feature_map_dropout=0.0, output_dropout=0.0)
    torch.manual_seed(0)
    ours = ConvE(config).double()
    theirs = copy.deepcopy(ours)
    loss = settings.build_loss(torch.float64, 5)
    step = TrainStep(ours, loss, build_optimizer("sgd", ours, 0.1))
    batches = Batches(
        nations.train, inverse=config.inverse, one_positive=settings.one_positive, batch_size=50, seed=1
    )
    assert len(batches) == math.ceil(len(nations.train) / 50)  # batches of triples, none inverted
    epsilon, entities = 0.1, nations.num_entities
    optimizer = torch.optim.SGD(
        [p for n, p in theirs.named_parameters() if n not in theirs.untrained], lr=0.1
    )
    for batch in list(batches.epoch(1))[:3]:
        value = step(batch)
        target = torch.full((len(batch), entities), epsilon / entities, dtype=torch.float64)
        assert len(batch.positives) == len(batch)  # one tail a sample
        target[batch.positives.rows, batch.positives.entities] = 1 - epsilon + epsilon / entities
        optimizer.zero_grad()
        scores = theirs(batch.heads, batch.relations)
        each = target * F.softplus(-scores) + (1 - target) * F.softplus(scores)
        each.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        torch.testing.assert_close(value, each.mean().detach(), rtol=1e-10, atol=1e-12)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_a_job_that_training_accepts_and_begins_with_its_command(name: str) -> None:
    path = recipes.find(name)
    assert path.read_text().startswith(f"# kgops train --recipe {name}")
    job = read_job_file(path)
    assert train_settings(job).batch_size == job.options["batch_size"]

    model = model_of_settings(job.settings, 100, 10)
    rank = model.rank if isinstance(model, VectorConfig) else model.embedding_dim
    assert rank == job.settings["embedding_dim"]


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


@pytest.mark.parametrize(
    "sizes", [ConvEConfig(14, 55, embedding_dim=12, output_channels=4), VectorConfig(14, 55, rank=8)]
)
def test_a_model_is_evaluated_by_pykeen_as_by_kgops(tmp_path: Path, sizes: ModelConfig) -> None:
    graph = read_pykeen_dataset("nations")
    torch.manual_seed(1)
    model = build_model(sizes)
    fit(model, graph, TrainSettings(num_epochs=4, validate_every=2), tmp_path, Silent())
    model.load_state_dict(dict(read_checkpoint(tmp_path / "best_model.pt", torch.device("cpu")).model))
    own = Evaluator(torch.cat([graph.train, graph.valid, graph.test]), 14)(model, graph.test)
    assert own is not None
    theirs = pykeen_metrics(graph, tmp_path / "best_model.pt")
    assert theirs == pytest.approx({name: own.both.to_dict()[name] for name in theirs}, abs=1e-6)


def test_the_best_recipe_for_a_graph_of_that_size_is_named(run_cli: Console, tmp_path: Path) -> None:
    """By what was measured: ComplEx on UMLS for 150 entities."""
    rows = [f"e{n % 150}\tr{n % 7}\te{(n * 7 + n // 150) % 150}\n" for n in range(6000)]
    (tmp_path / "mine.txt").write_text("".join(rows))
    shown = run_cli("recipes", "--train", "mine.txt").out
    assert "150 entities" in shown and "most like umls with 135 and 5,216." in shown
    command = next(line for line in shown.splitlines() if line.startswith("Take: "))
    assert command == "Take: kgops train --recipe umls-complex --train mine.txt"
    job = dry(run_cli, *command.split()[3:])
    assert job["train"]["model"] == "ComplEx" and job["train"]["train"] == str(tmp_path / "mine.txt")
    assert "cannot be counted" in run_cli("recipes", "--train", "none.txt").err


def dry(run_cli: Console, *args: str) -> dict[str, Any]:
    done = run_cli.must("run", "train", *args, "--dry-run")
    return tomllib.loads(done.out)


def test_flags_stand_over_the_recipe_and_named_files_replace_its_data(
    run_cli: Console, tmp_path: Path
) -> None:
    plain = dry(run_cli, "--recipe", "umls")
    assert (plain["train"]["dataset"], plain["options"]["batch_size"]) == ("umls", 128)
    cpu = tomllib.loads((Path(__file__).parents[2] / "profiles/cpu.toml").read_text())["options"]
    assert plain["options"] == {"batch_size": 128, **cpu}
    changed = dry(
        run_cli, "--recipe", "umls", "--train", "mine.tsv", "--num-epochs", "3", "--batch-size", "64"
    )
    assert "dataset" not in changed["train"]
    assert changed["train"]["train"] == str(tmp_path / "mine.tsv")
    assert (changed["train"]["num_epochs"], changed["options"]["batch_size"]) == (3, 64)
    assert changed["train"]["learning_rate"] == plain["train"]["learning_rate"]
