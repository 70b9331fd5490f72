"""Graphs from files: every form people have, every fault named by its line, and a digest of their triples."""

import gzip
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.errors import BadInput
from kgops.jobs.bundled import BUNDLED
from kgops.jobs.data_digests import changes, shown
from kgops.maths.graphs.triples import read_graph, read_pykeen_dataset, triples_digest
from kgops.maths.graphs.vocabulary import read_vocabulary


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_labels_are_numbered_in_sorted_order_and_triples_keep_the_order_of_the_file(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "t.tsv", "b\tlikes\ta\na\tknows\tc\n"))
    assert graph.entities.labels == ("a", "b", "c")
    assert graph.relations.labels == ("knows", "likes")
    assert graph.train.tolist() == [[1, 1, 0], [0, 0, 2]]
    assert graph.valid.shape == (0, 3)
    assert graph.notes == ()


def test_gzip_is_recognised_by_content_and_line_ends_of_windows_are_taken(tmp_path: Path) -> None:
    plain = read_graph(write(tmp_path / "a", "x\tr\ty\r\ny\tr\tz\r\n"))
    packed = read_graph(write(tmp_path / "b", gzip.compress(b"\xef\xbb\xbfx\tr\ty\ny\tr\tz")))
    assert packed.train.tolist() == plain.train.tolist()
    assert packed.entities.labels == ("x", "y", "z")


def test_labels_made_of_digits_keep_their_order_as_numbers(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "t", "10\t0\t2\n2\t1\t0\n"))
    assert graph.entities.labels == ("0", "2", "10")


@pytest.mark.parametrize(
    "text",
    [
        "a\t0\nb\t1\nc\t2\n",
        "0\ta\n1\tb\n2\tc\n",
        "3\na\t0\nb\t1\nc\t2\n",
        "id\tlabel\n0\ta\n1\tb\n2\tc\n",
        "3\nc 2\na 0\nb 1",
    ],
)
def test_a_vocabulary_is_read_in_either_column_order_with_or_without_a_count_or_header(
    tmp_path: Path, text: str
) -> None:
    assert read_vocabulary(write(tmp_path / "v", text)).labels == ("a", "b", "c")


def test_files_of_ids_and_files_of_labels_give_the_same_graph_under_one_vocabulary(tmp_path: Path) -> None:
    entities = write(tmp_path / "node_dict.txt", "a\t0\nb\t1\nc\t2\n")
    relations = write(tmp_path / "rel_dict.txt", "r\t0\ns\t1\n")
    labels = read_graph(write(tmp_path / "l", "a\ts\tc\n"), entity_to_id=entities, relation_to_id=relations)
    ids = read_graph(write(tmp_path / "i", "0\t1\t2\n"), entity_to_id=entities, relation_to_id=relations)
    assert labels.train.tolist() == ids.train.tolist() == [[0, 1, 2]]
    assert ids.num_entities == 3


ENTITIES, RELATIONS = {"entity_to_id": "a\t0\nb\t1\nc\t2\n"}, {"relation_to_id": "r\t0\n"}


@pytest.mark.parametrize(
    ("content", "vocabularies", "said"),
    [
        (b"a\t\tb\n", {}, "line 1: an empty column"),
        (b"a\tr\tb\ncaf\xe9\tr\tb\n", {}, "line 2: byte 0xe9 is not UTF-8"),
        (b"a\tr\tb\nb\tr\n", {}, "line 2: expected 3 columns, found 2"),
        (b"", {}, "has no triples"),
        (b"a\tr\tb\nb\tr\tzz\n", ENTITIES, "line 2: entity 'zz' is not in"),
        (b"0\t0\t1\n1\t0\t9\n", ENTITIES | RELATIONS, "line 2: entity id 9 is out of range"),
        (b"\x1f\x8bnot really", {}, "is a damaged gzip file"),
    ],
)
def test_faulty_triples_are_named_with_file_and_line(
    tmp_path: Path, content: bytes, vocabularies: dict[str, str], said: str
) -> None:
    given_files = {name: write(tmp_path / name, text) for name, text in vocabularies.items()}
    good = write(tmp_path / "good", "0\t0\t1\n" if "relation_to_id" in vocabularies else "a\tr\tb\nb\tr\tc\n")
    bad = write(tmp_path / "bad", content)
    with pytest.raises(BadInput) as caught:
        read_graph(good, None, bad, **given_files)
    assert str(bad) in caught.value.message and said in caught.value.message and caught.value.hint


def test_duplicates_are_left_out_and_noted_with_both_lines(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "t", "a\tr\tb\nb\tr\ta\na\tr\tb\na\tr\tb\n"))
    assert graph.train.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert "2 duplicate triples left out; the first is line 3, which repeats line 1" in graph.notes[0]


def test_triples_that_are_tested_and_trained_on_are_kept_and_noted(tmp_path: Path) -> None:
    train = write(tmp_path / "t", "a\tr\tb\nb\tr\ta\nc\tq\td\n")
    valid, test = write(tmp_path / "v", "b\tr\tc\nc\tq\td\n"), write(tmp_path / "s", "d\tq\tc\na\tq\tb\n")
    graph = read_graph(train, valid, test)
    assert len(graph.valid) == 2
    (note,) = graph.notes
    assert note.startswith(f"{valid}: 1 of 2 triples is in training too, such as 'c q d'")
    again = read_graph(train, None, train)
    assert "3 of 3 triples are in training too, such as 'a r b'" in again.notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("4\na\t0\nb\t1\n", "promises 4 entries; 2 follow"),
        ("a\t0\na\t1\n", "line 2: 'a' already stands on line 1"),
        ("a\t0\nb\t0\n", "line 2: id 0 already belongs to 'a' (line 1)"),
        ("a\t0\nb\t2\n", "line 2: id 2 is out of range"),
        ("a\t0\nb\tx\n", "line 2: 'x' is not an id"),
        ("a\t0\nb\n", "line 2: expected two columns"),
    ],
)
def test_a_faulty_vocabulary_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_vocabulary(write(tmp_path / "v", text))
    assert said in caught.value.message


@pytest.mark.parametrize("name", BUNDLED)
def test_pykeen_datasets_come_with_pykeens_numbering(name: str) -> None:
    from pykeen.datasets import get_dataset

    ours, theirs = read_pykeen_dataset(name), get_dataset(dataset=name)
    assert list(ours.entities.labels) == list(theirs.training.entity_to_id)
    assert list(ours.relations.labels) == list(theirs.training.relation_to_id)
    for own, other in (
        (ours.train, theirs.training),
        (ours.valid, theirs.validation),
        (ours.test, theirs.testing),
    ):
        assert torch.equal(own, other.mapped_triples)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\ufeff"), min_size=1), min_size=1)
)
@settings(max_examples=60, deadline=None)
def test_any_label_survives_reading(tmp_path_factory: pytest.TempPathFactory, labels: list[str]) -> None:
    path = tmp_path_factory.mktemp("any") / "t"
    path.write_text("".join(f"{label}\tr\t{label}\n" for label in labels), encoding="utf-8", newline="")
    assert set(read_graph(path).entities.labels) == set(labels)


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
