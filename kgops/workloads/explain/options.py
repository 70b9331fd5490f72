"""Options of the workload `explain`: the training triples of head and tail that carry a prediction."""

from __future__ import annotations

from dataclasses import replace

from kgops.jobs.option import Flag, Option, at_least, not_a_triple
from kgops.workloads.shared_options import (
    DEVICE,
    MEMORY_CLEANUP,
    OUTPUT_DIR,
    SEED,
    TRAINING_DATA,
    TRAINING_NAMES,
    TRIPLES,
    trained_model,
)

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
