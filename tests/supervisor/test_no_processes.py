"""No process can be made any more, as in a container with a limit of them: a clear answer, a true state, and no end
that says more than happened."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from driving import Console, all_of, is_clear, wait_for

GROUPS = Path("/sys/fs/cgroup/pids")


@dataclass(slots=True)
class Limited(Console):
    """All that it starts is in one control group, which may have only so many processes."""

    group: Path = GROUPS

    def argv(self, *args: str | Path) -> list[str]:
        join = f'echo $$ > {self.group}/cgroup.procs && exec "$@"'
        return ["sh", "-c", join, "sh", *Console.argv(self, *args)]

    def allow(self, processes: int | None) -> None:
        (self.group / "pids.max").write_text("max" if processes is None else str(processes))

    def are_all_gone(self) -> bool:
        return (self.group / "pids.current").read_text().strip() == "0"


@pytest.fixture
def limited(home: Path, tmp_path: Path) -> Iterator[Limited]:
    group = GROUPS / f"kgops-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a control group that counts processes: {error}")
    console = Limited(home, tmp_path, group=group)
    yield console
    console.allow(None)
    console.close()
    wait_for(console.are_all_gone, "everybody to leave the group")
    group.rmdir()


@pytest.mark.parametrize("most", [1, 2, 3])
def test_run_that_finds_no_room_for_processes_ends_truly(limited: Limited, most: int) -> None:
    limited.allow(most)
    asked = limited("run", "exec", "--detach", "--label", "x", "--", "sh", "-c", "echo ran")
    assert "Traceback" not in asked.err, asked.err
    assert asked.code == 0 or is_clear(asked.err), asked
    looked = limited("runs", "--json")
    assert (looked.code, "Traceback" in looked.err) == (0, False), looked.err
    limited.allow(None)
    if not looked.json():
        assert asked.code != 0
        return
    assert limited("runs").code == 0  # starts what is left of it
    ended = limited.ended(1)
    log = limited.folder(1) / "worker.log"
    ran = log.exists() and "ran" in log.read_text()
    assert (ended.state == "succeeded") == ran
    assert ran or "process" in (ended.reason or ""), ended.reason


def test_waiting_runs_do_not_fail_for_a_passing_lack(limited: Limited) -> None:
    for _ in (1, 2, 3):
        limited.detach("sh", "-c", "while [ ! -e gate ]; do sleep 0.05; done", flags=("--exclusive",))
    limited.running(1)
    # Those who are there may stay; the next supervisor finds no room.
    limited.allow(1)
    (limited.cwd / "gate").touch()
    # `sleep` cannot be started either, so the shell spins or ends: either way the run ends.
    limited.ended(1)
    assert limited("runs").code == 0
    limited.allow(None)
    wait_for(lambda: limited("runs", "--json").code == 0 and not all_of(limited.home), "all of them to end")
    assert [limited.ended(number).state for number in (2, 3)] == ["succeeded", "succeeded"]
