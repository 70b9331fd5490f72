"""Disks that refuse changes for a while, have no room left or lose power: no supervisor dies of it, no end is lost, no
command shows a traceback, and runs can still be stopped and deleted, which is how room is made."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disks import Disk, console_on_disk
from driving import Console, all_of, is_clear, wait_for, words_of
from power_cut import judge_all, moments, record
from preloading import PreloadedConsole, preloaded

from kgops.supervisor import processes

POINT = """{"event": "metric", "name": "loss", "value": 0.5, "step": 1}"""
UNTIL_GATE = f"echo '{POINT}' >> $KGOPS_EVENTS; while [ ! -e gate ]; do sleep 0.05; done; exit 7"
Refuse = Callable[[float], None]


@pytest.fixture
def disk(home: Path, tmp_path: Path) -> Iterator[tuple[PreloadedConsole, Refuse]]:
    """A console, and what makes the disk below its home refuse with that errno; 0 lets it take everything again."""
    with preloaded(home, tmp_path, "refusing_disk", file="TROUBLE_FILE", DISK=f"{home}/") as made:
        yield made


def begun(console: Console) -> int:
    """A run whose first point is in the record."""
    number = console.going("sh", "-c", UNTIL_GATE)
    wait_for(lambda: console.show(number)["series"], "its first point")
    return number


@pytest.mark.parametrize("refusal", [errno.EROFS, errno.EIO], ids=["read-only", "broken"])
def test_worker_that_ends_on_a_refusing_disk_keeps_its_end(
    disk: tuple[PreloadedConsole, Refuse], refusal: int
) -> None:
    console, refuse = disk
    number = begun(console)
    workers = [
        who for who in all_of(console.home) if any(b"sleep 0.05" in word for word in words_of(who.pid))
    ]
    refuse(refusal)
    (console.cwd / "gate").touch()
    wait_for(lambda: not any(who.is_alive() for who in workers), "the worker to end")
    listed = console("runs", "--json")
    assert (listed.code, "Traceback" in listed.err) == (0, False), listed.err
    for args in (["run", "exec", "--", "true"], ["note", str(number), "x"]):
        refused = console(*args)
        assert (refused.code, is_clear(refused.err)) == (1, True), (args, refused)
    refuse(0)
    assert console("runs").code == 0
    ended = console.ended(number)
    assert (ended.state, ended.reason, ended.exit_code) == ("failed", "exit code 7", 7)
    assert [one["n"] for one in console.show(number)["series"] if one["name"] == "loss"] == [1]


def test_supervisor_outlives_a_disk_that_refuses_for_a_while(disk: tuple[PreloadedConsole, Refuse]) -> None:
    console, refuse = disk
    number = begun(console)
    supervisors = processes.supervisors(console.home, number)
    assert supervisors
    refuse(errno.EIO)
    with (console.folder(number) / "events.jsonl").open("a") as file:  # news that cannot be written down
        file.write(POINT + "\n")
    # No clock of ours: the supervisor has looked, and not been able to, once it has slept between two tries.
    looked = [console("runs", "--json") for _ in range(3)]
    assert {one.code for one in looked} == {0}, looked
    assert all(who.is_alive() for who in supervisors)
    refuse(0)
    (console.cwd / "gate").touch()
    ended = console.ended(number)
    assert (ended.state, ended.reason) == ("failed", "exit code 7")
    shown = console.show(number)
    assert [one["n"] for one in shown["series"] if one["name"] == "loss"] == [2]
    assert shown["attempt"][0]["adoptions"] == 0


def test_stop_on_a_refusing_disk_is_refused_or_kept(disk: tuple[PreloadedConsole, Refuse]) -> None:
    console, refuse = disk
    number = begun(console)
    refuse(errno.EROFS)
    stopped = console("stop", "--no-wait", str(number))
    assert "Traceback" not in stopped.err
    assert stopped.code == 0 or is_clear(stopped.err), stopped
    refuse(0)
    (console.cwd / "gate").touch()
    ended = console.ended(number)
    assert ended.state in (("cancelled", "failed") if stopped.code == 0 else ("failed",))


_KINDS = ("no room", "no names")


@pytest.fixture(params=_KINDS)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, Console]]:
    """A home with an ended run, one that goes on and one that waits, whose disk can be filled."""
    options = "size=3m" if request.param == "no room" else "size=8m,nr_inodes=400"
    with console_on_disk(tmp_path, options) as (disk, console):
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


def _fill(disk: Disk, how: str) -> None:
    disk.use_up_names() if how == "no names" else disk.fill()


def test_runs_are_stopped_on_a_full_disk_and_a_deletion_makes_room_for_the_rest(
    full: tuple[Disk, Console], request: pytest.FixtureRequest
) -> None:
    disk, console = full
    _fill(disk, request.node.callspec.params["full"])
    for number in (3, 2):
        stopped = console.must("stop", str(number), "--grace", "0")
        assert "Traceback" not in stopped.err
        assert f"run {number}: cancelled" in stopped.out
    wait_for(
        lambda: not any(b"300" in words_of(who.pid) for who in all_of(console.home)), "the worker to be gone"
    )
    _fill(disk, request.node.callspec.params["full"])
    deleted = console("delete", "1", "--yes")
    assert "Traceback" not in deleted.err
    assert deleted.code == 0, deleted.err
    assert sorted(path.name[:4] for path in (console.home / "runs").iterdir()) == ["0002", "0003"]
    assert {run["id"] for run in console("runs", "--json").json()} == {2, 3}


def test_a_run_that_fills_the_disk_ends_in_the_record(tmp_path: Path) -> None:
    """Nobody makes room: the end is recorded in what was kept for it, and the run can be deleted."""
    with console_on_disk(tmp_path) as (_, console):
        filling = "head -c 100000000 /dev/zero > $KGOPS_RUN_FOLDER/results/x; exit 3"
        ended = console("run", "exec", "--json", "--", "sh", "-c", filling)
        assert (ended.json()["state"], ended.json()["exit_code"]) == ("failed", 3)
        assert console("delete", "1", "--yes").code == 0
        assert console("runs", "--json").json() == []


def test_a_stop_says_that_only_the_folder_has_the_end(tmp_path: Path) -> None:
    with console_on_disk(tmp_path) as (disk, console):
        number = console.going("sleep", "300")
        (console.folder(number) / "room.reserved").unlink()
        disk.fill()
        stopped = console("stop", str(number), "--grace", "0")
        assert f"run {number} has ended; only its folder says so" in stopped.err
        assert stopped.out == f"run {number}: cancelled\n"
        assert "free some space" in console("delete", str(number), "--yes").err
        disk.free()
        wait_for(lambda: console("runs", "--json").json()[0]["state"] == "cancelled", "the end in the record")
        assert console("delete", str(number), "--yes").code == 0


def test_power_cuts_take_back_nothing_that_was_told(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    cuts = moments(recorded, 6)
    wrong = {cut: faults for cut, faults in judge_all(recorded, cuts, tmp_path) if faults}
    assert wrong == {}
