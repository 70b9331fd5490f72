"""The nine commands that are attacked: in what home, as which call, and in which of the processes it starts."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from consoles import Answer, Room, call, fresh_room

from storage import runs
from storage.database import open_reader, open_writer

__all__ = ["COMMANDS", "Command", "make_templates"]

TESTS = Path(__file__).parent.parent
WORKER = ("/bin/sh", str(Path(__file__).parent / "injected_worker.sh"))
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    template: str
    arguments: tuple[str, ...]
    target: str = "console"
    prepare: Callable[[Room], None] = lambda room: None
    again: tuple[str, ...] = ("runs", "--json", "--limit", "1000")  # what brings its work to an end afterwards
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
        Command("migration", "migration", ("runs", "--json")),
    )
}


def make_templates(base: Path) -> dict[str, Path]:
    """By name: rooms whose processes have all gone."""
    made = {name: base / name for name in ("ended", "cancelled", "import", "rebuild", "migration")}
    ended = fresh_room(made["ended"])
    _must(call(ended, *_launch("--label", "before"), limit_s=PATIENCE_S))
    _until_ended(ended)
    cancelled = fresh_room(made["cancelled"], ended.path)
    _must(call(cancelled, *_launch("--label", "to be stopped"), hold=True, limit_s=PATIENCE_S))
    _must(call(cancelled, "stop", "2", "--grace", "0", limit_s=PATIENCE_S))
    _until_ended(cancelled)
    shutil.rmtree(cancelled.truth)
    _make_imported(made["import"], ended.path, cancelled)
    _make_rebuilt(made["rebuild"], cancelled, made["import"])
    old = fresh_room(made["migration"])
    _must(call(old, "runs", limit_s=PATIENCE_S))
    for path in old.path.glob("home/kgops.db*"):
        path.unlink()
    old.home.runs.mkdir(parents=True, exist_ok=True)
    old.home.pending.mkdir(parents=True, exist_ok=True)
    old.home.path.chmod(0o700)
    conn = sqlite3.connect(old.home.database, isolation_level=None)
    conn.executescript((TESTS / "fixtures" / "schema-001.sql").read_text())
    conn.close()
    return made


def _make_imported(path: Path, ended: Path, cancelled: Room) -> None:
    """A home with one run, beside it another's folder and an export of one more."""
    room = fresh_room(path, ended)
    (folder,) = cancelled.home.runs.glob("0002-*")
    shutil.copytree(folder, path / "elsewhere")
    other = fresh_room(path.with_name("other"))
    _must(call(other, *_launch("--label", "exported"), limit_s=PATIENCE_S))
    _until_ended(other)
    _must(call(other, "export", "1", "--to", "json", "--out", str(room.path / "export.json"), limit_s=PATIENCE_S))
    shutil.rmtree(other.path)


def _make_rebuilt(path: Path, cancelled: Room, imported: Path) -> None:
    """Folders of four runs, imported ones too, and a database that has lost their rows."""
    room = fresh_room(path, cancelled.path)
    _must(call(room, "import", "--again", str(imported / "export.json"), limit_s=PATIENCE_S))
    _must(call(room, "import", "--again", str(imported / "elsewhere"), limit_s=PATIENCE_S))
    for one in path.glob("home/kgops.db*"):
        one.unlink()
    open_writer(room.home.database).close()


def _must(answer: Answer) -> None:
    assert answer.code == 0, f"a template cannot be made: {answer.err}"


def _until_ended(room: Room) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        conn = open_reader(room.home.database)
        unfinished = runs.in_states(conn, runs.UNFINISHED)
        conn.close()
        if not unfinished and not room.is_supervised():
            return
        assert time.monotonic() < deadline, "a template's runs do not end"
        time.sleep(0.02)
