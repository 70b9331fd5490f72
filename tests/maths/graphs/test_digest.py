"""A digest of triples: equal for the same triples in any order, and otherwise not."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from kgops.jobs.data_digests import changes, shown
from kgops.maths.graphs.triples import read_graph, triples_digest

TRIPLES = st.lists(st.tuples(*[st.integers(0, 2**62)] * 3), max_size=40)
FACTORS = (
    (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    (0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB),
)


def by_hand(triples: list[tuple[int, int, int]]) -> str:
    """The same with Python's whole numbers."""
    sums = [0, 0]
    for triple in triples:
        for i, factors in enumerate(FACTORS):
            mixed = sum(one * factor for one, factor in zip(triple, factors, strict=True)) % 2**64
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
                mixed = (mixed ^ mixed >> shift) * factor % 2**64
            sums[i] = (sums[i] + mixed) % 2**64
    return f"{len(triples)}:{sums[0]:016x}{sums[1]:016x}"


def digest(triples: list[tuple[int, int, int]]) -> str:
    return triples_digest(torch.tensor(triples, dtype=torch.long).view(-1, 3))


@given(TRIPLES, st.randoms(use_true_random=False))
def test_a_digest_is_that_of_whole_numbers_and_of_any_order(
    triples: list[tuple[int, int, int]], draw: random.Random
) -> None:
    assert digest(triples) == by_hand(triples)
    assert digest(draw.sample(triples, len(triples))) == by_hand(triples)


def test_more_rows_than_are_read_at_once_and_columns_of_another_tensor_have_the_same_digest() -> None:
    wide = torch.randint(0, 1 << 40, (40_000, 5), generator=torch.Generator().manual_seed(1))
    rows = [(h, r, t) for h, r, t in wide[:, 1:4].tolist()]
    assert triples_digest(wide[:, 1:4]) == by_hand(rows)


def test_lines_in_another_order_packed_or_written_twice_are_the_same_data(tmp_path: Path) -> None:
    lines = [f"{a}\t{relation}\t{b}\n" for relation in "xy" for a in "abcd" for b in "abcd" if a < b]
    plain, other = tmp_path / "plain.txt", tmp_path / "other.txt"
    plain.write_text("".join(lines))
    other.write_bytes(gzip.compress("".join([*reversed(lines), lines[3]]).encode()))
    assert read_graph(plain).digests == read_graph(other).digests
    other.write_text("".join(lines[:-1]))
    assert read_graph(plain).digests["train"] != read_graph(other).digests["train"]


def test_changes_are_said_of_what_is_known_of_both() -> None:
    before = {"train": "1592:aa", "test": "7:bb", "entities": "14:cc", "relations": "3:dd"}
    assert changes(before, before) == changes(before, {}) == changes({}, before) == []
    assert changes(before, {**before, "train": "1061:ee"}) == ["training triples: 1,592 then, 1,061 now"]
    # In another numbering the same triples have another digest.
    renumbered = {**before, "train": "1592:ee", "test": "8:ff", "entities": "14:11"}
    assert changes(before, renumbered) == ["test triples: 7 then, 8 now", "entities: 14 then, 14 now"]
    assert (shown("1592:9f3ab2c1d4"), shown("\x1b[2J:<b>")) == ("1,592 (9f3ab2c1)", "n/a")
