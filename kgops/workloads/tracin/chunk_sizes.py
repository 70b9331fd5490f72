"""Default batch, block and chunk sizes of a TracIn run, for workers and memory estimates."""

from __future__ import annotations

from kgops.jobs.option import defaults_of
from kgops.workloads.tracin.options import TRACIN_OPTIONS

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
    """How often `--validate` trains again: on all triples, without the highest, the lowest and the controls."""
    return 1 + TRACIN_VALIDATION_NOISE + 2 + 2 * TRACIN_VALIDATION_DRAWS
