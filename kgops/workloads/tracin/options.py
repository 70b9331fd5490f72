"""Options of the workload `tracin`: the influence of training triples on test triples."""

from __future__ import annotations

from dataclasses import replace

from kgops.jobs.option import HIDDEN, Flag, Option, above, at_least, defaults_of, one_of
from kgops.workloads.shared_options import (
    CHECKPOINT_DIR,
    COMPILE,
    DEVICE,
    EDGE_MAP,
    ENTITY_CHUNK,
    GRADIENT_CHECKPOINTING,
    LEARNING_RATE,
    MEMORY_CLEANUP,
    MODEL_PATH,
    NODE_NAME_DICT,
    PRECISION,
    RUN,
    SEED,
    TRIPLES,
    TRUST_PICKLE,
    data_files,
)

LOSSES = ("target", "one-to-n", "train")
DEFAULT_LOSS = "target"
# Score and loss → the question that it answers, and its rank correlation with retraining on UMLS and CoDEx-S.
_QUESTIONS = {
    ("tracin", "train"): ("which triples lowered the training loss of this one?", "+.21 and +.14"),
    ("tracin", "target"): ("which triples raised this triple's logit?", "+.40 and +.29"),
    ("fisher", "logit"): ("how does the logit change if the triple is removed?", "+.63 and +.54"),
}


def question_of(score: str, loss: str) -> str | None:
    """The question that a score answers, and how well it foretold retraining; None where nobody measured it."""
    if (score, loss) not in _QUESTIONS:
        return None
    question, measured = _QUESTIONS[score, loss]
    return f"it answers: {question} Its rank correlation with retraining was {measured} (UMLS, CoDEx-S)."


SCORES = ("tracin", "cosine", "fisher")
FILES = (*TRIPLES, "test_triples", "model_path", "edge_map", "node_name_dict")
WRITTEN = ("output", "output_dir", "csv_output")
FILTERS = (
    *("n_hops", "min_degree", "preserve_test_edges", "strict_hop_constraint"),
    *("path_filtering", "max_total_path_length", "strict_path_filtering"),
)
_LAST_LAYERS = 2  # of --use-last-layers-only alone

_MODEL = (
    RUN,
    MODEL_PATH,
    CHECKPOINT_DIR,
    Option(
        "last_checkpoints", "int", check=at_least(1), help="Use only the last N checkpoints.", group="model"
    ),
    TRUST_PICKLE,
)
_DATA = (
    Option("dataset", help="Training triples: a PyKEEN dataset by name.", group="data"),
    *data_files(
        train="Training triples: a file.",
        valid="Validation triples of the training, where they add entities.",
        test="Test triples; --test-triple chooses one of them.",
        test_triple="A triple, known or predicted: head, relation, tail, separated by tabs, commas or spaces; "
        "or a file of triples. Each is scored against its neighbourhood only.",
    ),
    Option(
        "test_triples",
        help="File of test triples, each filtered to its neighbourhood.",
        flags=(Flag("", hidden=True),),  # in commands, --test-triple takes the file
        group="data",
    ),
    Option(
        "start_index",
        "int",
        0,
        check=at_least(0),
        help="Skip the first N test triples of the file.",
        group="data",
    ),
    Option(
        "max_triples",
        "int",
        check=at_least(1),
        help="Attribute at most N test triples.",
        flags=(Flag(""), Flag("--top", hidden=True)),
        group="data",
    ),
    Option(
        "from_predictions",
        "int",
        check=at_least(1),
        help="Number of the predict run whose answers are attributed, best ranks first; nothing else is needed.",
        group="data",
    ),
    Option(
        "new",
        "bool",
        False,
        help="With --from-predictions, attribute only answers that are in none of the files.",
        group="data",
    ),
    *data_files(
        entity_to_id="Entity vocabulary: label and id, in either order.",
        relation_to_id="Relation vocabulary: label and id, in either order.",
    ),
    EDGE_MAP,
    NODE_NAME_DICT,
)
_RESULTS = tuple(
    replace(option, group="results")
    for option in (
        Option("output", help="JSON file for a copy of the results."),
        Option("csv_output", help="CSV file for a copy of the results."),
        Option("output_dir", help="Folder for a copy of the results, as CSV and JSON."),
        Option("parquet", "bool", False, help="Write the results as one Parquet file, the smallest format."),
        Option(
            "top_k",
            "int",
            check=at_least(1),
            help="Keep the k strongest influences; default: all in named files, otherwise 100.",
        ),
    )
)
_ATTRIBUTION = tuple(
    replace(option, group="attribution")
    for option in (
        Option(
            "score",
            default="tracin",
            check=one_of(*SCORES),
            help="Score of a training triple: tracin, cosine or fisher. cosine leaves out the gradients' lengths. "
            "fisher corrects by the curvature of the training loss. It foretells retraining best. "
            "For ConvE, ComplEx and DistMult.",
        ),
        Option(
            "loss",
            check=one_of(*LOSSES),
            help=f"Loss to compare gradients of: {', '.join(LOSSES)}.",
            shown_default=DEFAULT_LOSS,
        ),
        Option(
            "both_directions",
            "bool",
            help="Add the inverse of each triple; default: as the model was trained.",
        ),
        LEARNING_RATE.adapted(
            default=None, check=above(0), help="Learning rate for checkpoints that record none."
        ),
        Option("layers", "strings", help="Compare gradients of these layers or parameters only."),
        Option(
            "self_influence", "bool", False, help="Score the self-influence of each training triple instead."
        ),
        Option(
            "validate",
            "int",
            check=at_least(1),
            help="Delete the k strongest triples, retrain and compare.",
        ),
        SEED.adapted(help="Random seed of samples and of --validate."),
    )
)
_FILTER = tuple(
    replace(option, group="filter")
    for option in (
        Option(
            "n_hops",
            "int",
            2,
            check=at_least(1),
            help="Keep triples within so many hops of the test head and of the test tail, both.",
        ),
        Option("min_degree", "int", 2, check=at_least(0), help="Least degree of one end of an edge."),
        Option(
            "preserve_test_edges",
            "bool",
            True,
            help="Of those, keep edges at the test head and tail whatever the degree.",
        ),
        Option(
            "strict_hop_constraint",
            "bool",
            False,
            help="Also require the test head and tail to be within n_hops of each other.",
        ),
        Option(
            "path_filtering",
            "bool",
            False,
            help="Keep only edges on a simple path from head to tail.",
        ),
        Option(
            "max_total_path_length",
            "int",
            check=at_least(1),
            help="Longest path in edges; default 2 n_hops.",
        ),
        Option("strict_path_filtering", "bool", False, help="Keep exactly the edges on these paths."),
        Option(
            "skip_tracin",
            "bool",
            False,
            help="Only filter, and write the remaining triples of each test triple.",
        ),
        Option("cache", help=HIDDEN, flags=(Flag("", hidden=True),)),
        Option("filter_method", help=HIDDEN, flags=(Flag("", hidden=True),)),
    )
)
_SPEED = (
    PRECISION.adapted(
        help="Number format of all products but the two largest, which stay in fp32.", shown_default="fp32"
    ),
    Option(
        "block",
        "choice",
        256,
        choices=(int,),
        effect="exact",
        summary="training triples scored at once",
        help="Training triples scored at a time; the scores stay the same.",
        flags=(Flag("--batch-size"),),
        group="memory and speed",
        steps=tuple(1 << n for n in range(5, 13)),
        in_form=True,
    ),
    ENTITY_CHUNK.adapted(default=2048),
    Option(
        "tests_at_once",
        "choice",
        "auto",
        choices=("auto", int),
        effect="exact",
        summary="test triples scored at once",
        help="Test triples whose gradient factors are in memory at a time.",
        group="memory and speed",
        steps=tuple(1 << n for n in range(4, 13)),
        in_form=True,
    ),
    Option(
        "last_layers",
        "choice",
        False,
        choices=(False, int),
        effect="changes results",
        summary="gradients of the last layers only",
        flags=(
            Flag(
                "--num-last-layers",
                help=f"Number of last layers, with --use-last-layers-only.  [default: {_LAST_LAYERS}]",
                needs="--use-last-layers-only",
            ),
            Flag(
                "--use-last-layers-only",
                _LAST_LAYERS,
                help="Use gradients of the last layers only; changes results.",
            ),
        ),
        group="attribution",
        steps=(1, 2, 3),
        in_form=True,
    ),
    Option(
        "filtering",
        "choice",
        choices=(True, False),
        effect="changes results",
        summary="score the test triple's neighbourhood",
        help="Score all training triples, also for a file of test triples.",
        flags=(Flag("--skip-filtering", False),),
        group="filter",
    ),
    Option(
        "devices",
        "choice",
        1,
        choices=("all", int),
        pattern=r"\d+(,\d+)+",
        example="GPUs as in 0,1",
        effect="exact",
        summary="GPUs, or CPU processes, that share the run",
        help="GPUs, or CPU processes, that share the run: a number, all, or indexes of GPUs as in 0,1.",
        flags=(Flag(""), Flag("--enable-multi-gpu", "all", help="Alias of --devices all.")),
        group="memory and speed",
    ),
    MEMORY_CLEANUP,
    GRADIENT_CHECKPOINTING.adapted(
        flags=(Flag("--use-gradient-checkpointing", True, hidden=True),),
        in_form=False,
        off_because="TracIn has no backward pass that keeps activations",
    ),
    COMPILE.adapted(
        flags=(Flag("--use-torch-compile", "default", hidden=True),),
        in_form=False,
        off_because="nearly all time is in matrix products, which are compiled already",
    ),
    Option(
        "vectorized_gradients",
        "choice",
        choices=(True, False),
        effect="exact",
        summary="gradients of many triples at once",
        flags=(
            Flag("--disable-vectorized-gradients", False, hidden=True),
            Flag("--use-vectorized-gradients", True, hidden=True),
            Flag("--use-optimized-tracin", True, hidden=True),
        ),
        help=HIDDEN,
    ),
    Option(
        "test_gradient_caching",
        "choice",
        choices=(True, False),
        effect="exact",
        summary="compute gradients of test triples once",
        flags=(Flag("--disable-test-gradient-caching", False, hidden=True),),
        help=HIDDEN,
    ),
    DEVICE,
)

TRACIN_OPTIONS = (*_MODEL, *_DATA, *_RESULTS, *_ATTRIBUTION, *_FILTER, *_SPEED)


_TRACIN = defaults_of(TRACIN_OPTIONS)

TRACIN_BLOCK: int = _TRACIN["block"]  # training triples
TRACIN_CHUNK: int = _TRACIN["entity_chunk"]  # entities
TRACIN_TEST_BYTES = 512 << 20  # of what is kept of test triples
TRACIN_TESTS = 4096  # at most at once
TRACIN_ROWS_AT_ONCE = 128
TRACIN_TANGENT_GROUPS = 64  # on a CPU; a GPU takes all of a block
TRACIN_MERGED_COLUMNS = 2048  # of scores that wait for ranking
TRACIN_RANKED_FIRST = 256  # of the first of these, which say what the others have to beat
TRACIN_RANKING_BYTES = 32 << 20  # at most, while scores enter the strongest of their tests
TRACIN_ENTERING = 45  # of them for each score, where all enter
TRACIN_TIES_AT_ONCE = 16  # tests with ties at the last rank
TRACIN_TOP_K_DEFAULT = 100  # with --run, or where no file is named
TRACIN_TESTS_IN_RECORD = 2000  # the files that are named have all
TRACIN_INFLUENCES_IN_RECORD = 50  # proponents, and opponents, of each of these
TRACIN_VALIDATED_TESTS = 50  # whose influences --validate deletes together
TRACIN_VALIDATION_DRAWS = 3  # of each of two controls, deleted for comparison
TRACIN_VALIDATION_NOISE = 3  # trainings on all triples with other seeds
TRACIN_AGREEMENT_TESTS = 16  # sample on which options that change scores are checked
TRACIN_AGREEMENT_TRAINS = 20_000
TRACIN_FISHER_QUERIES = 4096  # of the training, in which --score fisher sees its curvature
TRACIN_FISHER_OF_RELATION = 512  # of these again for the curvature of each relation
TRACIN_FISHER_BLOCK = 256  # of both at once
LARGEST_ALL_SCORES = 256 << 20  # bytes of all scores of a tile, where all are kept


def tests_ranked_at_once(columns: int) -> int:
    """Tests with so many scores each."""
    return max(1, TRACIN_RANKING_BYTES // (TRACIN_ENTERING * max(columns, 1)))


def trainings_of_validation() -> int:
    """How often `--validate` retrains: on all triples, without the highest, the lowest and the controls."""
    return 1 + TRACIN_VALIDATION_NOISE + 2 + 2 * TRACIN_VALIDATION_DRAWS
