"""Options of the workload `predict`: ranked answers to questions, by a trained model."""

from __future__ import annotations

from dataclasses import replace

from kgops.jobs.option import Flag, Option, at_least, defaults_of
from kgops.workloads.shared_options import (
    DEVICE,
    ENTITY_CHUNK,
    MEMORY_CLEANUP,
    OUTPUT_DIR,
    TRAINING_DATA,
    TRAINING_NAMES,
    TRIPLES,
    trained_model,
)

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
