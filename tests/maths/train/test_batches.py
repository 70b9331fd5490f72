"""Batches: every query once an epoch with exactly its true entities, in an order that can be repeated."""

from collections import defaultdict

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.maths.train.batches import Batch, Batches, inverse_triples, query_rows

TRIPLES = torch.tensor([[0, 0, 1], [0, 0, 2], [1, 1, 0], [2, 0, 2], [3, 1, 0], [0, 1, 1], [4, 0, 0]])

triples = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=40
)


def answers(batches: list[Batch]) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for batch in batches:
        for row, entity in zip(batch.positives.rows.tolist(), batch.positives.entities.tolist(), strict=True):
            found[int(batch.heads[row]), int(batch.relations[row])].append(entity)
    return found


def labels(rows: torch.Tensor) -> dict[tuple[int, int], set[int]]:
    expected: dict[tuple[int, int], set[int]] = defaultdict(set)
    for head, relation, tail in rows.tolist():
        expected[head, relation].add(tail)
    return expected


@given(triples, st.booleans(), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_every_pair_comes_once_with_all_of_its_tails(
    some: list[tuple[int, int, int]], inverse: bool, size: int, epoch: int
) -> None:
    given_triples = torch.tensor(some)
    batches = Batches(given_triples, inverse=inverse, one_positive=False, batch_size=size, seed=1)
    rows = query_rows(given_triples, inverse)
    if inverse:
        rows = torch.cat([rows, inverse_triples(given_triples)])
    got = list(batches.epoch(epoch))
    expected = {pair: sorted(tails) for pair, tails in labels(rows).items()}
    assert {pair: sorted(tails) for pair, tails in answers(got).items()} == expected
    assert sum(map(len, got)) == len(expected) == batches.num_queries
    assert len(got) == len(batches)


@given(triples, st.integers(1, 4), st.integers(1, 9))
@settings(max_examples=80, deadline=None)
def test_a_large_group_is_divided_evenly_and_keeps_its_tails(
    some: list[tuple[int, int, int]], largest: int, size: int
) -> None:
    given_triples = torch.tensor(some)
    made = {"inverse": False, "one_positive": False, "batch_size": size, "seed": 1}
    batches = Batches(given_triples, largest_group=largest, **made)  # type: ignore[arg-type]
    got = list(batches.epoch(2))
    assert answers(got).keys() == labels(given_triples).keys()
    sizes = defaultdict(list)
    for batch in got:
        each = batch.positives.rows.bincount(minlength=len(batch)).tolist()
        for head, relation, many in zip(batch.heads.tolist(), batch.relations.tolist(), each, strict=True):
            sizes[head, relation].append(many)
    for pair, tails in labels(given_triples).items():
        assert sorted(answers(got)[pair]) == sorted(tails)
        assert len(sizes[pair]) == -(-len(tails) // largest)
        assert max(sizes[pair]) <= largest and max(sizes[pair]) - min(sizes[pair]) <= 1
    assert sum(map(len, got)) == batches.num_queries


@given(triples, st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_with_one_positive_every_triple_is_a_query(some: list[tuple[int, int, int]], size: int) -> None:
    given_triples = torch.tensor(sorted(set(some)))
    batches = Batches(given_triples, inverse=False, one_positive=True, batch_size=size, seed=1)
    got = [
        (int(b.heads[i]), int(b.relations[i]), int(b.positives.entities[i]))
        for b in batches.epoch(1)
        for i in b.positives.rows.tolist()
    ]
    assert sorted(got) == sorted(set(some))


def test_an_epochs_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(TRIPLES, inverse=True, one_positive=False, batch_size=3, seed=seed)
        torch.rand(5)
        return batches.order(epoch).tolist()

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


def test_no_batch_of_one_is_left_over_for_batch_norm() -> None:
    batches = Batches(TRIPLES, inverse=False, one_positive=True, batch_size=3, seed=0)
    assert [len(b) for b in batches.epoch(1)] == [3, 4]
