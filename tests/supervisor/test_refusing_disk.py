"""A disk that refuses every change in the middle of runs, as one does that was remounted read-only after an error,
and takes them again later: no supervisor dies of it, no end is lost, and no command shows a traceback."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driving import Console, all_of, is_clear, wait_for
from preloading import PreloadedConsole, compile_library, python_with

from kgops.supervisor import processes

POINT = """{"event": "metric", "name": "loss", "value": 0.5, "step": 1}"""
UNTIL_GATE = f"echo '{POINT}' >> $KGOPS_EVENTS; while [ ! -e gate ]; do sleep 0.05; done; exit 7"
Refuse = Callable[[int], None]


@pytest.fixture
def disk(home: Path, tmp_path: Path) -> Iterator[tuple[PreloadedConsole, Refuse]]:
    """A console, and what makes the disk below its home refuse with that errno; 0 lets it take everything again."""
    trouble = tmp_path / "trouble"
    trouble.write_bytes(struct.pack("q", 0))

    def refuse(number: int) -> None:
        with trouble.open("r+b") as file:
            file.write(struct.pack("q", number))

    source = Path(__file__).parents[1].joinpath("refusing_disk.c").read_text()
    names = f'#define TROUBLE_FILE "{trouble}"\n#define DISK "{home}/"\n'
    library = compile_library(names + source, tmp_path, "refusing_disk")
    (tmp_path / "work").mkdir()
    console = PreloadedConsole(home, tmp_path / "work", python=python_with(library, tmp_path / "python"))
    yield console, refuse
    refuse(0)
    console.close()


def begun(console: Console) -> int:
    """A run whose first point is in the record."""
    number = console.detach("sh", "-c", UNTIL_GATE)
    console.running(number)
    wait_for(lambda: console.show(number)["series"], "its first point")
    return number


@pytest.mark.parametrize("refusal", [errno.EROFS, errno.EIO], ids=["read-only", "broken"])
def test_worker_that_ends_on_a_refusing_disk_keeps_its_end(
    disk: tuple[PreloadedConsole, Refuse], refusal: int
) -> None:
    console, refuse = disk
    number = begun(console)
    workers = [who for who in all_of(console.home) if b"sleep 0.05" in _command(who.pid)]
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


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
