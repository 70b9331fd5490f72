"""Whatever has happened to a file that torch saved, a checkpoint, weights, a part or a piece of a TracIn run: it is
read or refused by its name, nothing in it is executed, and it takes no more memory than its size has to do with.
"""

import io
import json
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import damaged, examples, memory_within, read_and_told, refused_or
from hypothesis import example, given
from hypothesis import strategies as st

from kgops.errors import BadInput
from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.pykeen_bridge import conve_of, load_saved, to_pykeen_state
from kgops.maths.tracin.finished_tests import FinishedTests
from kgops.maths.tracin.shards import Shards, Tile
from kgops.maths.train.checkpoints import BadCheckpoint, Checkpoint, read_checkpoint, write_checkpoint
from kgops.workloads.train.models import ConvEConfig

pytestmark = pytest.mark.usefixtures("bounded")

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


def built(path: Path) -> EntityModel | None:
    found = read_checkpoint(path)
    return refused_or(found.build_model, "checkpoint")


@examples(150)
@given(content=damaged(WHOLE, PT_TOKENS) | damaged_inside(WHOLE) | damaged_inside(WHOLE) | CHANGED)
@example(content=saved(body_of(CHECKPOINT) | {"version": torch.ones(2)}))
@example(content=saved(body_of(CHECKPOINT) | {"format": torch.ones(2)}))
@example(content=saved(body_of(CHECKPOINT) | {"settings": {"seed": torch.ones(2)}}))
@example(content=saved(body_of(CHECKPOINT) | {"model": {"entities": torch.ones(1).expand(1 << 33)}}))
def test_a_damaged_checkpoint_is_a_model_or_refused_by_its_name(fuzz_folder: Path, content: bytes) -> None:
    model = read_and_told(fuzz_folder / "checkpoint.pt", content, built)
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
    (piece,) = Shards(tmp_path, [Tile(1, "x", (1,))], 1, 5)
    with pytest.raises(BadInput, match="000001-000"):
        Shards(tmp_path, [], 1, 5).read(piece)
    assert list(FinishedTests(tmp_path)) == []  # its tests are scored again
    assert not mark.exists()


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
def test_damaged_weights_of_pykeen_are_a_model_or_refused(fuzz_folder: Path, content: bytes) -> None:
    path = fuzz_folder / "weights.pt"
    path.write_bytes(content)
    refused_or(lambda: conve_of(path, load_saved(path, trust_pickle=False), CONFIG.num_relations))


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
    with memory_within(100), pytest.raises(BadCheckpoint, match="do not fit its configuration"):
        large.build_model()


PART = saved(
    {
        "each": [(1, 3, 3, None), (2, 0, 0, "x"), (3, 1, 9, None)],
        "rows": torch.arange(4),
        "scores": torch.ones(4),
    }
)


@examples(150)
@given(content=damaged(PART, PT_TOKENS) | damaged_inside(PART))
def test_damaged_parts_of_a_tracing_are_kept_or_scored_again(fuzz_folder: Path, content: bytes) -> None:
    home = fuzz_folder / "parts"
    home.mkdir(exist_ok=True)
    (home / "00000001.pt").write_bytes(content)
    parts = FinishedTests(home)
    assert all(len(part.rows) == len(part.scores) for part in parts)
    assert (home / "00000001.pt").exists() or not len(parts)


PIECE = saved([(0, [torch.arange(4), torch.ones(2, 4)]), (2, [torch.arange(4), torch.ones(1, 4)])])
PLAN = json.dumps({"tiles": [[0, "x", [1, 2]]], "shares": 3, "top_k": 5}).encode()


@examples(150)
@given(content=damaged(PIECE, PT_TOKENS) | damaged_inside(PIECE))
def test_a_damaged_piece_is_read_or_refused_by_its_name(fuzz_folder: Path, content: bytes) -> None:
    pieces = Shards(fuzz_folder, [Tile(0, "x", (1,))], 1, None)
    (fuzz_folder / "000000-000.pt").write_bytes(content)
    refused_or(lambda: pieces.read(next(iter(pieces))), "000000-000")


@examples(150)
@given(content=damaged(PLAN, (b"null", b"{}", b"-1", b"1e400")))
def test_a_damaged_plan_of_pieces_is_read_or_refused_by_its_folder(fuzz_folder: Path, content: bytes) -> None:
    home = fuzz_folder / "pieces"
    home.mkdir(exist_ok=True)
    (home / "plan.json").write_bytes(content)
    refused_or(lambda: Shards.open(home), "pieces")
