"""Whatever has happened to a file of triples, names, frames or results: it is read or refused by its name, nothing in
it is executed, and it takes no more memory than its size has to do with.

`KGOPS_FUZZ=50 python -m pytest tests/hostile/test_fuzz_files.py --timeout 0` tries 50 times as many.
"""

import gzip
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import damaged, examples, read_and_told, refused_or
from hypothesis import example, given
from hypothesis import strategies as st

from kgops.jobs import manifest
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.graphs.vocabulary import Vocabulary, read_edge_map, read_vocabulary
from kgops.maths.regress.flights import DATASETS, read_flights
from kgops.maths.tracin.test_triples import from_file, from_text
from kgops.workloads.graphs.counts import counts_of
from kgops.workloads.regress.sizes import Flights, flights_in

pytestmark = pytest.mark.usefixtures("bounded")

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
    fuzz_folder: Path, train: bytes, valid: bytes, ids: bytes | None
) -> None:
    names = "graph-train.tsv", "graph-valid.tsv", "graph-ids.tsv"
    paths = [fuzz_folder / name for name in names]
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
def test_damaged_gzip_is_read_or_refused_by_file(fuzz_folder: Path, content: bytes) -> None:
    read_and_told(fuzz_folder / "packed.tsv.gz", content, read_graph)


@examples(150)
@given(content=damaged(NUMBERED, TOKENS) | damaged(b"entity\tid\n0\tx\n1\ty y\n2\tz\n", TOKENS))
@example(content=b"9" * 5000 + b"\n" + b"a\t0\n")
@example(content=b"a\t" + b"9" * 5000 + b"\nb\t0\n")
@example(content=b"\x1c2\na\t\x1c1\nb\t0\n")
def test_a_damaged_vocabulary_numbers_its_labels_without_gaps_or_is_refused(
    fuzz_folder: Path, content: bytes
) -> None:
    found = read_and_told(fuzz_folder / "vocabulary.tsv", content, read_vocabulary)
    if found is not None:
        assert sorted(found.ids.values()) == list(range(len(found)))
        again = fuzz_folder / "again.tsv"
        again.write_text("".join(f"{label}\t{n}\n" for label, n in found.ids.items()), "utf-8", newline="")
        assert refused_or(lambda: read_vocabulary(again)) in (None, found)


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
def test_a_damaged_edge_map_names_relations_or_is_refused(fuzz_folder: Path, content: bytes) -> None:
    found = read_and_told(fuzz_folder / "edge_map.json", content, read_edge_map)
    for name in (found or {}).values():
        name.encode()  # or it could not be written to any result


ONE = torch.tensor([[0, 0, 1]])
GRAPH = Graph(ONE, ONE, ONE, Vocabulary.of(["a", "b c", "9"]), Vocabulary.of(["r"]))


@examples(150)
@given(content=damaged(b"# tests\na\tr\tb c\n9,r,a\na r 1\n", TOKENS))
@example(content=b"9" * 5000 + b"\tr\ta\n")
def test_damaged_test_triples_are_found_troubled_or_refused(fuzz_folder: Path, content: bytes) -> None:
    for test in read_and_told(fuzz_folder / "tests.tsv", content, lambda path: from_file(path, GRAPH)) or ():
        assert (test.ids is None) == (test.trouble is not None)
    refused_or(lambda: from_text(content.decode("utf-8", "replace"), GRAPH), "test triple")


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
def test_a_damaged_flight_is_read_or_refused_by_its_name(fuzz_folder: Path, content: bytes) -> None:
    home = fuzz_folder / "flights"
    home.mkdir(exist_ok=True)
    flights = read_and_told(home / "one.npz", content, lambda path: read_flights(path.parent, 2)) or ()
    told = flights_in(home)  # to a plan, without numpy
    for flight in flights:
        assert not isinstance(told, Flights) or (told.height, told.width) == flight.image_size
        assert np.isfinite([flight.survey.mean, flight.survey.std]).all()
        assert np.isfinite(flight.zenith).all() and len(flight) == len(flight.frames)


def manifest_of(path: object = "results/a", metric: object = 0.5) -> bytes:
    files = [{"path": path, "kind": "x", "sha256": "", "bytes": 1}]
    return json.dumps({"files": files, "metrics": {"mrr": metric}}).encode()


MANIFEST_TOKENS = (*JSON_TOKENS, b"\\u0000", b"x" * 5000, b"../..", b"pipe", b"round")


@examples(100)
@given(content=damaged(manifest_of(), MANIFEST_TOKENS))
@example(content=manifest_of(metric=10**400))
@example(content=manifest_of("results/a\0"))
@example(content=manifest_of("results/pipe"))
@example(content=manifest_of("results/round"))
@example(content=manifest_of(5))
@example(content=b"[" * 100_000)
def test_a_damaged_manifest_holds_or_says_why_not(fuzz_folder: Path, content: bytes) -> None:
    home = fuzz_folder / "run" / "results"
    if not home.exists():
        home.mkdir(parents=True)
        (home / "a").write_bytes(b"x")
        (home / "round").symlink_to("round")
        os.mkfifo(home / "pipe")
    (home / "manifest.json").write_bytes(content)
    found, trouble = manifest.read(home / "manifest.json")
    assert (found is None) == bool(trouble)
