"""The workload `pipeline`: train, then trace what the trained model believes back to its training triples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs.keys import Key, read_table
from kgops.jobs.tracin import FOLDERS, TRACIN
from kgops.jobs.train import TRAIN
from kgops.jobs.workload import Workload

KEYS = (
    Key("train", "table", required=True, help="The keys of `train`."),
    Key("tracin", "table", help="The keys of `tracin`; model and data are those of the training."),
)
# Options of the second half; the others are the first's alone. `precision` too: fewer bits find other triples, and
# who wants that of TracIn says so in a run of its own.
TRACED = frozenset(
    {
        *("block", "tests_at_once", "entity_chunk", "gram_precision", "filtering", "last_layers", "devices"),
        *("vectorized_gradients", "test_gradient_caching", "memory_cleanup"),
    }
)
# Of these the training has nothing to say.
_TRACED_ALONE = TRACED - {"entity_chunk", "devices", "memory_cleanup"}
# What the training gives; naming another would trace another model.
_GIVEN = (
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
    """Those that the first half is asked for."""
    return {name: value for name, value in options.items() if name not in _TRACED_ALONE}


def train_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The whole settings of the first half."""
    return read_table("pipeline.train", settings["train"], TRAIN.keys, [])


def tracin_settings(settings: dict[str, Any], checkpoints: str, best_model: str) -> dict[str, Any]:
    """The whole settings of the second half, on what the first leaves behind."""
    found = read_table("pipeline.tracin", settings["tracin"] or {}, TRACIN.keys, [])
    trained = train_settings(settings)
    own = {
        name: trained[name]
        for name in ("dataset", "train", "valid", "test", "entity_to_id", "relation_to_id")
    }
    if found["test"]:
        own["test"] = found["test"]
    loss = found["loss"] or "train"
    return {**found, **own, "loss": loss, "checkpoint_dir": checkpoints, "model_path": best_model}


def halves(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Both by the names of who trains or traces alone, with what they take where nothing is said."""
    keys = {"train": TRAIN.keys, "tracin": TRACIN.keys}
    return {name: read_table(f"pipeline.{name}", settings.get(name) or {}, keys[name], []) for name in keys}


def _check(settings: dict[str, Any]) -> list[str]:
    problems: list[str] = []
    train = read_table("pipeline.train", settings["train"], TRAIN.keys, problems)
    tracin = read_table("pipeline.tracin", settings["tracin"] or {}, TRACIN.keys, problems)
    if problems:
        return problems
    problems += [f"pipeline.{line}" for line in TRAIN.check(train)]
    problems += [
        f"pipeline.tracin.{name}: the training before it says that; leave it away"
        for name in (*_GIVEN, *FOLDERS)
        if tracin[name] is not None
    ]
    if problems:
        return problems
    whole = tracin_settings(settings, "results/checkpoints", "results/best_model.pt")
    if train["engine"] != "kgops":
        problems.append(
            "pipeline.train.engine: only kgops' own engine keeps the checkpoints that tracin needs"
        )
    return problems + [f"pipeline.{line}" for line in TRACIN.check(whole)]


def _label(settings: dict[str, Any]) -> str:
    return TRAIN.label(train_settings(settings))


PIPELINE = Workload(
    name="pipeline",
    summary="train, then tracin on what it trained",
    keys=KEYS,
    label=_label,
    check=_check,
    attempts=3,
    module="kgops.workers.pipeline",
    inputs=(
        *(f"train.{name}" for name in TRAIN.inputs),
        *(f"tracin.{name}" for name in ("test", "test_triples", "edge_map", "node_name_dict")),
    ),
)
