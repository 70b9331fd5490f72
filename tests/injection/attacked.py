"""The nine commands that are attacked: in what home, as which call, and in which of the processes it starts."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from consoles import Answer, Room, call, fresh_room, processes_of

from storage import runs
from storage.database import open_writer

WORKER = ("/bin/sh", str(Path(__file__).parent / "injected_worker.sh"))
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    template: str
    arguments: tuple[str, ...]
    target: str = "console"
    prepare: Callable[[Room], None] = lambda room: None
    again: tuple[str, ...] = ("runs",)  # what brings its work to an end afterwards
    wants: tuple[int, ...] = ()  # runs that the command is about

    def attack_arguments(self, room: Room) -> tuple[str, ...]:
        return tuple(word.replace("ROOM", str(room.path)) for word in self.arguments)


def _launch(*flags: str) -> tuple[str, ...]:
    return ("run", "exec", "--detach", "--attempts", "3", *flags, "--", *WORKER)


def _two_live_runs(room: Room) -> None:
    """Run 2 goes on until it is stopped, run 3 waits for it."""
    for label in ("held", "waiting"):
        _must(call(room, *_launch("--label", label, "--exclusive"), hold=True, limit_s=PATIENCE_S))
    deadline = time.monotonic() + PATIENCE_S
    while not (room.truth / "2" / "starts").exists():
        assert time.monotonic() < deadline, "the run to be stopped did not start"
        time.sleep(0.01)


COMMANDS = {
    command.name: command
    for command in (
        Command("launcher", "ended", _launch("--label", "attacked"), wants=(2,)),
        Command("supervisor", "ended", _launch("--label", "attacked"), "supervisor", wants=(2,)),
        Command("gate", "ended", _launch("--label", "attacked"), "gate", wants=(2,)),
        Command("worker-to-be", "ended", _launch("--label", "attacked"), "worker-to-be", wants=(2,)),
        Command("stop", "ended", ("stop", "3", "2", "--grace", "1"), prepare=_two_live_runs, wants=(2, 3)),
        Command("resume", "cancelled", ("resume", "2", "--detach"), wants=(2,)),
        Command("delete", "cancelled", ("delete", "2", "--yes"), wants=(2,)),
        Command("import", "import", ("import", "ROOM/elsewhere", "ROOM/export.json"), wants=(2, 3)),
        Command(
            "rebuild", "rebuild", ("doctor", "--rebuild"), again=("doctor", "--rebuild"), wants=(1, 2, 3, 4)
        ),
    )
}


class Templates:
    """Rooms whose processes have all gone, each made when it is first asked for."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def room(self, name: str) -> Room:
        path = self._base / name
        if not path.exists():
            making: Callable[[Path], None] = getattr(self, f"_make_{name}")
            making(path)
        return Room(path)

    def _make_ended(self, path: Path) -> None:
        room = fresh_room(path)
        _must(call(room, *_launch("--label", "before"), limit_s=PATIENCE_S))
        _until_ended(room)

    def _make_cancelled(self, path: Path) -> None:
        room = fresh_room(path, self.room("ended").path)
        _must(call(room, *_launch("--label", "to be stopped"), hold=True, limit_s=PATIENCE_S))
        _must(call(room, "stop", "2", "--grace", "0", limit_s=PATIENCE_S))
        _until_ended(room)
        shutil.rmtree(room.truth)

    def _make_other(self, path: Path) -> None:
        """Another home, with one run."""
        room = fresh_room(path)
        _must(call(room, *_launch("--label", "exported"), limit_s=PATIENCE_S))
        _until_ended(room)
        out = str(path / "export.json")
        _must(call(room, "export", "1", "--to", "json", "--output", out, limit_s=PATIENCE_S))

    def _make_import(self, path: Path) -> None:
        """A home with one run, beside it another's folder and an export of one more."""
        fresh_room(path, self.room("ended").path)
        (folder,) = self.room("cancelled").home.runs.glob("0002-*")
        shutil.copytree(folder, path / "elsewhere")
        shutil.copy(self.room("other").path / "export.json", path)

    def _make_rebuild(self, path: Path) -> None:
        """Folders of four runs, imported ones too, and a database that has lost their rows."""
        room, source = fresh_room(path, self.room("cancelled").path), self.room("import").path
        for name in ("export.json", "elsewhere"):
            _must(call(room, "import", "--twice", str(source / name), limit_s=PATIENCE_S))
        _until_ended(room)
        for one in path.glob("home/kgops.db*"):
            one.unlink()
        open_writer(room.home.database).close()


def _must(answer: Answer) -> None:
    assert answer.code == 0, f"a template cannot be made: {answer.err}"


def _until_ended(room: Room) -> None:
    """Nothing of the room is left, and the database is one file: each copy begins with the same calls."""
    deadline = time.monotonic() + PATIENCE_S
    conn = open_writer(room.home.database)
    # A process that is being replaced by another program has no environment for a moment: the record is asked too.
    while processes_of(room) or runs.in_states(conn, runs.UNFINISHED):
        assert time.monotonic() < deadline, "a template's runs do not end"
        time.sleep(0.02)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()
