"""Options of the workload `train`: one knowledge-graph embedding model on one graph."""

from __future__ import annotations

from kgops.jobs.option import Flag, Option, above, at_least, below_one, between_0_and_1, defaults_of, one_of
from kgops.workloads.shared_options import (
    BATCH_SIZE,
    COMPILE,
    CUDA_GRAPHS,
    DEVICE,
    ENTITY_CHUNK,
    GRADIENT_CHECKPOINTING,
    LARGEST_GROUP,
    LEARNING_RATE,
    MEMORY_CLEANUP,
    NUM_WORKERS,
    OPTIMIZER_KERNEL,
    PRECISION,
    RESUME_EVERY,
    SCALE_GRADIENTS,
    SEED,
    data_files,
    grouped,
    number,
    switch,
)

LOSSES = ("kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce")
DEFAULT_LOSS = "kvsall-bce"  # of kgops' engine
OPTIMIZERS = ("adam", "adamw", "adagrad", "sgd")
SCHEDULES = ("constant", "plateau", "cosine")
ENGINES = ("kgops", "pykeen")
CONVE = "ConvE"
# Models of one vector for each entity and relation: the numbers of each dimension.
VECTOR_MODELS = {
    "ComplEx": 2,
    "DistMult": 1,
}
OWN_MODELS = {name.lower(): name for name in (CONVE, *VECTOR_MODELS)}  # of kgops' engine, as people type them
CONVE_LAYERS = (
    *("embedding_height", "embedding_width", "input_channels", "output_channels", "kernel_height"),
    *(
        "kernel_width",
        "input_dropout",
        "feature_map_dropout",
        "relation_dropout",
        "output_dropout",
        "batch_norm",
    ),
)
REGULARIZERS = ("none", "n3")
GROUPED_LOSS = "1vsall-ce"  # whose queries may be grouped


def one_positive(loss: str, group_queries: bool) -> bool:
    """Whether every triple is a query; otherwise every distinct (head, relation)."""
    return loss.startswith("1vsall") and not group_queries


def _count(name: str, default: int | None, help: str, *, least: int = 1) -> Option:
    return Option(name, "int", default, help, at_least(least))


_DATA = (
    Option(
        "dataset", help="PyKEEN dataset by name; nations, kinships and umls need no network.", group="data"
    ),
    *data_files(
        train="Training triples: head, relation, tail, tab separated; may be .gz.",
        valid="Validation triples.",
        test="Test triples.",
        entity_to_id="Entity vocabulary: label and id, in either order.",
        relation_to_id="Relation vocabulary: label and id, in either order.",
        output_dir="Folder for a copy of the results once the run has succeeded.",
    ),
)
_MODEL = grouped(
    "model",
    Option(
        "engine",
        default="kgops",
        check=one_of(*ENGINES),
        help=f"Training engine: kgops ({', '.join(OWN_MODELS.values())}) or pykeen (any model).",
    ),
    Option("model", default=CONVE, help=f"Model: {', '.join(OWN_MODELS.values())}, or any PyKEEN model."),
    _count(
        "embedding_dim", 200, "Embedding dimension of entities and relations. ComplEx has complex dimensions."
    ).adapted(flags=(Flag(""), Flag("--rank", help="The same as --embedding-dim."))),
    _count("embedding_height", None, "Rows of the image that ConvE reshapes an embedding to."),
    _count("embedding_width", None, "Columns of that image."),
    _count("input_channels", None, "Channels of that image."),
    _count("output_channels", 32, "Output channels (feature maps) of the convolution."),
    _count("kernel_height", 3, "Height of the convolution kernel."),
    _count("kernel_width", 3, "Width of the convolution kernel."),
    number("input_dropout", 0.2, below_one, "Dropout on the input image."),
    number("feature_map_dropout", 0.2, below_one, "Dropout of whole feature maps."),
    number("relation_dropout", 0.0, below_one, "Dropout on the relation embedding."),
    number("output_dropout", 0.3, below_one, "Dropout on the projected vector."),
    switch("batch_norm", True, "Batch normalization, PyKEEN's default."),
    switch(
        "inverse",
        None,
        "Add inverse relations, to predict heads as tails; default: on with kgops' engine.",
    ),
)
_TRAINING = grouped(
    "training",
    _count("num_epochs", 100, "Passes over the training triples.").adapted(
        flags=(Flag(""), Flag("--epochs", hidden=True))
    ),
    Option(
        "loss",
        check=one_of(*LOSSES),
        help=f"Training loss: {', '.join(LOSSES)}; default: {DEFAULT_LOSS}, or with PyKEEN the model's own.",
    ),
    switch(
        "group_queries",
        False,
        f"Score up to {LARGEST_GROUP} triples of a (head, relation) as one query; loss {GROUPED_LOSS} only.",
    ),
    number(
        "label_smoothing",
        0.1,
        below_one,
        "Label smoothing: share of each label spread over all entities.",
    ),
    Option(
        "optimizer", default="adam", check=one_of(*OPTIMIZERS), help=f"Optimizer: {', '.join(OPTIMIZERS)}."
    ),
    LEARNING_RATE.adapted(check=above(0)),
    number("weight_decay", 0.0, at_least(0), "Weight decay of the optimizer."),
    Option(
        "regularizer",
        default="none",
        check=one_of(*REGULARIZERS),
        help="Penalty on the vectors of each triple: none, or n3, the cubes of their sizes. The loss that is shown "
        "leaves it out. Not for ConvE.",
    ),
    number("regularizer_weight", 0.05, at_least(0), "Weight of the regularizer."),
    number(
        "relation_prediction",
        0.0,
        at_least(0),
        "Weight of a second loss that asks for the relation of head and tail; 0: none. Not for ConvE.",
    ),
    Option(
        "schedule",
        default="constant",
        check=one_of(*SCHEDULES),
        help=f"Learning rate schedule: {', '.join(SCHEDULES)}.",
    ),
    number("schedule_factor", 0.95, between_0_and_1, "Factor on the learning rate at each plateau."),
    _count("schedule_patience", 9, "Validations without a better MRR before a plateau.", least=0),
    _count("warmup_epochs", 0, "Epochs of linear learning rate warmup.", least=0),
    SEED,
    _count("validate_every", 5, "Epochs between validations; 0: never.", least=0),
    _count("patience", 0, "Validations without a better MRR before stopping; 0: never.", least=0),
    _count("checkpoint_frequency", 2, "Epochs between checkpoints kept for TracIn; 0: none.", least=0),
)
_SPEED = (
    PRECISION,
    BATCH_SIZE.adapted(default=256, help="Queries (head, relation) per step."),
    ENTITY_CHUNK.adapted(shown_default="chosen for the device"),
    GRADIENT_CHECKPOINTING,
    COMPILE,
    CUDA_GRAPHS,
    MEMORY_CLEANUP,
    Option(
        "grad_clip",
        "float",
        0.0,
        check=at_least(0),
        effect="changes results",
        summary="largest norm of the gradients of a step; 0: no limit",
        help="Largest norm of the gradients of a step: larger ones are scaled down to it; 0: no limit.",
        group="training",
        steps=(0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0),
        in_form=True,
    ),
    NUM_WORKERS,
    OPTIMIZER_KERNEL,
    SCALE_GRADIENTS,
    DEVICE,
)
# PyKEEN's pipeline applies these as requested.
OF_PYKEEN = ("num_workers", "grad_clip")

TRAIN_OPTIONS = (*_DATA, *_MODEL, *_TRAINING, *_SPEED, RESUME_EVERY)


_TRAIN = defaults_of(TRAIN_OPTIONS)

TRAIN_BATCH: int = _TRAIN["batch_size"]
TRAIN_LOSS = DEFAULT_LOSS
LOSS_EVERY = 16  # steps; its value takes a pass over all scores that the gradient does not
GRAPH_WARM_UP = 3  # steps before one is captured as a CUDA graph
TRAIN_ROWS_AT_ONCE = 256  # of feature maps on their way back
LOSS_SCORES = {"cuda": 1 << 24, "cpu": 1 << 19}  # of one chunk of entities
COLUMN_FOLDS = 64  # rows that a GPU reduces together, with few enough for torch not to share a column
EVALUATION_QUERIES = 512  # in a block
EVALUATION_CHUNK = {"cuda": 1 << 15, "cpu": 1024}  # entities
EVALUATION_ENCODED = 256


def loss_chunk(requested: int | None, batch_size: int, device: str) -> int:
    """Entities scored at once in a training step, on "cuda" or "cpu"."""
    return requested if requested is not None else max(256, LOSS_SCORES[device] // batch_size)
