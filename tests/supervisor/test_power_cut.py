"""After a power cut every run that was accepted is there, in a true state, with the points that were in the record.

A few cuts; `make power-cut` tries hundreds.
"""

from __future__ import annotations

from pathlib import Path

from power_cut import judge_all, moments, record
from power_cut_disk import Disk, Operation


def test_power_cuts_take_back_nothing_that_was_told(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    cuts = moments(recorded, 6)
    wrong = {cut: faults for cut, faults in judge_all(recorded, cuts, tmp_path) if faults}
    assert wrong == {}


def test_disk_after_a_cut_has_what_was_synced_alone(tmp_path: Path) -> None:
    disk = Disk()
    for kind, ino, path, other, data in (
        ("mkdir", 1, "", "", b""),
        ("create", 2, "kept", "", b""),
        ("write", 2, "kept", "", b"synced"),
        ("sync", 2, "kept", "", b""),
        ("sync", 1, "", "", b""),
        ("write", 2, "kept", "", b"SYNCED"),
        ("create", 3, "named too late", "", b""),
        ("sync", 3, "named too late", "", b""),
        ("rename", 0, "kept", "renamed too late", b""),
    ):
        disk.apply(Operation(kind, ino, 0, path, other, data))
    disk.cut(tmp_path / "nothing", "nothing", 0)
    disk.cut(tmp_path / "everything", "everything", 0)
    disk.cut(tmp_path / "data", "data", 0)
    assert _files(tmp_path / "nothing") == {"kept": b"synced"}
    assert _files(tmp_path / "everything") == {"renamed too late": b"SYNCED", "named too late": b""}
    assert _files(tmp_path / "data") == {"kept": b"SYNCED"}


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
