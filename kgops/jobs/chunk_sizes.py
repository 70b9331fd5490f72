"""Default batch, block and chunk sizes, for workers and memory estimates.

`tests/planning/test_estimate.py` compares these with the workers' own, since this package loads no torch.
"""

from __future__ import annotations

from kgops.options import predict, regress, tracin, train
from kgops.options.option import defaults_of

_TRAIN, _TRACIN = defaults_of(train.TRAIN_OPTIONS), defaults_of(tracin.TRACIN_OPTIONS)
_REGRESS = defaults_of(regress.REGRESS_OPTIONS)
_PREDICT = defaults_of(predict.PREDICT_OPTIONS)

TRAIN_BATCH: int = _TRAIN["batch_size"]
TRAIN_LOSS = train.DEFAULT_LOSS
LOSS_EVERY = 16  # steps; its value takes a pass over all scores that the gradient does not
GRAPH_WARM_UP = 3  # steps before one is captured as a CUDA graph
TRAIN_ROWS_AT_ONCE = 256  # of feature maps on their way back
LOSS_SCORES = {"cuda": 1 << 24, "cpu": 1 << 19}  # of one chunk of entities
COLUMN_FOLDS = 64  # rows that a GPU reduces together, with few enough for torch not to share a column
EVALUATION_CHUNK = {"cuda": 1 << 15, "cpu": 1024}  # entities
EVALUATION_QUERIES = 512
EVALUATION_ENCODED = 256

TRACIN_BLOCK: int = _TRACIN["block"]  # training triples
TRACIN_CHUNK: int = _TRACIN["entity_chunk"]  # entities
TRACIN_TEST_BYTES = 512 << 20  # of what is kept of test triples
TRACIN_TESTS = 4096  # at most at once
TRACIN_ROWS_AT_ONCE = 128
TRACIN_TANGENT_GROUPS = 64  # on a CPU; a GPU takes all of a block
TRACIN_MERGED_COLUMNS = 2048  # of scores that wait for ranking
TRACIN_RANKED_FIRST = 256  # of the first of these, which say what the others have to beat
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
EXPLAIN_RIVALS = (
    4  # entities with the highest scores that are no known answers: those that would take a lost rank
)
PREDICT_CHUNK: int = _PREDICT["entity_chunk"]  # entities
PREDICT_ENCODED = 256  # heads or questions encoded at once
PREDICT_SCORES = 1 << 23  # of all entities, for the questions of a block
PREDICT_SPARE = 16  # candidates beyond the last answer that are scored again
PREDICT_WAITING = 1 << 16  # pairs that are ranked together
PREDICT_PAIRS_AGAIN = 1 << 15  # scored again at once
REGRESS_BATCH: int = _REGRESS["batch_size"]  # windows
REGRESS_FRAMES: int = _REGRESS["temporal_frames"]  # of a window
REGRESS_IMAGES = "224x224"  # of frames, in a plan without data; the project it comes from names no size
REGRESS_VALIDATION_SHARE = 0.15  # of a flight's windows, its last ones

LARGEST_ALL_SCORES = 256 << 20  # bytes of all scores of a tile, where all are kept


def loss_chunk(requested: int | None, batch_size: int, device: str) -> int:
    """Entities scored at once in a training step, on "cuda" or "cpu"."""
    return requested if requested is not None else max(256, LOSS_SCORES[device] // batch_size)


def trainings_of_validation() -> int:
    """How often `--validate` trains again: on all triples, without the highest, the lowest and the controls."""
    return 1 + TRACIN_VALIDATION_NOISE + 2 + 2 * TRACIN_VALIDATION_DRAWS
