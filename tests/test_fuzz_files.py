"""Whatever has happened to a file of triples, names, frames or weights: it is read or refused by its name, nothing in
it is executed, and it takes no more memory than its size has to do with.

`KGOPS_FUZZ=50 python -m pytest tests/test_fuzz_files.py --timeout 0` tries 50 times as many, and others each time.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import damaged, examples, memory_within, refused_or
from hypothesis import example, given
from hypothesis import strategies as st

from kgops.errors import BadInput
from kgops.flights.making import make_flights
from kgops.flights.reading import DATASETS, read_flights
from kgops.graphs.readable import read_edge_map, read_node_names
from kgops.graphs.triples import Graph, read_graph
from kgops.graphs.vocabulary import Vocabulary, read_vocabulary
from kgops.jobs import manifest
from kgops.models.conve import ConvE, ConvEConfig
from kgops.models.pykeen_bridge import load_pykeen, to_pykeen_state
from kgops.plans.counts import counts_of
from kgops.plans.flight_files import Flights, flights_in
from kgops.plans.shapes import model_of_config
from kgops.tracin.parts import Part, Parts
from kgops.tracin.pieces import Pieces, Tile
from kgops.tracin.tests_to_trace import from_file, from_text
from kgops.training.checkpoints import BadCheckpoint, Checkpoint, read_checkpoint, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with memory_within(400):
        yield


def read_and_told(path: Path, content: bytes, read: Callable[[Path], Any]) -> Any:
    path.write_bytes(content)
    return refused_or(lambda: read(path), path.name)


# --- text in columns ------------------------------------------------------------------------------

TRIPLES = "head\trelation\ttail\na\ttreats\tb\nb\ttreats\tc\nc\t\u00e9\ta\r\n\na\ttreats\tb\n".encode()
NUMBERED = b"4\nb\t1\na\t0\nc\t2\nd e\t3\n"
TOKENS = (
    *(b"\t", b"\n", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"\x1f\x8b", b" ", b"#", b",", b"\xe2\x80\xa8"),
    *(b"0", b"-1", b"1" * 30, b"9" * 5000, b"x" * 10_000, "٣".encode(), b"1\t2\t3\n" * 3, b"a\t0\n", b"\x1c"),
)
DAMAGED_TRIPLES = damaged(TRIPLES, TOKENS) | damaged(b"0\t1\t2\n3\t0\t1\n" * 3, TOKENS)
# Members of a gzip file follow one another: a bomb is made without one of them in memory.
MILLION_BLANKS = gzip.compress(b" " * (1 << 20), mtime=0)
THOUSAND_LINES = gzip.compress((b" " * 1023 + b"\n") * 1024, mtime=0)
PACKED = gzip.compress(TRIPLES * 50, mtime=0)


@examples(150)
@given(train=DAMAGED_TRIPLES, valid=DAMAGED_TRIPLES, ids=damaged(NUMBERED, TOKENS) | st.none())
@example(train=b"9" * 5000 + b"\tr\ta\n", valid=TRIPLES, ids=None)
@example(train=b"9" * 5000 + b"\t1\t" + b"0" * 5000 + b"\n", valid=TRIPLES, ids=None)
@example(train=b"0\t1\t2\n", valid=b"9" * 5000 + b"\t1\t2\n", ids=NUMBERED)
def test_damaged_triples_are_a_graph_or_refused_by_file(
    folder: Path, train: bytes, valid: bytes, ids: bytes | None
) -> None:
    names = "graph-train.tsv", "graph-valid.tsv", "graph-ids.tsv"
    paths = [folder / name for name in names]
    for path, content in zip(paths, (train, valid, ids or b""), strict=True):
        path.write_bytes(content)
    found = refused_or(
        lambda: read_graph(*paths[:2], entity_to_id=paths[2] if ids is not None else None), "graph-"
    )
    counted = counts_of({"train": str(paths[0]), "valid": str(paths[1])})
    if found is not None:
        if ids is None and counted is not None:  # by a plan, without torch
            sizes = found.num_entities, found.num_relations, len(found.train), len(found.valid)
            assert (counted.entities, counted.relations, counted.train, counted.valid) == sizes
        whole = torch.cat([found.train, found.valid])
        assert whole.min() >= 0 and whole[:, [0, 2]].max() < found.num_entities
        assert whole[:, 1].max() < found.num_relations
        assert found.entities.digest and all(note.isprintable() for note in found.notes)


@examples(60)
@given(content=damaged(PACKED, TOKENS))
@example(content=MILLION_BLANKS * 200)
def test_damaged_gzip_is_read_or_refused_by_file(folder: Path, content: bytes) -> None:
    read_and_told(folder / "packed.tsv.gz", content, read_graph)


@examples(150)
@given(content=damaged(NUMBERED, TOKENS) | damaged(b"entity\tid\n0\tx\n1\ty y\n2\tz\n", TOKENS))
@example(content=b"9" * 5000 + b"\n" + b"a\t0\n")
@example(content=b"a\t" + b"9" * 5000 + b"\nb\t0\n")
@example(content=b"\x1c2\na\t\x1c1\nb\t0\n")
def test_a_damaged_vocabulary_numbers_its_labels_without_gaps_or_is_refused(
    folder: Path, content: bytes
) -> None:
    found = read_and_told(folder / "vocabulary.tsv", content, read_vocabulary)
    if found is not None:
        assert sorted(found.ids.values()) == list(range(len(found)))
        again = folder / "again.tsv"
        again.write_text("".join(f"{label}\t{n}\n" for label, n in found.ids.items()), "utf-8", newline="")
        assert refused_or(lambda: read_vocabulary(again)) in (None, found)


@examples(60)
@given(
    labels=st.sets(st.text("0123456789", min_size=1, max_size=5) | st.text("09", min_size=20, max_size=25))
)
def test_labels_that_are_numbers_stand_in_the_order_of_their_numbers(labels: set[str]) -> None:
    assert list(Vocabulary.sorted(labels).labels) == sorted(labels, key=lambda label: (int(label), label))


EDGES = json.dumps(
    {
        "p": "treats",
        '{"predicate": "biolink:affects", "object_direction_qualifier": "increased", "x": null}': "r:0",
        "é": "x",
    },
    ensure_ascii=False,
).encode()
JSON_TOKENS = (
    *(
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"1" * 5000,
        b"NaN",
        b"null",
        b'"\\ud800"',
        b"\\u0000",
        b"\xff",
        b"\n",
    ),
    *(b'"', b"\\", b"{}", b"[]", b":", b",", b"1e999", b'{\\"predicate\\": \\"x\\", \\"y\\": [[[1]]]}'),
)


@examples(120)
@given(content=damaged(EDGES, JSON_TOKENS))
@example(content=b"[" * 100_000)
@example(content=b'{"' + b"[" * 100_000 + b'": "a"}')
@example(content=b'{"{\\"predicate\\": \\"x\\", \\"q\\": ' + b"[" * 900 + b"]" * 900 + b'}": "a"}')
@example(content=b'{"a": "\\ud800", "{\\"predicate\\": \\"\\\\ud800\\"}": "b"}')
@example(content=MILLION_BLANKS * 200)
@example(content=THOUSAND_LINES * 300)
def test_a_damaged_edge_map_names_relations_or_is_refused(folder: Path, content: bytes) -> None:
    found = read_and_told(folder / "edge_map.json", content, read_edge_map)
    for name in (found or {}).values():
        name.encode()  # or it could not be written to any result


@examples(60)
@given(content=damaged(b"a\tAspirin\nb\tBrain fog\textra\n\nc\t\n", TOKENS))
def test_damaged_names_of_nodes_are_read_or_refused(folder: Path, content: bytes) -> None:
    found = read_and_told(folder / "names.tsv", content, read_node_names)
    assert found is None or all(isinstance(name, str) for name in found.values())


ONE = torch.tensor([[0, 0, 1]])
GRAPH = Graph(ONE, ONE, ONE, Vocabulary.of(["a", "b c", "9"]), Vocabulary.of(["r"]))


@examples(150)
@given(content=damaged(b"# tests\na\tr\tb c\n9,r,a\na r 1\n", TOKENS))
@example(content=b"9" * 5000 + b"\tr\ta\n")
def test_damaged_test_triples_are_found_troubled_or_refused(folder: Path, content: bytes) -> None:
    for test in read_and_told(folder / "tests.tsv", content, lambda path: from_file(path, GRAPH)) or ():
        assert (test.ids is None) == (test.trouble is not None)
    refused_or(lambda: from_text(content.decode("utf-8", "replace"), GRAPH), "test triple")


# --- what torch saved -----------------------------------------------------------------------------

CONFIG = ConvEConfig(num_entities=5, num_relations=2, embedding_dim=6, output_channels=2, kernel_height=2)
CHECKPOINT = Checkpoint(
    model=ConvE(CONFIG).state_dict(),
    config=CONFIG.to_dict(),
    epoch=3,
    batch=0,
    learning_rate=0.1,
    loss={"name": "kvsall-bce"},
    entities_digest="a",
    relations_digest="b",
    settings={"seed": 0},
    training={"optimizer": {"moment": torch.ones(3)}},
)


def saved(value: object) -> bytes:
    body = io.BytesIO()
    torch.save(value, body)
    return body.getvalue()


def body_of(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"format": "kgops checkpoint", "version": 1, **vars(checkpoint)}


def pickle_inside(whole: bytes) -> tuple[int, int]:
    """Where in a file of torch the pickle lies, which says what everything else is."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        inside = next(member for member in archive.infolist() if member.filename.endswith("data.pkl"))
    start = whole.index(b"\x80\x02", inside.header_offset)
    return start, start + inside.file_size


@st.composite
def damaged_inside(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes of the pickle are others: the file keeps its shape, and what it says changes."""
    start, end = pickle_inside(whole)
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(start, end - 1))
        found[at] = draw(st.integers(0, 255) | st.sampled_from(found[start:end]))
    return bytes(found)


WHOLE = saved(body_of(CHECKPOINT))
TOLD: Any = st.sampled_from([None, True, -1, 0, 3, 1 << 70, 0.5, float("nan"), "", "5", [], {}])
ODD: Any = st.sampled_from(
    [
        *(None, True, -1, 0, 1 << 70, 0.5, float("nan"), "", "x", [], {}, {1: 2}, {"x": "y"}, torch.ones(2)),
        *({"entities": torch.ones(1)}, torch.ones(1).expand(1 << 40), torch.eye(2).to_sparse()),
        *(
            dict(CHECKPOINT.config) | {"num_entities": 1 << 50},
            dict(CHECKPOINT.config) | {"embedding_dim": 1 << 52},
        ),
        *(dict(CHECKPOINT.config) | {"num_entities": "5"}, dict(CHECKPOINT.model) | {"conv.bias": 1}),
        dict(CHECKPOINT.model) | {"entities": torch.ones(5, 6).to(torch.complex64)},
    ]
)
CHANGED = st.builds(
    lambda name, value: saved({**body_of(CHECKPOINT), name: value}),
    st.sampled_from([*body_of(CHECKPOINT), "other"]),
    ODD,
)
PT_TOKENS = (
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x80\x02",
    b"\0" * 64,
    b"\xff" * 8,
    b"data.pkl",
    b"c__builtin__\neval\n",
)


def built(path: Path) -> ConvE | None:
    found = read_checkpoint(path)
    return refused_or(found.build_model, "checkpoint")


@examples(150)
@given(content=damaged(WHOLE, PT_TOKENS) | damaged_inside(WHOLE) | damaged_inside(WHOLE) | CHANGED)
@example(content=saved(body_of(CHECKPOINT) | {"version": torch.ones(2)}))
@example(content=saved(body_of(CHECKPOINT) | {"format": torch.ones(2)}))
@example(content=saved(body_of(CHECKPOINT) | {"settings": {"seed": torch.ones(2)}}))
@example(content=saved(body_of(CHECKPOINT) | {"model": {"entities": torch.ones(1).expand(1 << 33)}}))
def test_a_damaged_checkpoint_is_a_model_or_refused_by_its_name(folder: Path, content: bytes) -> None:
    model = read_and_told(folder / "checkpoint.pt", content, built)
    if model is not None:
        assert {name: weight.shape for name, weight in model.state_dict().items()} == {
            name: weight.shape for name, weight in CHECKPOINT.model.items()
        } or model.config != CONFIG


class Runs:
    """Says when it is unpickled: it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("form", ["inside", "pickle", "old", "training"])
def test_nothing_in_a_checkpoint_or_a_part_or_a_piece_is_executed(tmp_path: Path, form: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "000001-000.pt"
    bomb = Runs(mark)
    if form == "pickle":
        path.write_bytes(pickle.dumps({"format": "kgops checkpoint", "version": 1, "model": bomb}, 2))
    elif form == "old":
        torch.save({"model": bomb}, path, _use_new_zipfile_serialization=False)
    else:
        changed = {"training": {"x": bomb}} if form == "training" else {"model": bomb}
        torch.save({**body_of(CHECKPOINT), **changed}, path)
    with pytest.raises(BadCheckpoint, match="000001-000"):
        read_checkpoint(path)
    (piece,) = Pieces(tmp_path, [Tile(1, "x", (1,))], 1, 5)
    with pytest.raises(BadInput, match="000001-000"):
        Pieces(tmp_path, [], 1, 5).read(piece)
    assert list(Parts(tmp_path)) == []  # its tests are scored again
    assert not mark.exists()


@examples(60)
@given(config=st.dictionaries(st.sampled_from(sorted(CHECKPOINT.config)), TOLD, max_size=3))
@example(config={"embedding_dim": (1 << 52) - 1})
def test_a_plan_takes_a_changed_configuration_for_a_model_or_for_none(config: dict[str, Any]) -> None:
    found = model_of_config({"model": {**CHECKPOINT.config, **config}})
    assert found is None or found.features > 0


PYKEEN = to_pykeen_state(ConvE(CONFIG))
STATE = saved(PYKEEN)
CHANGED_STATES = st.builds(
    lambda name, value: saved({**PYKEEN, name: value}),
    st.sampled_from(sorted(PYKEEN)),
    st.sampled_from(
        [
            *(
                torch.ones(2),
                torch.ones(()),
                torch.ones(0, 0),
                torch.ones(5, 0),
                torch.ones(0, 6),
                torch.ones(5, 6, 1),
            ),
            *(
                torch.ones(1).expand(5, 1 << 50),
                torch.ones(1).expand(1 << 33, 6),
                torch.eye(6).to_sparse(),
                "x",
            ),
            *(torch.ones(5, 6, dtype=torch.int64), torch.ones(0, 0, 0, 0), torch.ones(2, 1, 0, 3)),
        ]
    ),
)


@examples(150)
@given(content=damaged(STATE, PT_TOKENS) | damaged_inside(STATE) | damaged_inside(STATE) | CHANGED_STATES)
def test_damaged_weights_of_pykeen_are_a_model_or_refused(folder: Path, content: bytes) -> None:
    path = folder / "weights.pt"
    path.write_bytes(content)
    refused_or(lambda: load_pykeen(path, inverse=True))


def test_a_file_of_torch_that_is_compressed_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path, small = tmp_path / "bomb.pt", tmp_path / "checkpoint.pt"
    write_checkpoint(small, CHECKPOINT)
    assert read_checkpoint(small).build_model().config == CONFIG
    with zipfile.ZipFile(small) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for member in archive.infolist():
            packed.writestr(member.filename, archive.read(member))
        packed.writestr("checkpoint/data/99", bytes(200 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BadCheckpoint, match="compressed"):
        read_checkpoint(path)


def test_a_model_that_only_says_that_it_is_large_takes_no_room(tmp_path: Path) -> None:
    large = replace(CHECKPOINT, config=dict(CHECKPOINT.config) | {"num_entities": 1 << 40})
    with memory_within(100), pytest.raises(BadCheckpoint, match="another model"):
        large.build_model()


PART = saved(
    [vars(Part(1, torch.arange(3), torch.ones(3), 3)), vars(Part(2, torch.arange(0), torch.ones(0), 0, "x"))]
)


@examples(150)
@given(content=damaged(PART, PT_TOKENS) | damaged_inside(PART))
def test_damaged_parts_of_a_tracing_are_kept_or_scored_again(folder: Path, content: bytes) -> None:
    home = folder / "parts"
    home.mkdir(exist_ok=True)
    (home / "00000001.pt").write_bytes(content)
    parts = Parts(home)
    assert all(len(part.rows) == len(part.scores) for part in parts)
    assert (home / "00000001.pt").exists() or not len(parts)


def test_a_part_that_is_whole_is_kept(tmp_path: Path) -> None:
    (tmp_path / "00000001.pt").write_bytes(PART)
    assert [part.number for part in Parts(tmp_path)] == [1, 2]


PIECE = saved([(0, [torch.arange(4), torch.ones(2, 4)]), (2, [torch.arange(4), torch.ones(1, 4)])])
PLAN = json.dumps({"tiles": [[0, "x", [1, 2]]], "shares": 3, "top_k": 5}).encode()


@examples(150)
@given(content=damaged(PIECE, PT_TOKENS) | damaged_inside(PIECE))
def test_a_damaged_piece_is_read_or_refused_by_its_name(folder: Path, content: bytes) -> None:
    pieces = Pieces(folder, [Tile(0, "x", (1,))], 1, None)
    (folder / "000000-000.pt").write_bytes(content)
    refused_or(lambda: pieces.read(next(iter(pieces))), "000000-000")


@examples(150)
@given(content=damaged(PLAN, (b"null", b"{}", b"-1", b"1e400")))
def test_a_damaged_plan_of_pieces_is_read_or_refused_by_its_folder(folder: Path, content: bytes) -> None:
    home = folder / "pieces"
    home.mkdir(exist_ok=True)
    (home / "plan.json").write_bytes(content)
    refused_or(lambda: Pieces.open(home), "pieces")


# --- frames and results ---------------------------------------------------------------------------


def arrays(compressed: bool) -> bytes:
    body = io.BytesIO()
    frames = np.arange(6 * 8 * 8, dtype=np.float32).reshape(6, 8, 8)
    columns = {name: np.arange(6, dtype=np.float64) for name in DATASETS[1:]}
    write: Any = np.savez_compressed if compressed else np.savez
    write(body, frames=frames, **columns)
    return body.getvalue()


NPZ = {compressed: arrays(compressed) for compressed in (False, True)}
NPZ_TOKENS = (
    *(b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY\x01\0", b"\x93NUMPY\x03\0", b"'<f8'", b"'|O'", b"(6, 8, 8)"),
    *(b"(99999999999, 9999999999)", b"(-1,)", b"(True, 8, 8)", b"{" * 50, b"\xff" * 8, b"\0\0\xc0\x7f" * 20),
    *(b"'fortran_order': True", b"[('a', '<f4')]", b"1" * 5000, b"'<M8[s]'", b"'<f2'", b"'", b"\\", b"\n"),
)


def with_header(descr: str, shape: str, compressed: bool) -> bytes:
    """A flight whose frames say they are this."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    frames = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(6 * 64 * 4)
    body = io.BytesIO(NPZ[compressed])
    changed = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(body) as archive, zipfile.ZipFile(changed, "w", method) as written:
        for member in archive.infolist():
            is_frames = member.filename == "frames.npy"
            written.writestr(member.filename, frames if is_frames else archive.read(member))
    return changed.getvalue()


HEADERS = st.builds(
    with_header,
    st.sampled_from(
        ["'<f4'", "'<f8'", "'|O'", "'<U9'", "[('a', '<f4')]", "'<f2'", "'?'", "'<c8'", "'", "'<g'", "0"]
    ),
    st.sampled_from(
        [
            *(
                "(6, 8, 8)",
                "(6, 64)",
                "(1 << 40,)",
                "(4294967296, 4294967296)",
                "(6, 1099511627776, 8)",
                "(-6, 8, -8)",
            ),
            *(
                "()",
                "(6, 0, 8)",
                "(True, 8, 48)",
                "6",
                "(6.0, 8, 8)",
                "(" * 300,
                "(9" + "9" * 5000 + ", 8, 8)",
                "'",
            ),
        ]
    ),
    st.booleans(),
)


@examples(120)
@given(content=damaged(NPZ[False], NPZ_TOKENS) | damaged(NPZ[True], NPZ_TOKENS) | HEADERS)
def test_a_damaged_flight_is_read_or_refused_by_its_name(folder: Path, content: bytes) -> None:
    home = folder / "flights"
    home.mkdir(exist_ok=True)
    flights = read_and_told(home / "one.npz", content, lambda path: read_flights(path.parent, 2)) or ()
    told = flights_in(home)  # to a plan, without numpy
    for flight in flights:
        assert not isinstance(told, Flights) or (told.height, told.width) == flight.image_size
        assert np.isfinite([flight.survey.mean, flight.survey.std]).all()
        assert np.isfinite(flight.zenith).all() and len(flight) == len(flight.frames)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("value", [1e300, -1e39, float("nan"), float("inf")])
def test_what_a_float32_cannot_hold_is_refused_with_its_frame(
    tmp_path: Path, name: str, value: float
) -> None:
    columns: dict[str, Any] = {each: np.arange(6, dtype=np.float64) for each in DATASETS[1:]}
    columns["frames"] = np.ones((6, 8, 8))
    columns[name][3] = value
    np.savez(tmp_path / "one.npz", **columns)
    with pytest.raises(BadInput, match=r"one\.npz.*frame 3"):
        read_flights(tmp_path, 2)


def test_a_file_that_is_an_archive_is_no_array_of_a_folder(tmp_path: Path) -> None:
    make_flights(tmp_path, 1)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "frames.npy").write_bytes(NPZ[False])
    with pytest.raises(BadInput, match="more"):
        read_flights(tmp_path, 2)


def manifest_of(path: object = "results/a", figure: object = 0.5) -> bytes:
    files = [{"path": path, "kind": "x", "sha256": "", "bytes": 1}]
    return json.dumps({"files": files, "figures": {"mrr": figure}}).encode()


MANIFEST_TOKENS = (*JSON_TOKENS, b"\\u0000", b"x" * 5000, b"../..", b"pipe", b"round")


@examples(100)
@given(content=damaged(manifest_of(), MANIFEST_TOKENS))
@example(content=manifest_of(figure=10**400))
@example(content=manifest_of("results/a\0"))
@example(content=manifest_of("results/pipe"))
@example(content=manifest_of("results/round"))
@example(content=manifest_of(5))
@example(content=b"[" * 100_000)
def test_a_damaged_manifest_holds_or_says_why_not(folder: Path, content: bytes) -> None:
    home = folder / "run" / "results"
    if not home.exists():
        home.mkdir(parents=True)
        (home / "a").write_bytes(b"x")
        (home / "round").symlink_to("round")
        os.mkfifo(home / "pipe")
    (home / "manifest.json").write_bytes(content)
    found, trouble = manifest.read(home / "manifest.json")
    assert (found is None) == bool(trouble)
