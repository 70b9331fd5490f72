"""The workload `train`: its job keys, their checks and help. It trains one model on one knowledge graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kgops.jobs.keys import Key, above, at_least, device_name, one_of
from kgops.jobs.workload import Workload

# The names that kgops.training knows. A test compares the two lists, since this package loads no torch.
LOSSES = ("kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce")
OPTIMIZERS = ("adam", "adamw", "adagrad", "sgd")
SCHEDULES = ("constant", "plateau", "cosine")
ENGINES = ("kgops", "pykeen")
FILES = ("train", "valid", "test", "entity_to_id", "relation_to_id")


def _share(value: float) -> str | None:
    return None if 0 <= value < 1 else f"must be at least 0 and below 1, found {value}"


KEYS = (
    Key(
        "engine",
        "str",
        "kgops",
        check=one_of(*ENGINES),
        help="Training engine: kgops (ConvE) or pykeen (any model).",
    ),
    Key("model", "str", "ConvE", help="Model name; any PyKEEN model with --engine pykeen."),
    Key("dataset", "str", help="PyKEEN dataset by name; nations, kinships and umls need no network."),
    Key("train", "str", help="Training triples: head, relation, tail, tab separated; may be .gz."),
    Key("valid", "str", help="Validation triples."),
    Key("test", "str", help="Test triples."),
    Key("entity_to_id", "str", help="Entity vocabulary: label and id, in either order."),
    Key("relation_to_id", "str", help="Relation vocabulary: label and id, in either order."),
    Key("output_dir", "str", help="Folder for a copy of the results once the run has succeeded."),
    Key(
        "embedding_dim", "int", 200, check=at_least(1), help="Embedding dimension of entities and relations."
    ),
    Key(
        "embedding_height",
        "int",
        check=at_least(1),
        help="Rows of the image that ConvE reshapes an embedding to.",
    ),
    Key("embedding_width", "int", check=at_least(1), help="Columns of that image."),
    Key("input_channels", "int", check=at_least(1), help="Channels of that image."),
    Key(
        "output_channels",
        "int",
        32,
        check=at_least(1),
        help="Output channels (feature maps) of the convolution.",
    ),
    Key("kernel_height", "int", 3, check=at_least(1), help="Height of the convolution kernel."),
    Key("kernel_width", "int", 3, check=at_least(1), help="Width of the convolution kernel."),
    Key("input_dropout", "float", 0.2, check=_share, help="Dropout on the input image."),
    Key("feature_map_dropout", "float", 0.2, check=_share, help="Dropout of whole feature maps."),
    Key("relation_dropout", "float", 0.0, check=_share, help="Dropout on the relation embedding."),
    Key("output_dropout", "float", 0.3, check=_share, help="Dropout on the projected vector."),
    Key("batch_norm", "bool", True, help="Batch normalization, PyKEEN's default."),
    Key(
        "inverse",
        "bool",
        help="Add inverse relations, to predict heads as tails; default: on for ConvE.",
    ),
    Key("num_epochs", "int", 100, check=at_least(1), help="Passes over the training triples."),
    Key(
        "loss",
        "str",
        check=one_of(*LOSSES),
        help="Training loss; default: kvsall-bce, or with PyKEEN the model's own.",
    ),
    Key(
        "label_smoothing",
        "float",
        0.1,
        check=_share,
        help="Label smoothing: share of each label spread over all entities.",
    ),
    Key("optimizer", "str", "adam", check=one_of(*OPTIMIZERS), help="Optimizer."),
    Key("learning_rate", "float", 1e-3, check=above(0), help="Learning rate of the optimizer."),
    Key("weight_decay", "float", 0.0, check=at_least(0), help="Weight decay of the optimizer."),
    Key("schedule", "str", "constant", check=one_of(*SCHEDULES), help="Learning rate schedule."),
    Key("schedule_factor", "float", 0.95, check=_share, help="Factor on the learning rate at each plateau."),
    Key(
        "schedule_patience",
        "int",
        9,
        check=at_least(0),
        help="Validations without a better MRR before a plateau.",
    ),
    Key("warmup_epochs", "int", 0, check=at_least(0), help="Epochs of linear learning rate warmup."),
    Key("seed", "int", 0, check=at_least(0), help="Random seed."),
    Key("validate_every", "int", 5, check=at_least(0), help="Epochs between validations; 0: never."),
    Key(
        "patience",
        "int",
        0,
        check=at_least(0),
        help="Validations without a better MRR before stopping; 0: never.",
    ),
    Key(
        "checkpoint_frequency",
        "int",
        2,
        check=at_least(0),
        help="Epochs between checkpoints kept for TracIn; 0: none.",
    ),
    Key(
        "resume_every",
        "float",
        60.0,
        check=at_least(0),
        help="Seconds between checkpoints to resume from after a lost worker.",
    ),
    Key(
        "device",
        "str",
        "auto",
        check=device_name,
        help="Device: auto, cpu, cuda or cuda:N; cuda fails without a GPU.",
    ),
)


def _check(settings: dict[str, Any]) -> list[str]:
    given = [name for name in FILES if settings[name]]
    problems = []
    if settings["dataset"] and given:
        problems.append(f"train.dataset: given together with {', '.join(given)}; choose one or the other")
    if not settings["dataset"] and not settings["train"]:
        problems.append("train.dataset: missing, and so is train.train; name a dataset or a file of triples")
    model, loss = settings["model"], settings["loss"] or ""
    if settings["engine"] == "kgops" and model.lower() != "conve":
        problems.append(f"train.model: kgops trains ConvE itself; for {model!r:.60} choose the engine pykeen")
    if settings["engine"] == "pykeen" and loss.startswith("1vsall"):
        problems.append("train.loss: PyKEEN has no 1vsAll; choose kvsall-bce or kvsall-ce, or leave it out")
    if settings["engine"] == "pykeen" and settings["schedule"] != "constant":
        problems.append("train.schedule: only kgops' own engine changes the learning rate")
    return problems


def spread_problems(settings: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Problems of a job that asks for several devices, found before the worker starts."""
    devices = options.get("devices", 1)
    if settings["engine"] == "kgops" or devices == 1:
        return []
    return [f"options.devices: PyKEEN's pipeline trains on one device, found {devices}; leave it out"]


def _label(settings: dict[str, Any]) -> str:
    path = PurePath(settings["train"] or "")
    data = str(settings["dataset"] or path.parent.name or path.stem)
    return data if settings["engine"] == "kgops" else f"{data} {settings['model']}"


TRAIN = Workload(
    name="train",
    summary="ConvE, or any model of PyKEEN's, on a knowledge graph",
    keys=KEYS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.workers.train",
    inputs=FILES,
)
