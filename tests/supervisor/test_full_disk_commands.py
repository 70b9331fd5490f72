"""A disk without a byte or a name left: runs can still be stopped and deleted, which is how room is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import Disk, small_disk
from driving import Console, all_of, wait_for

_KINDS = ("no room", "no names")


@pytest.fixture(params=_KINDS)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, Console]]:
    """A home with an ended run, one that goes on and one that waits, whose disk can be filled."""
    options = "size=3m" if request.param == "no room" else "size=8m,nr_inodes=400"
    (tmp_path / "work").mkdir()
    with small_disk(tmp_path / "disk", options) as disk:
        console = Console(disk.path / "kgops", tmp_path / "work")
        assert (
            console(
                "run", "exec", "--", "sh", "-c", "head -c 300000 /dev/zero > $KGOPS_RUN_FOLDER/results/x"
            ).code
            == 0
        )
        assert console.detach("sleep", "300", flags=("--exclusive",)) == 2
        console.running(2)
        assert console.detach("true") == 3
        yield disk, console
        console.close()


def _fill(disk: Disk, how: str) -> None:
    disk.use_up_names() if how == "no names" else disk.fill()


def test_running_and_waiting_runs_are_stopped_on_a_full_disk(
    full: tuple[Disk, Console], request: pytest.FixtureRequest
) -> None:
    disk, console = full
    _fill(disk, request.node.callspec.params["full"])
    for number in (3, 2):
        stopped = console("stop", str(number), "--grace", "0")
        assert stopped.code == 0, stopped.err
        assert "Traceback" not in stopped.err
        assert f"run {number}: cancelled" in stopped.out
    wait_for(lambda: not _workers(console), "the worker to be gone")


def test_a_run_that_fills_the_disk_ends_in_the_record(tmp_path: Path) -> None:
    """Nobody makes room: the end is recorded in what was kept for it, and the run can be deleted."""
    (tmp_path / "work").mkdir()
    with small_disk(tmp_path / "disk", "size=3m") as disk:
        console = Console(disk.path / "kgops", tmp_path / "work")
        filling = "head -c 100000000 /dev/zero > $KGOPS_RUN_FOLDER/results/x; exit 3"
        ended = console("run", "exec", "--json", "--", "sh", "-c", filling)
        assert (ended.json()["state"], ended.json()["exit_code"]) == ("failed", 3)
        assert console("delete", "1", "--yes").code == 0
        assert console("runs", "--json").json() == []
        console.close()


def test_a_stop_says_that_only_the_folder_has_the_end(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with small_disk(tmp_path / "disk", "size=3m") as disk:
        console = Console(disk.path / "kgops", tmp_path / "work")
        number = console.detach("sleep", "300")
        console.running(number)
        (console.folder(number) / "room.reserved").unlink()
        disk.fill()
        stopped = console("stop", str(number), "--grace", "0")
        assert f"run {number} has ended; only its folder says so" in stopped.err
        assert stopped.out == f"run {number}: cancelled\n"
        assert "free some space" in console("delete", str(number), "--yes").err
        disk.free()
        wait_for(lambda: console("runs", "--json").json()[0]["state"] == "cancelled", "the end in the record")
        assert console("delete", str(number), "--yes").code == 0
        console.close()


def test_deleting_on_a_full_disk_makes_room_for_the_rest(
    full: tuple[Disk, Console], request: pytest.FixtureRequest
) -> None:
    disk, console = full
    _fill(disk, request.node.callspec.params["full"])
    deleted = console("delete", "1", "--yes")
    assert "Traceback" not in deleted.err
    assert deleted.code == 0, deleted.err
    assert sorted(path.name[:4] for path in (console.home / "runs").iterdir()) == ["0002", "0003"]
    assert {run["id"] for run in console("runs", "--json").json()} == {2, 3}


def _workers(console: Console) -> list[int]:
    return [
        who.pid for who in all_of(console.home) if b"300" in Path(f"/proc/{who.pid}/cmdline").read_bytes()
    ]
