"""A digest of triples that does not depend on their order."""

from __future__ import annotations

import numpy as np
import torch

# Odd numbers of 64 bits: for each of two sums, one for each column.
_FACTORS = (
    (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    (0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB),
)
_ROWS_AT_ONCE = 1 << 14  # so that they stay in the processor's cache


def triples_digest(triples: torch.Tensor) -> str:
    """`COUNT:HEX` of int64 rows (head, relation, tail). A triple that stands there twice counts twice.

    HEX is two sums modulo 2^64 of one mixed number for each triple.
    """
    rows = triples.numpy().view(np.uint64)
    sums = [0, 0]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        columns = rows[start : start + _ROWS_AT_ONCE].T
        for i, factors in enumerate(_FACTORS):
            mixed = columns[0] * np.uint64(factors[0])
            mixed += columns[1] * np.uint64(factors[1])
            mixed += columns[2] * np.uint64(factors[2])
            # The last steps of splitmix64; all arithmetic wraps.
            mixed ^= mixed >> np.uint64(30)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(27)
            mixed *= np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
            sums[i] += int(mixed.sum())
    return f"{len(rows)}:" + "".join(f"{one % 2**64:016x}" for one in sums)
