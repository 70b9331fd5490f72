"""The workload `evaluate`: it ranks triples by a trained model, overall and by relation, direction and degree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, applied_cleanup
from kgops.workloads.evaluate.options import EVALUATE_OPTIONS, FILES, FOLDERS, WRITTEN
from kgops.workloads.workload import Words, Workload


def _check(settings: dict[str, Any]) -> list[str]:
    problems = []
    if not (settings["model_path"] or settings["checkpoint_dir"]) and settings["run"] is None:
        problems.append("evaluate: no model is named; give evaluate.run, checkpoint_dir or model_path")
    if settings["dataset"] and settings["train"]:
        problems.append("evaluate.dataset: given together with train; choose one or the other")
    if settings["run"] is None and not settings["dataset"] and not settings["train"]:
        problems.append(
            "evaluate.train: missing, and so is evaluate.dataset; the training triples are needed"
        )
    if settings["train"] and not settings["triples"] and not settings["test"] and settings["run"] is None:
        problems.append("evaluate.triples: missing; give the triples to rank")
    return problems


def _label(settings: dict[str, Any]) -> str:
    named = settings["triples"] or settings["dataset"] or settings["test"]
    return PurePath(named).stem if named else f"model of run {settings['run']}"


def evaluate_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of an evaluation, with reasons."""
    yield applied_cleanup(job, device)
    for name, value in job.options.items():
        if name not in EVALUATE.optimizations:
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "evaluating has no such option")


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
    PyKEEN's evaluator gives the same ranks.
    """,
        example="--run 1 --test other.txt",
        plan_example="--run 1 --gpu t4",
        shown=("triples", "dataset", "train", "trust_pickle"),
        paths=(*FILES, *FOLDERS, *WRITTEN),
    ),
)
