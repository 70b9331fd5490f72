"""The workload `explain`: it finds the training triples of head and tail that carry a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, applied_cleanup, unknown_options
from kgops.jobs.option import Flag, Option, at_least, not_a_triple
from kgops.workloads.predict.job import answer_copies
from kgops.workloads.shared_options import (
    DEVICE,
    FOLDERS,
    MEMORY_CLEANUP,
    OUTPUT_DIR,
    SEED,
    TRAINING_DATA,
    TRAINING_NAMES,
    TRIPLES,
    trained_model,
    trained_model_problems,
)
from kgops.workloads.tracin.job import predictions_and_more
from kgops.workloads.workload import Words, Workload

FILES = (*TRIPLES, "model_path", "edge_map", "node_name_dict", "node_types", "triples")
WRITTEN = ("output", "output_dir")

_PREDICTIONS = tuple(
    replace(option, group="questions")
    for option in (
        Option(
            "triple",
            check=not_a_triple,
            help="The prediction: head, relation, tail, by name or id, separated by tabs, commas or spaces.",
        ),
        Option(
            "triples",
            help="File of predictions: head, relation, tail on each line. --triple also takes a file.",
        ),
        Option(
            "asked",
            "choice",
            "tail",
            choices=("tail", "head"),
            help="The end that the model was asked for: the tail, (head, relation, ?), or the head, (?, relation, "
            "tail). A fourth column of a file sets it for its line; a predict run sets it for its answers.",
        ),
        Option(
            "from_predictions",
            "int",
            check=at_least(1),
            help="Number of the predict run whose answers are explained, best ranks first; nothing else is needed.",
        ),
        Option(
            "new",
            "bool",
            False,
            help="With --from-predictions, explain only answers that are in none of the files.",
        ),
        Option(
            "max_triples",
            "int",
            check=at_least(1),
            help="Explain at most N predictions.",
            flags=(Flag(""), Flag("--top", hidden=True)),
        ),
    )
)
_SEARCH = tuple(
    replace(option, group="attribution")
    for option in (
        Option("max_facts", "int", 4, check=at_least(1), help="Training triples of a set, at most."),
        Option(
            "verify",
            "bool",
            False,
            help="Retrain without all sets (with --sufficient: with them added to the other heads). Retrain as often "
            "with all triples and without random ones.",
        ),
        Option(
            "smallest",
            "bool",
            False,
            help="Retrain without the first triple of each set, then the first two, and so on. Keep the fewest top "
            "triples whose removal loses the prediction, and verify them.",
        ),
        Option(
            "sufficient",
            "bool",
            False,
            help="Find triples of the head that make the model predict the tail for 10 other heads that have them. "
            "With --asked head: triples of the tail, and 10 other tails.",
        ),
        Option("verify_seeds", "int", 1, check=at_least(1), help="When verifying, trainings of each kind."),
        SEED.adapted(help="Seed of what is sampled of a large training, and of the other heads."),
    )
)
_DATA = (
    *TRAINING_DATA,
    *TRAINING_NAMES,
    Option(
        "node_types",
        help="TSV file with types of entities, to say which relations nobody of a type has.",
        group="data",
    ),
)
_RESULTS = (
    Option("output", help="File for a copy of the explanations: .json or .csv decides.", group="results"),
    OUTPUT_DIR,
)

EXPLAIN_OPTIONS = (
    *trained_model("is explained"),
    *_PREDICTIONS,
    *_SEARCH,
    *_DATA,
    *_RESULTS,
    MEMORY_CLEANUP,
    DEVICE,
)


EXPLAIN_RIVALS = (
    4  # entities with the highest scores that are no known answers: those that would take a lost rank
)


EXPLANATIONS = "explanations"  # result files: .json and .csv
PATHS = "paths.csv"  # from head to tail of each prediction
_SUFFIXES = (".json", ".csv")


def most_retrainings(settings: Mapping[str, Any]) -> int:
    """How often a job retrains, at most; 0 where it does not."""
    seeds: int = settings["verify_seeds"]
    if settings["smallest"]:
        rounds: int = settings["max_facts"]
        return (1 + rounds + 4) * seeds
    return 3 * seeds if settings["verify"] else 0


def cost_of(settings: Mapping[str, Any]) -> str | None:
    """The same in words; None where it does not."""
    count, seeds = most_retrainings(settings), settings["verify_seeds"]
    if settings["smallest"]:
        return (
            f"it retrains at most {count:,} times: with all facts and {settings['max_facts']:,} rounds to find the "
            f"smallest sets, then 4 kinds to verify them, {seeds:,} each"
        )
    return f"it retrains {count:,} times" if count else None


def _check(settings: dict[str, Any]) -> list[str]:
    names_run = settings["run"] is not None or settings["from_predictions"] is not None
    problems = trained_model_problems("explain", settings, names_run=names_run)
    if settings["output"] and PurePath(settings["output"]).suffix.lower() not in _SUFFIXES:
        problems.append(
            f"explain.output: must end in {' or '.join(_SUFFIXES)}; found {settings['output']!r:.60}"
        )
    if settings["smallest"] and settings["sufficient"]:
        problems.append("explain.smallest: sufficient sets are not made smaller; choose one")
    if settings["verify_seeds"] != EXPLAIN.default("verify_seeds") and not cost_of(settings):
        problems.append("explain.verify_seeds: nothing is retrained; give explain.verify or explain.smallest")
    return problems + _predictions(settings)


def _predictions(settings: dict[str, Any]) -> list[str]:
    """Problems of what is to be explained."""
    by_run = settings["from_predictions"] is not None
    if settings["triple"] and settings["triples"]:
        return ["explain.triples: given together with triple; choose one"]
    if settings["triple"] and by_run:
        return ["explain.triple: given together with from_predictions; choose one"]
    if not by_run and not settings["triple"] and not settings["triples"]:
        return ["explain.triple: missing; give a prediction, a file of them, or from_predictions"]
    if settings["new"] and not by_run:
        return ["explain.new: only predictions can be new; give from_predictions"]
    if settings["triple"] and settings["max_triples"] is not None:
        return ["explain.max_triples: triple is one prediction; leave it out"]
    return predictions_and_more("explain", settings, "triples") if by_run else []


def _label(settings: dict[str, Any]) -> str:
    if settings["triple"]:
        return " ".join(str(settings["triple"]).split("\t"))
    if settings["from_predictions"] is not None:
        return f"predictions of run {settings['from_predictions']}"
    return PurePath(settings["triples"] or "").stem or "explain"


WORDS = Words(
    help="""Find the training triples of head and tail that carry a prediction.

    They have the strongest influence on the tail, beyond its rivals. --verify retrains without them and reports
    whether the prediction is lost. --smallest finds the smallest set by retraining. --sufficient finds triples of
    the head that create the prediction for other heads.
    """,
    example="--run 1 --triple usa embassy china",
    plan_example="--run 1 --triple usa embassy china --gpu t4",
    shown=(
        *("triple", "triples", "from_predictions", "new", "max_triples", "max_facts", "verify", "smallest"),
        *("sufficient", "asked"),
    ),
    paths=(*FILES, *FOLDERS, *WRITTEN),
    triple=("triple", "triples"),
)


EXPLAIN = Workload(
    name="explain",
    summary="training triples that a prediction rests on",
    options=EXPLAIN_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,
    module="kgops.maths.explain.worker",
    keeps_budget=True,
    inputs=FILES,
    folders=FOLDERS,
    reads_model=True,
    retrainings=most_retrainings,
    outputs=partial(answer_copies, EXPLANATIONS),
    triples="triples",
    with_profile=False,
    words=WORDS,
)


def explain_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of an explain run."""
    yield applied_cleanup(job, device)
    yield from unknown_options(job, EXPLAIN.optimizations, "explaining")
