"""The workload `pipeline`: train a model, answer questions with it if there are any, then run TracIn on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kgops.jobs.on_device import Applied, ValueAndReason
from kgops.jobs.option import Option
from kgops.jobs.option_reading import read_table
from kgops.workloads.predict.job import NEW_TRIPLES, PREDICT, PREDICTED_TRIPLES
from kgops.workloads.shared_options import FOLDERS, TRIPLES
from kgops.workloads.tracin.job import TRACIN
from kgops.workloads.train.job import TRAIN
from kgops.workloads.workload import Workload

_STAGES = (
    Option("train", "table", required=True, help="The settings of `train`."),
    Option(
        "predict", "table", help="The settings of `predict`; its answers are then the test triples of TracIn."
    ),
    Option("tracin", "table", help="The settings of `tracin`; model and data come from the training."),
)
# Options of the TracIn stage; the others apply to training only. So does `precision`: fewer bits change influences.
TRACIN_OPTIONS = frozenset(
    {
        *("block", "tests_at_once", "entity_chunk", "filtering", "last_layers", "devices"),
        *("vectorized_gradients", "test_gradient_caching", "memory_cleanup"),
    }
)
# Options without meaning for training.
_TRACIN_ONLY = TRACIN_OPTIONS - {"entity_chunk", "memory_cleanup"}
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


def predict_settings(settings: Mapping[str, Any], checkpoints: str, best_model: str) -> dict[str, Any] | None:
    """All settings of the predict stage, on the results of the training stage; None without that stage."""
    if settings.get("predict") is None:
        return None
    requested = read_table("pipeline.predict", settings["predict"], PREDICT.settings, [])
    trained = train_settings(dict(settings))
    data = {name: trained[name] for name in ("dataset", *TRIPLES, "device")}
    return {**requested, **data, "checkpoint_dir": checkpoints, "model_path": best_model}


def traces_predictions(settings: Mapping[str, Any]) -> bool:
    """Whether the answers of the predict stage are the test triples of TracIn."""
    table = settings.get("tracin") or {}
    own = any(table.get(name) for name in ("test", "test_triple", "test_triples", "self_influence"))
    return settings.get("predict") is not None and not own


def tracin_options(settings: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the TracIn stage. Predictions are scored against all training triples unless the job asks for less."""
    own = {name: value for name, value in options.items() if name in TRACIN_OPTIONS}
    return {"filtering": False, **own} if traces_predictions(settings) else own


def tracin_settings(settings: dict[str, Any], checkpoints: str, best_model: str) -> dict[str, Any]:
    """All settings of the TracIn stage, on the results of the stages before."""
    requested = read_table("pipeline.tracin", settings["tracin"] or {}, TRACIN.settings, [])
    trained = train_settings(settings)
    data = {name: trained[name] for name in ("dataset", *TRIPLES)}
    if requested["test"]:
        data["test"] = requested["test"]
    if traces_predictions(settings):
        triples = NEW_TRIPLES if requested["new"] else PREDICTED_TRIPLES
        data |= {"test_triples": str(PurePath(checkpoints).parent / triples), "new": False}
    return {**requested, **data, "checkpoint_dir": checkpoints, "model_path": best_model}


def stage_settings(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings of all stages by workload name, with defaults."""
    settings_of = {"train": TRAIN.settings, "tracin": TRACIN.settings}
    if settings.get("predict") is not None:
        settings_of["predict"] = PREDICT.settings
    return {
        name: read_table(f"pipeline.{name}", settings.get(name) or {}, settings_of[name], [])
        for name in settings_of
    }


def _check(settings: dict[str, Any]) -> list[str]:
    problems: list[str] = []
    train = read_table("pipeline.train", settings["train"], TRAIN.settings, problems)
    tracin = read_table("pipeline.tracin", settings["tracin"] or {}, TRACIN.settings, problems)
    predict = read_table("pipeline.predict", settings["predict"] or {}, PREDICT.settings, problems)
    if problems:
        return problems
    problems += [f"pipeline.{line}" for line in TRAIN.check(train)]
    devices = {table["device"] for table in (train, tracin) if table["device"] != "auto"}
    if len(devices) > 1:
        problems.append(
            f"pipeline.tracin.device: both stages run on one device; found {train['device']} for train and "
            f"{tracin['device']} for tracin"
        )
    problems += [
        f"pipeline.tracin.{name}: set by the training stage; leave it out"
        for name in (*_FROM_TRAINING, *FOLDERS, "from_predictions")
        if tracin[name] is not None
    ]
    problems += [
        f"pipeline.predict.{name}: set by the training stage; leave it out"
        for name in (*_FROM_TRAINING, "test")
        if predict[name] is not None
    ]
    if problems:
        return problems
    if tracin["new"] and not traces_predictions(settings):
        return ["pipeline.tracin.new: only predictions can be new; give the table predict"]
    asked = predict_settings(settings, "results/checkpoints", "results/best_model.pt")
    problems += [] if asked is None else [f"pipeline.{line}" for line in PREDICT.check(asked)]
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
    summary="train, then predict if asked, and tracin on what it trained",
    options=_STAGES,
    label=_label,
    check=_check,
    attempts=3,
    module="kgops.maths.pipeline.worker",
    inputs=(
        *(f"train.{name}" for name in TRAIN.inputs),
        *(
            f"predict.{name}"
            for name in ("queries", "candidates", "node_types", "edge_map", "node_name_dict")
        ),
        *(f"tracin.{name}" for name in ("test", "test_triples", "edge_map", "node_name_dict")),
    ),
    stages=("train", "predict", "tracin"),
    optional=("predict",),
    has_flags=False,
    shares_devices=True,
    smaller=TRAIN.smaller,
)


def combined_option(first: Applied, then: Applied) -> ValueAndReason:
    """One option's value and reason for a pipeline: from training and from TracIn, once where they agree."""
    value, reasons = then.value, [first.reason, then.reason]
    if first.option == "memory_cleanup" and then.reason and first.value == value != "off":
        return value, f"training: {first.reason}; TracIn: {then.reason}"
    if first.value != value:
        value = f"{first.value}, then {value}"
        reasons.insert(0, "first training, then TracIn")
    return value, "; ".join(dict.fromkeys(filter(None, reasons))) or None
