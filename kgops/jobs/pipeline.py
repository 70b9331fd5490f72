"""The workload `pipeline`: train a model, then run TracIn on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs.tracin import TRACIN
from kgops.jobs.train import TRAIN
from kgops.jobs.workload import Workload
from kgops.options.option import Option
from kgops.options.reading import read_table
from kgops.options.tracin import FOLDERS

_STAGES = (
    Option("train", "table", required=True, help="The settings of `train`."),
    Option("tracin", "table", help="The settings of `tracin`; model and data are those of the training."),
)
# Options of the TracIn stage; the others apply to training only. So does `precision`: fewer bits change influences.
TRACIN_OPTIONS = frozenset(
    {
        *("block", "tests_at_once", "entity_chunk", "gram_precision", "filtering", "last_layers", "devices"),
        *("vectorized_gradients", "test_gradient_caching", "memory_cleanup"),
    }
)
# Options without meaning for training.
_TRACIN_ONLY = TRACIN_OPTIONS - {"entity_chunk", "devices", "memory_cleanup"}
# Keys that the training stage sets.
_FROM_TRAINING = (
    "run",
    "model_path",
    "checkpoint_dir",
    "dataset",
    "train",
    "valid",
    "entity_to_id",
    "relation_to_id",
)


def train_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the training stage."""
    return {name: value for name, value in options.items() if name not in _TRACIN_ONLY}


def train_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """All settings of the training stage."""
    return read_table("pipeline.train", settings["train"], TRAIN.settings, [])


def tracin_settings(settings: dict[str, Any], checkpoints: str, best_model: str) -> dict[str, Any]:
    """All settings of the TracIn stage, on the results of the training stage."""
    requested = read_table("pipeline.tracin", settings["tracin"] or {}, TRACIN.settings, [])
    trained = train_settings(settings)
    data = {
        name: trained[name]
        for name in ("dataset", "train", "valid", "test", "entity_to_id", "relation_to_id")
    }
    if requested["test"]:
        data["test"] = requested["test"]
    loss = requested["loss"] or "train"
    return {**requested, **data, "loss": loss, "checkpoint_dir": checkpoints, "model_path": best_model}


def stage_settings(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings of both stages by workload name, with defaults."""
    settings_of = {"train": TRAIN.settings, "tracin": TRACIN.settings}
    return {
        name: read_table(f"pipeline.{name}", settings.get(name) or {}, settings_of[name], [])
        for name in settings_of
    }


def _check(settings: dict[str, Any]) -> list[str]:
    problems: list[str] = []
    train = read_table("pipeline.train", settings["train"], TRAIN.settings, problems)
    tracin = read_table("pipeline.tracin", settings["tracin"] or {}, TRACIN.settings, problems)
    if problems:
        return problems
    problems += [f"pipeline.{line}" for line in TRAIN.check(train)]
    problems += [
        f"pipeline.tracin.{name}: set by the training stage; leave it out"
        for name in (*_FROM_TRAINING, *FOLDERS)
        if tracin[name] is not None
    ]
    if problems:
        return problems
    whole = tracin_settings(settings, "results/checkpoints", "results/best_model.pt")
    if train["engine"] != "kgops":
        problems.append(
            "pipeline.train.engine: only the engine kgops keeps the checkpoints that tracin needs"
        )
    return problems + [f"pipeline.{line}" for line in TRACIN.check(whole)]


def _label(settings: dict[str, Any]) -> str:
    return TRAIN.label(train_settings(settings))


PIPELINE = Workload(
    name="pipeline",
    summary="train, then tracin on what it trained",
    options=_STAGES,
    label=_label,
    check=_check,
    attempts=3,
    module="kgops.workers.pipeline",
    inputs=(
        *(f"train.{name}" for name in TRAIN.inputs),
        *(f"tracin.{name}" for name in ("test", "test_triples", "edge_map", "node_name_dict")),
    ),
)
