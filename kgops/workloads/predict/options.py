"""Options of the workload `predict`: ranked answers to questions, by a trained model."""

from __future__ import annotations

from dataclasses import replace

from kgops.jobs.option import Flag, Option, defaults_of
from kgops.jobs.option_checks import at_least
from kgops.workloads.shared_options import (
    CHECKPOINT_DIR,
    DEVICE,
    ENTITY_CHUNK,
    MEMORY_CLEANUP,
    MODEL_PATH,
    TRAINING_DATA,
    TRAINING_RUN,
    TRUST_PICKLE,
)

_TRIPLES = ("train", "valid", "test", "entity_to_id", "relation_to_id")
FILES = (*_TRIPLES, "model_path", "edge_map", "node_name_dict", "queries", "candidates", "node_types")
FOLDERS = ("checkpoint_dir",)
WRITTEN = ("output", "output_dir")

_MODEL = (
    TRAINING_RUN,
    MODEL_PATH,
    CHECKPOINT_DIR.adapted(help="Folder of checkpoints; without a model file, the newest of them answers."),
    TRUST_PICKLE,
)
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
    )
)
_RESULTS = (
    Option(
        "output", help="File for a copy of the answers: .json, .csv or .parquet decides.", group="results"
    ),
    Option("output_dir", help="Folder for a copy of the results.", group="results"),
)
_SPEED = (
    ENTITY_CHUNK.adapted(default=4096, flags=(Flag(""),)),
    MEMORY_CLEANUP,
    DEVICE,
)

PREDICT_OPTIONS = (*_MODEL, *_QUESTIONS, *TRAINING_DATA, *_RESULTS, *_SPEED)


_PREDICT = defaults_of(PREDICT_OPTIONS)

PREDICT_CHUNK: int = _PREDICT["entity_chunk"]  # entities
PREDICT_ENCODED = 256  # heads or questions encoded at once
PREDICT_SCORES = 1 << 23  # of all entities, for the questions of a block
PREDICT_SPARE = 16  # candidates beyond the last answer that are scored again
PREDICT_WAITING = 1 << 16  # pairs that are ranked together
PREDICT_PAIRS_AGAIN = 1 << 15  # scored again at once
