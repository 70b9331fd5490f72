"""Options of the workload `evaluate`: how well a trained model ranks triples."""

from __future__ import annotations

from kgops.jobs.option import Flag, Option
from kgops.workloads.shared_options import (
    CHECKPOINT_DIR,
    DEVICE,
    MEMORY_CLEANUP,
    MODEL_PATH,
    TRAINING_DATA,
    TRAINING_RUN,
    TRUST_PICKLE,
)

_OF_TRAINING = {
    option.name: option for option in TRAINING_DATA if option.name not in ("edge_map", "node_name_dict")
}
_TEST = _OF_TRAINING.pop("test").adapted(
    flags=(Flag("--training-test"),), help="Test triples of the training: known answers."
)
TRIPLES = ("train", "valid", "test", "entity_to_id", "relation_to_id")
FILES = (*TRIPLES, "model_path", "triples")
FOLDERS = ("checkpoint_dir",)
WRITTEN = ("output_dir",)

EVALUATE_OPTIONS = (
    TRAINING_RUN,
    MODEL_PATH,
    CHECKPOINT_DIR.adapted(
        help="Folder of checkpoints; without a model file, the newest of them is evaluated."
    ),
    TRUST_PICKLE,
    Option(
        "triples",
        help="File of triples to rank: head, relation, tail. Default: the test triples of the training.",
        flags=(Flag("--test"),),
        group="data",
    ),
    *_OF_TRAINING.values(),
    _TEST,
    Option("output_dir", help="Folder for a copy of the results.", group="results"),
    MEMORY_CLEANUP,
    DEVICE,
)
