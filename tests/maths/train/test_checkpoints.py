"""Checkpoints: whole or refused by name, and the one before is used."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from driving import patience
from recording import assert_identical

from kgops.errors import Unavailable
from kgops.maths.models.conve import ConvE
from kgops.maths.train import checkpoints
from kgops.maths.train.checkpoints import BadCheckpoint, Checkpoint, read_checkpoint, write_checkpoint
from kgops.workloads.train.models import ConvEConfig

CONFIG = ConvEConfig(9, 2, embedding_dim=12, output_channels=3)


def checkpoint(epoch: int = 2, batch: int = 0) -> Checkpoint:
    torch.manual_seed(epoch)
    return Checkpoint(
        model=ConvE(CONFIG).state_dict(),
        config=CONFIG.to_dict(),
        epoch=epoch,
        batch=batch,
        learning_rate=0.01,
        loss={"name": "kvsall-bce", "label_smoothing": 0.1},
        entities_digest="e",
        relations_digest="r",
        settings={"folder": Path("somewhere"), "sizes": (1, 2)},
        training={"rng": checkpoints.rng_states(torch.device("cpu")), "state": {"best": None}},
    )


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = checkpoint()
    path = tmp_path / "new" / "c.pt"
    digest = write_checkpoint(path, written)
    got = read_checkpoint(path)
    assert_identical(got.build_model().state_dict(), dict(written.model))
    assert (got.epoch, got.learning_rate, got.loss) == (2, 0.01, written.loss)
    assert got.settings == {"folder": "somewhere", "sizes": [1, 2]}
    assert (tmp_path / "new" / "c.pt.sha256").read_text() == f"{digest}  c.pt\n"
    assert sorted(p.name for p in path.parent.iterdir()) == ["c.pt", "c.pt.sha256"]


def test_a_model_is_built_on_the_device_that_its_weights_were_read_to(tmp_path: Path) -> None:
    """`meta` stands for a GPU: it is no CPU, and every machine has it."""
    write_checkpoint(tmp_path / "c.pt", checkpoint())
    model = read_checkpoint(tmp_path / "c.pt", "meta").build_model()
    assert {value.device.type for value in model.state_dict().values()} == {"meta"}


def test_one_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    write_checkpoint(path, checkpoint())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadCheckpoint, match="SHA-256 differs"):
        read_checkpoint(path)


def test_the_newest_two_stay_and_the_older_is_used_when_the_newest_is_damaged(tmp_path: Path) -> None:
    for epoch, batch in ((1, 0), (2, 0), (2, 7), (10, 0)):
        checkpoints.write_resumable(tmp_path, checkpoint(epoch, batch))
    names = sorted(p.name for p in tmp_path.glob("*.pt"))
    assert names == ["resume_0000002_000000007.pt", "resume_0000010_000000000.pt"]
    notes: list[str] = []
    newest = checkpoints.newest_resumable(tmp_path, torch.device("cpu"), notes.append)
    assert newest is not None
    assert (newest.epoch, notes) == (10, [])
    (tmp_path / names[1]).write_bytes(b"cut")
    older = checkpoints.newest_resumable(tmp_path, torch.device("cpu"), notes.append)
    assert older is not None
    assert (older.epoch, older.batch) == (2, 7)
    assert "resume_0000010" in notes[0]


KILLS = """
import os, pathlib, sys
import torch
sys.path[:0] = sys.argv[2:]
from test_checkpoints import checkpoint
from kgops.maths.train.checkpoints import read_checkpoint, write_checkpoint

path, killed = pathlib.Path(sys.argv[1]), 0
for owner, name in ((os, "fsync"), (os, "replace"), (pathlib.Path, "unlink"), (torch, "save")):
    for nth in range(1, 9):
        write_checkpoint(path, checkpoint(1))
        child = os.fork()
        if not child:
            real, calls = getattr(owner, name), []
            def dying(*args, **kwargs):
                calls.append(1)
                if len(calls) == nth:
                    os._exit(9)
                return real(*args, **kwargs)
            setattr(owner, name, dying)
            write_checkpoint(path, checkpoint(2))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        epoch = read_checkpoint(path).epoch  # would raise on anything but a whole checkpoint
        assert status in (0, 9) and epoch in (1, 2) and (status == 9 or epoch == 2), (name, nth, status, epoch)
        killed += status == 9
print(killed)
"""


def test_a_writer_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    paths = [str(tmp_path / "c.pt"), *map(str, list(Path(__file__).parents)[:3])]
    done = subprocess.run([sys.executable, "-c", KILLS, *paths], capture_output=True, timeout=patience())
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) >= 8


def test_a_disk_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(Unavailable, match="cannot be written"):
        write_checkpoint(blocked / "c.pt", checkpoint())


def test_a_checkpoint_of_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "VERSION", 2)
    write_checkpoint(tmp_path / "c.pt", replace(checkpoint()))
    monkeypatch.undo()
    with pytest.raises(BadCheckpoint, match="version 2"):
        read_checkpoint(tmp_path / "c.pt")
