"""What must hold after an injection, whatever was killed or failed: the record, the folders, the processes."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacked import Command
from chaos_report import supervisors
from consoles import Answer, Room, call, processes_of
from interposing import KILL

from kgops.supervisor import gate, run_folder
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from storage import attempts, run_list, runs, series
from storage.database import integrity_problems, open_reader

_ABOUT_A_RUN = ("id", "workload", "label", "state", "reason", "exit_code", "folder", "attempts")
_LAUNCHES = ("launcher", "supervisor", "gate", "worker-to-be")
_BELONGS = ".reserved"  # room on the disk for a mark that is not made yet
_NOT_COMPARED = ("supervisor.lock", "worker.lock")


@dataclass(frozen=True, slots=True)
class Before:
    """The room as it was when the attacked command began."""

    rows: dict[int, dict[str, Any]]
    folders: dict[str, set[str]]

    @classmethod
    def of(cls, room: Room) -> Before:
        rows = {}
        if room.home.database.exists():
            conn = open_reader(room.home.database)
            rows = {
                run.id: {name: getattr(run, name) for name in _ABOUT_A_RUN}
                for run in run_list.page(conn, limit=1000)
            }
            conn.close()
        return cls(rows, _folders(room))


@dataclass(slots=True)
class Judge:
    room: Room
    command: Command
    kind: str
    before: Before
    answer: Answer
    limit_s: float
    patience_s: float
    expected: dict[int, dict[str, Any]] | None = None  # the rows that the command leaves where nothing fails
    wrong: list[str] = field(default_factory=list)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def judge(self) -> list[str]:
        self._answered(self.command.name, self.answer, may_fail=True)
        if self.command.name == "stop":
            self._settle(may_go_on=self.answer.code != 0)  # what was said to be stopped ends by itself
            self._stopped_as_told()
            self._clean("stop", "3", "2", "--grace", "0")
        if self.command.again[0] != "runs":
            self._clean(*self.command.again)
        self._settle()
        if not self.wrong or self.rows:
            self._nothing_lost()
            self._as_told()
            self._ends_are_true()
            self._nothing_left()
        return self.wrong

    def say(self, what: str) -> None:
        """Without what differs from one injection to the next, so that the same fault reads the same."""
        what = re.sub(r"/proc/\d+(/task/\d+)?", "/proc/N", what.replace(str(self.room.path), ""))
        if what not in self.wrong:
            self.wrong.append(what)

    # --- answers ----------------------------------------------------------------------------------

    def _answered(self, name: str, answer: Answer, *, may_fail: bool) -> None:
        if answer.is_late:
            self.say(f"`{name}` did not answer within {self.limit_s:g} s")
        elif answer.took_s > self.limit_s:
            self.say(f"`{name}` took more than {self.limit_s:g} s")
        if answer.has_traceback:
            self.say(f"`{name}` shows a traceback: {_last_line(answer.err)}")
        elif answer.code not in (0, None):
            if not may_fail:
                self.say(f"a clean `{name}` failed: {_last_line(answer.err)}")
            lines = answer.err.splitlines()
            if sum(line.startswith("Error: ") for line in lines) != 1:
                self.say(f"`{name}` failed without one sentence that says why: {_last_line(answer.err)!r}")
            elif name == "launcher" and not any(line.startswith("Hint: ") for line in lines):
                self.say(f"`{name}` failed without a hint: {_last_line(answer.err)}")

    def _clean(self, *arguments: str) -> Answer:
        answer = call(self.room, *arguments, limit_s=self.limit_s)
        self._answered(" ".join(arguments[:2]), answer, may_fail=False)
        return answer

    def _settle(self, *, may_go_on: bool = False) -> None:
        """Clean commands until every run has ended; with `may_go_on`, one, and what it shows must be true."""
        deadline = time.monotonic() + self.patience_s
        while True:
            answer = self._clean("runs", "--json", "--limit", "1000")
            if answer.code != 0 or answer.has_traceback:
                return
            listed = json.loads(answer.out or "[]")
            self.rows = {row["id"]: row for row in listed}
            unfinished = [
                row
                for row in listed
                if row["state"] in runs.UNFINISHED
                # One that was queued waits for its folder, if that is gone.
                and (row["state"] not in runs.WAITING or (self.room.home.runs / row["folder"]).is_dir())
            ]
            for row in unfinished:
                if len(self._supervisors(row)) > 1:
                    self.say(f"run {row['id']} has more than one supervisor")
            if not unfinished or may_go_on:
                return
            if time.monotonic() > deadline:
                states = ", ".join(f"run {row['id']} is {row['state']}" for row in unfinished)
                self.say(f"not settled after {self.patience_s:g} s: {states}")
                return
            look_again = time.monotonic() + 1.0
            time.sleep(0.03)
            while self.room.is_supervised() and time.monotonic() < look_again:
                time.sleep(0.02)

    def _supervisors(self, row: dict[str, Any]) -> list[Identity]:
        """Without the gate: one whose supervisor died looks like another."""
        folder = self.room.folder_of(row["folder"])
        last = folder.last_attempt()
        gates = [Tree(folder, number).gate() for number in range(1, last + 1)]
        return [who for who in supervisors(self.room.home, row["id"]) if who not in gates]

    # --- the record -------------------------------------------------------------------------------

    def _nothing_lost(self) -> None:
        touched = self.command.wants
        for number, row in self.before.rows.items():
            now = self.rows.get(number)
            if now is None and not (self.command.name == "delete" and number in touched):
                self.say(f"run {number} is lost")
            elif now is not None and number not in touched:
                changed = [name for name in _ABOUT_A_RUN if now.get(name) != row[name]]
                if changed:
                    self.say(f"run {number} has another {', '.join(changed)}")
        if self.command.name in _LAUNCHES and self.answer.code == 0:
            told = self.answer.out.strip()
            if not told.isdecimal() or int(told) not in self.rows:
                self.say(f"run {told!r} was acknowledged and is lost")
        now_there, known = _folders(self.room), {row["folder"] for row in self.rows.values()}
        for name, files in self.before.folders.items():
            if name not in now_there:
                if not (self.command.name == "delete" and name.startswith("0002-")):
                    self.say(f"the folder {name} was removed")
            elif (
                self.command.name == "delete"
                and not self._is_said_to_lack()
                and (missing := files - now_there[name])
            ):
                self.say(f"the folder {name} was not deleted and lacks {sorted(missing)[:3]}")
        for name in now_there.keys() - known:
            self.say(f"the folder {name} has no row")
        for name in known - now_there.keys():
            self.say(f"the row of {name} has no folder")

    def _is_said_to_lack(self) -> bool:
        """A deletion that came to a file it could not remove, and says so."""
        return self.command.name == "delete" and "its other files are deleted" in self.answer.err

    def _as_told(self) -> None:
        """What the command said, and what it did."""
        did, failed = self.answer.code == 0, self.answer.code not in (0, None)
        name = self.command.name
        new = {number: row for number, row in self.rows.items() if number not in self.before.rows}
        # Where a commit fails nobody knows, and the honest answer says so.
        is_open = "shows whether" in self.answer.err
        is_named = is_open or any(f"run {n}" in self.answer.err for n in new)
        if name == "launcher" and failed and new and not is_named:
            self.say(
                f"the launch said it failed, and run {sorted(new)} is there ({_last_line(self.answer.err)})"
            )
        if name in _LAUNCHES and name != "launcher" and not did:
            self.say(f"the launch failed: {_last_line(self.answer.err)}")
        if name == "resume" and did and self.rows.get(2, {}).get("state") not in ("succeeded", "failed"):
            self.say(f"the run was resumed and is {self.rows.get(2, {}).get('state')}")
        if name == "resume" and failed and self._starts(2) and not is_open and "run 2" not in self.answer.err:
            self.say(f"resuming said it failed, and the run went on ({_last_line(self.answer.err)})")
        if name == "delete" and did and 2 in self.rows:
            self.say("the run was deleted and is there")
        if name == "import" and did and len(new) != 2 and "Warning: " not in self.answer.err:
            self.say(f"two runs were imported and {len(new)} are there")
        if name == "rebuild" and self.expected is not None:
            self._compare_rows(self.expected)
        if name == "import" and self.expected is not None:
            wanted = [(row["label"], row["state"]) for row in self.expected.values()]
            for row in new.values():
                if (row["label"], row["state"]) not in wanted:
                    self.say(f"a run was imported as {row['state']}: {row['label']}")

    def _compare_rows(self, expected: dict[int, dict[str, Any]]) -> None:
        for number in sorted(expected.keys() | self.rows.keys()):
            wanted, row = expected.get(number), self.rows.get(number)
            if wanted is None or row is None:
                self.say(f"run {number} is {'missing' if row is None else 'there and should not be'}")
                continue
            changed = [name for name in _ABOUT_A_RUN if row.get(name) != wanted.get(name)]
            if changed:
                self.say(f"run {number} has another {', '.join(changed)} than without a fault")

    def _stopped_as_told(self) -> None:
        for number in (2, 3):
            state = self.rows.get(number, {}).get("state")
            if self.answer.code == 0 and state != "cancelled":
                self.say(f"run {number} was stopped and is {state}")
            if state not in (*runs.UNFINISHED, "cancelled"):
                self.say(
                    f"run {number} was to be stopped and is {state}: {self.rows.get(number, {}).get('reason')}"
                )

    # --- ends -------------------------------------------------------------------------------------

    def _ends_are_true(self) -> None:
        conn = open_reader(self.room.home.database)
        try:
            for problem in integrity_problems(conn):
                self.say(f"integrity: {problem}")
            for number, row in self.rows.items():
                self._end_is_written(conn, number, row)
                if number in self.command.wants and self.command.name not in ("import", "rebuild"):
                    self._end_is_true(conn, number, row)
        finally:
            conn.close()

    def _end_is_written(self, conn: Any, number: int, row: dict[str, Any]) -> None:
        """Row, slot and folder say the same."""
        folder = self.room.folder_of(row["folder"])
        if row["state"] not in runs.ENDED or not folder.path.is_dir():
            return
        ending = run_folder.read_ending(folder.outcome)
        is_whole = not folder.record.exists() and not (number == 2 and self._is_said_to_lack())
        if is_whole and (ending.state if ending else None) != row["state"]:
            told = ending.state if ending else "nothing"
            self.say(f"run {number} is {row['state']}, and its folder says {told}")
        if folder.private.exists():
            self.say(f"run {number} is {row['state']} and keeps its private.json")
        if any(one.outcome is None for one in attempts.of_run(conn, number)):
            self.say(f"run {number} is {row['state']} and an attempt of it goes on")

    def _end_is_true(self, conn: Any, number: int, row: dict[str, Any]) -> None:
        """The end is the one that the worker came to."""
        truth, state, reason = self.room.truth / str(number), row["state"], row["reason"]
        starts, finished = self._starts(number), (truth / "finished").exists()
        folder = self.room.folder_of(row["folder"])
        last = folder.last_attempt()
        left = gate.read_exit(folder.attempt(last)) if last else None
        if (truth / "TWICE").exists():
            self.say(f"two workers of run {number} ran at the same time")
        if starts > (2 if self.command.target in ("gate", "worker-to-be") else 1):
            self.say(f"the worker of run {number} was started {starts} times")
        if state == "succeeded" and not finished:
            self.say(f"run {number} is a false success")
        if left is not None and left.code == 0 and not left.asked_to_stop and state != "succeeded":
            self.say(f"run {number} finished and is {state}: {reason}")
        may_be_cancelled = self.command.name in ("stop", "resume", "delete")
        if state == "cancelled" and not may_be_cancelled:
            self.say(f"run {number} was never asked to stop and is cancelled")
        if state == "cancelled" and self.command.name == "resume" and starts:
            self.say(f"run {number} went on and is cancelled")
        is_let_alone = self.kind == KILL or self.command.target == "console"
        if state == "failed" and (starts or is_let_alone):
            self.say(f"run {number}, whose worker {'began' if starts else 'was let alone'}, failed: {reason}")
        if state in ("interrupted", "out_of_memory"):
            self.say(f"run {number} is {state}: {reason}")
        wanted = 0
        if folder.events.exists():
            wanted = sum(b'"metric"' in line for line in folder.events.read_bytes().splitlines())
        taken = len(series.points(conn, number, "unit"))
        if taken != wanted:
            self.say(f"run {number} reported {wanted} points, the record has {taken}")

    def _starts(self, number: int) -> int:
        path = self.room.truth / str(number) / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    # --- what stays -------------------------------------------------------------------------------

    def _nothing_left(self) -> None:
        home = self.room.home
        deadline = time.monotonic() + min(self.patience_s, 10.0)
        while (left := processes_of(self.room)) and time.monotonic() < deadline:
            time.sleep(0.03)  # a supervisor that has just committed is on its way out
        for who in left:
            self.say(f"a process is left: {_command_line(who.pid)}")
        for path in home.path.rglob(".*"):
            is_import = any(part.startswith(".importing-") for part in path.parts)
            if path.name.endswith(_BELONGS) or (is_import and self.answer.code is None):
                continue  # what a killed import leaves the next one removes
            name = re.sub(r"(\.\d*-?[0-9a-f]+)(?=\.tmp$)", ".X", path.name)
            self.say(f"{_plain(name)} stays in {_plain(str(path.parent.relative_to(home.path)))}")
        for path in home.pending.glob("[!.]*"):
            self.say(f"the marker {path.name} stays")
        for path in home.runs.glob("*/supervisor.log"):
            text = path.read_text(errors="replace")
            if "Traceback (most recent call last)" in text or "Exception ignored" in text:
                self.say(f"supervisor.log has a traceback: {_last_line(text)}")


def _folders(room: Room) -> dict[str, set[str]]:
    """Of runs alone; what begins with a dot is not one yet, or no longer."""
    return {
        folder.name: {
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.name not in _NOT_COMPARED
        }
        for folder in room.home.runs.glob("[!.]*")
    }


def _last_line(text: str) -> str:
    """Its error; of a traceback, where in our code it began as well."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in text:
        ours = re.findall(r'File ".*/((?:kgops|storage)/[^"]*)", line (\d+), in (\w+)', text)
        where = " at {}:{} in {}".format(*ours[-1]) if ours else ""
        return f"{''.join(lines[-1:])[:200]}{where}"
    told = [line for line in lines if line.startswith(("Error:", "Warning:"))] or lines[-1:]
    return "".join(told[-1:])[:300]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
    except OSError:
        return "(gone)"


def _plain(name: str) -> str:
    """Without what differs from one process to the next."""
    return "".join("N" if letter.isdigit() else letter for letter in name)
