"""`suggest tracin` counts the training triples that filtering would leave, by the code that filters."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from driving import Console

ENTITIES = 60
EDGES = [(i, (i + k) % ENTITIES) for i in range(ENTITIES) for k in (1, 2)]
TESTS = ((3, 5), (30, 33))


@pytest.fixture
def ring(run_cli: Console, tmp_path: Path) -> Console:
    """Sixty entities in a circle, each joined to the next two, and the config of a model on them."""
    train = "".join(f"e{h}\tr{(t - h) % ENTITIES}\te{t}\n" for h, t in EDGES)
    (tmp_path / "train.txt").write_text(train)
    (tmp_path / "test.txt").write_text("".join(f"e{h}\tr1\te{t}\n" for h, t in TESTS))
    model = {"num_entities": ENTITIES, "num_relations": 2, "embedding_dim": 32}
    (tmp_path / "config.json").write_text(json.dumps({"model": model, "training": {"loss": "kvsall-bce"}}))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint_epoch_1.pt").touch()
    return run_cli


def planned(console: Console, *more: str) -> dict[str, Any]:
    flags = ("--checkpoint-dir", "checkpoints", "--train", "train.txt", *more)
    done = console("suggest", "tracin", *flags, "--json")
    assert done.code == 0, done.err
    (plan,) = done.json()
    found: dict[str, Any] = plan["filtering"]
    return found


def near(head: int, tail: int, hops: int) -> list[tuple[int, int]]:
    """Edges whose ends are both so near to head and to tail."""
    beside = defaultdict(set)
    for a, b in EDGES:
        beside[a].add(b)
        beside[b].add(a)

    def reached(start: int) -> set[int]:
        found = {start}
        for _ in range(hops):
            found |= {other for one in found for other in beside[one]}
        return found

    both = (reached(head) & reached(tail)) | {head, tail}
    return [(a, b) for a, b in EDGES if a in both and b in both]


def test_each_test_triple_is_counted_and_the_page_says_what_changes(ring: Console) -> None:
    told = planned(ring, "--test", "test.txt")
    each = [near(head, tail, 2) for head, tail in TESTS]
    assert told["left"] == [len(edges) for edges in each]
    assert told["together"] == len({*each[0], *each[1]})
    assert (told["tests"], told["counted"], told["train"], told["is_asked"]) == (2, 2, len(EDGES), False)
    flags = ("--checkpoint-dir", "checkpoints", "--train", "train.txt", "--test", "test.txt")
    page = ring("suggest", "tracin", *flags).out
    assert f"together {told['together']} of {len(EDGES)} training triples" in page
    assert "changes results" in page


def test_filters_that_were_asked_for_are_counted_as_they_are(ring: Console) -> None:
    told = planned(ring, "--test-triple", "e3,r1,e5", "--n-hops", "1")
    assert told["is_asked"] is True
    assert told["left"] == [len(near(3, 5, 1))]


def test_what_cannot_be_counted_says_why(ring: Console) -> None:
    flags = ("--checkpoint-dir", "checkpoints", "--train", "train.txt", "--test-triple", "nobody,r1,e5")
    page = ring("suggest", "tracin", *flags)
    assert page.code == 0, page.err
    assert "could not be previewed" in page.out and "nobody" in page.out
