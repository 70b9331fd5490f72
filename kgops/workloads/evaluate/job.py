"""The workload `evaluate`: it ranks triples by a trained model, overall and by relation, direction and degree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, applied_cleanup, unknown_options
from kgops.jobs.option import Flag, Option
from kgops.workloads.shared_options import (
    DEVICE,
    FOLDERS,
    MEMORY_CLEANUP,
    OUTPUT_DIR,
    TRAINING_DATA,
    TRIPLES,
    trained_model,
    trained_model_problems,
)
from kgops.workloads.workload import Words, Workload

_OF_TRAINING = {option.name: option for option in TRAINING_DATA}
_TEST = _OF_TRAINING.pop("test").adapted(
    flags=(Flag("--training-test"),), help="Test triples of the training: known answers."
)
FILES = (*TRIPLES, "model_path", "triples", "node_types")
WRITTEN = ("output_dir",)

EVALUATE_OPTIONS = (
    *trained_model("is evaluated"),
    Option(
        "triples",
        help="File of triples to rank: head, relation, tail. Default: the test triples of the training.",
        flags=(Flag("--test"),),
        group="data",
    ),
    Option(
        "matrix",
        help="Relation whose pairs are all ranked, each head with each tail: AUROC, recall@n, and MRR per tail.",
        group="data",
    ),
    Option(
        "node_types",
        help="TSV file with types of entities: the matrix then has all entities of the types that the relation joins.",
        group="data",
    ),
    *_OF_TRAINING.values(),
    _TEST,
    OUTPUT_DIR,
    MEMORY_CLEANUP,
    DEVICE,
)


def _check(settings: dict[str, Any]) -> list[str]:
    names_run = settings["run"] is not None
    problems = trained_model_problems("evaluate", settings, names_run=names_run)
    if settings["train"] and not settings["triples"] and not settings["test"] and settings["run"] is None:
        problems.append("evaluate.triples: missing; give the triples to rank")
    if settings["node_types"] and not settings["matrix"]:
        problems.append("evaluate.node_types: only with matrix")
    return problems


def _label(settings: dict[str, Any]) -> str:
    named = settings["triples"] or settings["dataset"] or settings["test"]
    return PurePath(named).stem if named else f"model of run {settings['run']}"


def evaluate_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of an evaluation, with reasons."""
    yield applied_cleanup(job, device)
    yield from unknown_options(job, EVALUATE.optimizations, "evaluating")


EVALUATE = Workload(
    name="evaluate",
    summary="ranks of triples by a trained model, by relation, direction and degree",
    options=EVALUATE_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # it takes seconds, so a lost worker costs little
    module="kgops.maths.evaluate.worker",
    inputs=FILES,
    folders=FOLDERS,
    reads_model=True,
    with_profile=False,
    words=Words(
        help="""Rank triples by a trained model: MRR and Hits@k overall, by relation, direction and degree.

    The ranking leaves out other answers that are known to be true, from the training's files and the ranked file.
    PyKEEN's evaluator gives the same ranks. --matrix treats ranks all pairs of a relation as drug repurposing does,
    next to two baselines: how often head and tail have it, and chance.
    """,
        example="--run 1 --test other.txt",
        plan_example="--run 1 --gpu t4",
        shown=("triples", "matrix", "dataset", "train", "trust_pickle"),
        paths=(*FILES, *FOLDERS, *WRITTEN),
    ),
)
