"""Optimizations that several workloads have: their values and effects. A workload adds its default, help and flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kgops.jobs.option import HIDDEN, Check, Flag, Option, at_least, device_name


def grouped(group: str, *options: Option) -> tuple[Option, ...]:
    return tuple(option.adapted(group=group) for option in options)


def switch(name: str, default: bool | None, help: str) -> Option:
    return Option(name, "bool", default, help)


def number(name: str, default: float, check: Check, help: str) -> Option:
    return Option(name, "float", default, help, check)


LARGEST_GROUP = 16  # triples: a query of thousands would decide its step by itself
_SPEED = "memory and speed"
_SWITCH = (True, False)
_NO_CLEANUP = Flag("--disable-memory-cleanup", False, help="Never release cached GPU memory.")

PRECISION = Option(
    "precision",
    "choice",
    "fp32",
    choices=("auto", "fp32", "tf32", "fp16", "bf16"),
    effect="rounding",
    summary="number format of large matrix products",
    help="Number format of matrix products.",
    shown_default="by the profile; fp32 on a CPU",
    flags=(Flag(""), Flag("--use-mixed-precision", "auto", help="Alias of --precision auto.")),
    group=_SPEED,
    in_form=True,
)
BATCH_SIZE = Option(
    "batch_size",
    "choice",
    choices=(int,),
    effect="changes results",
    summary="examples per optimizer step",
    group=_SPEED,
    steps=tuple(1 << n for n in range(15)),
    in_form=True,
)
ENTITY_CHUNK = Option(
    "entity_chunk",
    "choice",
    "auto",
    choices=("auto", int),
    effect="exact",
    summary="entities scored at once",
    help="Entities scored at a time.",
    group=_SPEED,
    steps=tuple(1 << n for n in range(8, 17)),
    in_form=True,
)
GRADIENT_CHECKPOINTING = Option(
    "gradient_checkpointing",
    "choice",
    False,
    choices=_SWITCH,
    effect="exact",
    summary="recompute activations to save memory",
    help="Recompute activations in the backward pass instead of keeping them.",
    flags=(Flag("--use-gradient-checkpointing", True),),
    group=_SPEED,
    in_form=True,
)
COMPILE = Option(
    "compile",
    "choice",
    "off",
    choices=("off", "default", "reduce-overhead", "max-autotune"),
    effect="rounding",
    summary="torch.compile mode",
    help="torch.compile mode.",
    shown_default="by the profile; off on a CPU",
    group=_SPEED,
    in_form=True,
)
CUDA_GRAPHS = Option(
    "cuda_graphs",
    "choice",
    False,
    choices=_SWITCH,
    effect="exact",
    summary="replay each step as one CUDA graph",
    help="Replay each step as one CUDA graph.",
    flags=(Flag("--cuda-graphs", True),),
    group=_SPEED,
    in_form=True,
)
MEMORY_CLEANUP = Option(
    "memory_cleanup",
    "choice",
    choices=_SWITCH,
    default=True,
    effect="exact",
    summary="free cached memory when it runs short",
    help="Release cached GPU memory when it runs short.",
    flags=(_NO_CLEANUP,),
    group=_SPEED,
    in_form=True,
)
NUM_WORKERS = Option(
    "num_workers",
    "choice",
    choices=(0, int),
    effect="exact",
    summary="data loader processes; kgops keeps data on the device",
    help=HIDDEN,
    flags=(Flag("", hidden=True),),
    group=_SPEED,
)
OPTIMIZER_KERNEL = Option(
    "optimizer_kernel",
    "choice",
    choices=("fused", "plain"),
    effect="rounding",
    summary="fused or plain optimizer kernel",
    flags=(),
)
SCALE_GRADIENTS = Option(
    "scale_gradients",
    "choice",
    choices=_SWITCH,
    effect="rounding",
    summary="scale the loss so that fp16 gradients do not underflow",
    flags=(),
)

LEARNING_RATE = Option(
    "learning_rate", "float", 1e-3, help="Learning rate of the optimizer.", group="training"
)
SEED = Option("seed", "int", 0, check=at_least(0), help="Random seed.", group="training")
RESUME_EVERY = Option(
    "resume_every",
    "float",
    60.0,
    check=at_least(0),
    help="Seconds between checkpoints to resume from after a lost worker.",
)
DEVICE = Option(
    "device",
    default="auto",
    check=device_name,
    help="Device: auto, cpu, cuda, or cuda:N for GPU N, as with --gpu N. Without a GPU, cuda fails.",
    group=_SPEED,
)

# A trained model, and readable names of its graph.
RUN = Option(
    "run",
    "int",
    check=at_least(1),
    help="Number of the training run whose checkpoints, learning rates and data are used; nothing else is needed.",
    group="model",
)
MODEL_PATH = Option("model_path", help="One model file: a kgops checkpoint or PyKEEN weights.", group="model")
CHECKPOINT_DIR = Option(
    "checkpoint_dir", help="Folder of checkpoints; scores are summed over all of them.", group="model"
)
TRUST_PICKLE = Option(
    "trust_pickle",
    "bool",
    False,
    help="Load pickled files too; loading runs code that they contain.",
    group="model",
)
EDGE_MAP = Option("edge_map", help="JSON file with names of relations.", group="data")
NODE_NAME_DICT = Option("node_name_dict", help="TSV file with names of entities.", group="data")


def data_files(**helps: str) -> tuple[Option, ...]:
    """Files that a job reads."""
    return tuple(Option(name, help=text, group="data") for name, text in helps.items())


# Of a job that asks a trained model: the training, its model and its data.
TRIPLES = ("train", "valid", "test", "entity_to_id", "relation_to_id")
FOLDERS = ("checkpoint_dir",)
TRAINING_DATA = (
    Option("dataset", help="Triples of the training: a PyKEEN dataset by name.", group="data"),
    *data_files(
        train="Training triples: a file.",
        valid="Validation triples: known answers.",
        test="Test triples: known answers.",
        entity_to_id="Entity vocabulary: label and id, in either order.",
        relation_to_id="Relation vocabulary: label and id, in either order.",
    ),
)
TRAINING_NAMES = (EDGE_MAP, NODE_NAME_DICT)
OUTPUT_DIR = Option("output_dir", help="Folder for a copy of the results.", group="results")


def trained_model(does: str) -> tuple[Option, ...]:
    """The options that name a model, which `does` something, in words."""
    return (
        RUN.adapted(
            help="Number of the training run whose model (the best by validation, otherwise the final one) and data "
            "are used; nothing else is needed."
        ),
        MODEL_PATH,
        CHECKPOINT_DIR.adapted(
            help=f"Folder of checkpoints; without a model file, the newest of them {does}."
        ),
        TRUST_PICKLE,
    )


def trained_model_problems(workload: str, settings: Mapping[str, Any], *, names_run: bool) -> list[str]:
    """Problems of how a job names the model that it asks, and the data of its training."""
    named = names_run or settings["model_path"] or settings["checkpoint_dir"]
    unnamed = f"{workload}: no model is named; give {workload}.run, checkpoint_dir or model_path"
    return ([] if named else [unnamed]) + data_problems(workload, settings, needed=not names_run)


def data_problems(workload: str, settings: Mapping[str, Any], *, needed: bool = True) -> list[str]:
    if settings["dataset"] and settings["train"]:
        return [f"{workload}.dataset: given together with train; choose one or the other"]
    if needed and not settings["dataset"] and not settings["train"]:
        return [f"{workload}.train: missing, and so is {workload}.dataset; the training triples are needed"]
    return []
