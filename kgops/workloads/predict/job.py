"""The workload `predict`: it answers questions (head, relation, ?) with a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import Applied, WorkerDevice, applied_cleanup, unknown_options
from kgops.jobs.option import Flag, Option, at_least, defaults_of
from kgops.workloads.shared_options import (
    DEVICE,
    ENTITY_CHUNK,
    FOLDERS,
    MEMORY_CLEANUP,
    OUTPUT_DIR,
    TRAINING_DATA,
    TRAINING_NAMES,
    TRIPLES,
    trained_model,
    trained_model_problems,
)
from kgops.workloads.workload import Words, Workload

FILES = (*TRIPLES, "model_path", "edge_map", "node_name_dict", "queries", "candidates", "node_types", "mark")
WRITTEN = ("output", "output_dir")

_QUESTIONS = tuple(
    replace(option, group="questions")
    for option in (
        Option("head", help="Head entity, by name or id; left out: heads are predicted."),
        Option("relation", help="Relation, by name or id."),
        Option("tail", help="Tail entity, by name or id; left out: tails are predicted."),
        Option(
            "queries",
            help="File of questions: head, relation, tail, separated by tabs, with ? for what is asked.",
        ),
        Option(
            "each",
            help="Ask about each entity of this type; needs --relation and --node-types. With --best: heads of pairs.",
        ),
        Option("top_k", "int", 50, check=at_least(1), help="Answers to each question."),
        Option(
            "best",
            "int",
            check=at_least(1),
            help="Score all pairs of entities for the relation, and keep the best N.",
        ),
        Option(
            "new",
            "bool",
            help="List only triples that are in none of the files; default: on with --best, otherwise off.",
        ),
        Option("candidates", help="File of entities, one a line: only these are answers."),
        Option("candidate_type", help="Only entities of this type are answers; needs --node-types."),
        Option(
            "node_types",
            help="TSV file with types of entities: the id, and a column type or category (otherwise the second).",
        ),
        Option(
            "mark",
            help="TSV file of head, tail, and a word such as trial or off-label, which is added to these answers.",
        ),
    )
)
_RESULTS = (
    Option(
        "output", help="File for a copy of the answers: .json, .csv or .parquet decides.", group="results"
    ),
    OUTPUT_DIR,
)
_SPEED = (
    ENTITY_CHUNK.adapted(default=4096, flags=(Flag(""),)),
    MEMORY_CLEANUP,
    DEVICE,
)

PREDICT_OPTIONS = (
    *trained_model("answers"),
    *_QUESTIONS,
    *TRAINING_DATA,
    *TRAINING_NAMES,
    *_RESULTS,
    *_SPEED,
)


_PREDICT = defaults_of(PREDICT_OPTIONS)

PREDICT_CHUNK: int = _PREDICT["entity_chunk"]  # entities
PREDICT_ENCODED = 256  # heads or questions encoded at once
PREDICT_SCORES = 1 << 23  # of all entities, for the questions of a block
PREDICT_SPARE = 16  # candidates beyond the last answer that are scored again
PREDICT_WAITING = 1 << 16  # pairs that are ranked together
PREDICT_PAIRS_AGAIN = 1 << 15  # scored again at once


# Result files. The triples are for a TracIn run: best ranks first, over all questions.
ANSWERS = "predictions"
PREDICTED_TRIPLES = "predicted_triples.tsv"
NEW_TRIPLES = "predicted_new_triples.tsv"

_SUFFIXES = (".csv", ".json", ".parquet")


def formats_of(settings: dict[str, Any]) -> tuple[str, ...]:
    """Suffixes of the result files with all answers: CSV always, since lists are read from it."""
    wanted = PurePath(settings["output"] or "").suffix.lower()
    return tuple(dict.fromkeys((".csv", *([wanted] if wanted else []))))


def lists_new_alone(settings: dict[str, Any]) -> bool:
    new: bool | None = settings["new"]
    return settings["best"] is not None if new is None else new


def _check(settings: dict[str, Any]) -> list[str]:
    names_run = settings["run"] is not None
    problems = trained_model_problems("predict", settings, names_run=names_run)
    problems += [
        f"predict.{name}: needs node_types, a file with types of entities"
        for name in ("candidate_type", "each")
        if settings[name] and not settings["node_types"]
    ]
    if settings["output"] and PurePath(settings["output"]).suffix.lower() not in _SUFFIXES:
        problems.append(
            f"predict.output: must end in {', '.join(_SUFFIXES)}; found {settings['output']!r:.60}"
        )
    return problems + _questions(settings)


def _questions(settings: dict[str, Any]) -> list[str]:
    """Problems of what is asked."""
    given = [name for name in ("head", "relation", "tail") if settings[name]]
    if settings["queries"]:
        more = [*given, *(name for name in ("best", "each") if settings[name])]
        return [f"predict.queries: given together with {', '.join(more)}; choose one"] if more else []
    if not settings["relation"]:
        return [
            "predict.relation: missing; give it with predict.head or predict.tail, or give predict.queries, a file"
        ]
    ends = [name for name in ("head", "tail") if settings[name]]
    if settings["best"] and settings["top_k"] != PREDICT.default("top_k"):
        return ["predict.top_k: best says how many pairs are kept; leave it out"]
    if settings["best"]:
        return [f"predict.best: scores all pairs; leave out {' and '.join(ends)}"] if ends else []
    if settings["each"]:
        return [f"predict.each: asks about a type; leave out {' and '.join(ends)}"] if ends else []
    if len(ends) == 2:
        return ["predict.tail: given together with head, so nothing is asked; leave out one of them"]
    return (
        []
        if ends
        else ["predict.head: missing, and so is predict.tail; give one, or predict.best for all pairs"]
    )


def _label(settings: dict[str, Any]) -> str:
    if settings["queries"]:
        return PurePath(settings["queries"]).stem or "predict"
    if settings["each"] and not settings["best"]:
        return f"{settings['relation']}, each {settings['each']}"
    asked = (settings["head"] or "?", settings["relation"] or "?", settings["tail"] or "?")
    return " ".join(asked)


def answer_copies(stem: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The copy that a person named, by the result file that it is of."""
    named = settings.get("output")
    return {f"{stem}{PurePath(named).suffix.lower()}": named} if named else {}


WORDS = Words(
    help="""Rank the answers to questions: leave out --head or --tail. --best and --each need neither.

    Each answer has its rank among all candidates, its score, and its probability by the training loss. It also says
    whether the triple is known (train, valid, test) or new.
    """,
    example="--run 1 --head usa --relation embassy --top-k 5",
    plan_example="--run 1 --head usa --relation embassy --gpu t4",
    shown=(*("head", "relation", "tail", "queries", "each", "top_k", "best", "new", "candidate_type"),),
    paths=(*FILES, *FOLDERS, *WRITTEN),
)


PREDICT = Workload(
    name="predict",
    summary="ranked answers to questions, by a trained model",
    options=PREDICT_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # it takes seconds, so a lost worker costs little
    module="kgops.maths.predict.worker",
    keeps_budget=True,
    inputs=FILES,
    folders=FOLDERS,
    reads_model=True,
    outputs=partial(answer_copies, ANSWERS),
    with_profile=False,
    words=WORDS,
)


def predict_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of a predict run."""
    chunk = job.options.get("entity_chunk", "auto")
    yield Applied("entity_chunk", PREDICT_CHUNK if chunk == "auto" else chunk)
    yield applied_cleanup(job, device)
    yield from unknown_options(job, PREDICT.optimizations, "predicting")
