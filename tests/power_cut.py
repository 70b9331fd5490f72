"""Power cuts, replayed: a home's every write is recorded, and the home made again as a disk may have it after a cut.

    python tests/power_cut.py --cuts 300         # many moments, each in every way a disk may be left

At each cut the commands are asked what they know. What they had told before the cut must still be so.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from driving import Console, all_of, wait_for
from power_cut_disk import WAYS, Disk, Operation, operations
from preloading import PreloadedConsole, compile_library, python_with

from kgops.supervisor import processes
from storage import run_list, runs, series
from storage.database import integrity_problems, open_reader
from storage.errors import DatabaseMissing

ANOTHER_BOOT = "00000000-0000-4000-8000-000000000000"
_POINT = """{"event": "metric", "name": "loss", "value": 0.5, "step": '$i'}"""
_POINTS = f"echo again >> ran-$LABEL; for i in 1 2 3 4 5; do echo '{_POINT}' >> $KGOPS_EVENTS; done"


@dataclass(frozen=True, slots=True)
class Told:
    """What a command had said to a person by the moment at which `operations` had been done."""

    operations: int
    what: str  # accepted, ended, points, deleted
    label: str
    value: str | int = ""


@dataclass(slots=True)
class Recorded:
    operations: list[Operation]
    told: list[Told]
    truth: dict[str, str] = field(default_factory=dict)  # how each run really ended


def record(folder: Path) -> Recorded:
    """A short life of a home, from before its first command."""
    file = folder / "record"
    file.touch()
    file.with_name("record.turn").write_bytes(bytes(4096))
    names = f'#define RECORD "{file}"\n#define FOLDER "{folder}/home"\n'
    source = names + Path(__file__).with_name("recorder.c").read_text()
    python = python_with(compile_library(source, folder, "recorder"), folder / "python")
    subprocess.run([python, "-c", ""], check=True)  # alone: it makes the turn that all others wait for
    (folder / "work").mkdir()
    console = PreloadedConsole(folder / "home", folder / "work", python=python)
    told: list[Told] = []

    def tell(what: str, label: str, value: str | int = "") -> None:
        told.append(Told(sum(1 for _ in operations(file.read_bytes())), what, label, value))

    try:
        truth = _live(console, tell)
    finally:
        console.close()
    return Recorded(list(operations(file.read_bytes())), told, truth)


def _live(console: Console, tell) -> dict[str, str]:  # type: ignore[no-untyped-def]
    def begin(label: str, script: str, *flags: str) -> int:
        script = f"LABEL={label}; {script}"
        number = console.detach("sh", "-c", script, flags=("--label", label, *flags))
        tell("accepted", label)
        return number

    def see_end(number: int, label: str) -> None:
        shown = wait_for(lambda: _shown_if(console, number, "ended"), f"the end of {label}")
        tell("ended", label, shown["state"])
        tell("points", label, _points_of(shown))

    see_end(begin("good", _POINTS), "good")
    bad = begin("bad", f"{_POINTS}; exit 7")
    see_end(bad, "bad")
    going = begin("stopped", f"{_POINTS}; sleep 300")
    shown = wait_for(lambda: _shown_if(console, going, "points"), "its points")
    tell("points", "stopped", _points_of(shown))
    waiting = begin("waiting", _POINTS, "--exclusive")
    console("stop", str(going))
    see_end(going, "stopped")
    see_end(waiting, "waiting")
    assert console("resume", "--detach", str(bad)).code == 0
    see_end(bad, "bad")
    assert console("delete", "--yes", "1").code == 0
    tell("deleted", "good")
    return {"good": "succeeded", "bad": "failed", "stopped": "cancelled", "waiting": "succeeded"}


def _shown_if(console: Console, number: int, what: str) -> dict[str, Any] | None:
    """Asked by the command alone: SQLite in this process would do what nobody records."""
    shown = console.show(number)
    return shown if (shown["state"] in runs.ENDED if what == "ended" else _points_of(shown)) else None


def _points_of(shown: dict[str, Any]) -> int:
    return sum(one["n"] for one in shown["series"] if one["name"] == "loss")


def _points(home: Path, number: int) -> int:
    conn = open_reader(home / "kgops.db")
    try:
        return sum(one.n for one in series.of_run(conn, number) if one.name == "loss")
    finally:
        conn.close()


# --- cuts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    after: int  # so many operations
    way: str
    seed: int


def moments(recorded: Recorded, many: int, seed: int = 0) -> list[Cut]:
    """Spread over the record, in all ways; what stands right behind a promise first."""
    chance = random.Random(seed)
    ways = list(WAYS)
    behind = [told.operations for told in recorded.told]
    anywhere = [chance.randrange(len(recorded.operations)) for _ in range(max(many - len(behind), 0))]
    some = chance.sample(behind, min(many // 2, len(behind))) + anywhere
    return sorted(
        (Cut(at, ways[n % len(ways)], n) for n, at in enumerate(some[:many])), key=lambda cut: cut.after
    )


def judge_all(recorded: Recorded, cuts: list[Cut], folder: Path) -> Iterator[tuple[Cut, list[str]]]:
    """Each cut with what was wrong after it."""
    disk, done = Disk(), 0
    for cut in cuts:
        for one in recorded.operations[done : cut.after]:
            disk.apply(one)
        done = cut.after
        home = folder / f"cut-{cut.after}-{cut.way}"
        disk.cut(home, cut.way, cut.seed)
        _boot_again(home)
        for ran in (folder / "work").glob("ran-*"):
            ran.unlink()
        console = Console(home, folder / "work")
        try:
            faults = judge(console, recorded, cut)
        finally:
            console.close()
        yield cut, faults
        if not faults:
            shutil.rmtree(home)


def _boot_again(home: Path) -> None:
    """Whoever was alive before the cut is not any more, and was there under another boot."""
    for identity in home.glob("runs/*/attempts/*/identity.json"):
        identity.write_text(identity.read_text().replace(processes.boot_id(), ANOTHER_BOOT))


def judge(console: Console, recorded: Recorded, cut: Cut) -> list[str]:
    """In words what does not hold."""
    faults: list[str] = []
    for _ in range(40):
        looked = console("runs", "--json", "--limit", "100")
        if looked.code or "Traceback" in looked.err:
            return [f"`kgops runs` ended with {looked.code}: {looked.err[-600:]}"]
        shown = {run["label"]: run for run in looked.json() or []}
        if all(run["state"] in runs.ENDED for run in shown.values()):
            break
        for run in shown.values():
            if run["label"] == "stopped" and run["state"] not in runs.ENDED:
                console("stop", "--grace", "0", str(run["id"]))
        wait_for(lambda: not all_of(console.home), "everybody to leave")
    else:
        faults.append(
            f"never ends: {[(run['label'], run['state'], run['reason']) for run in shown.values()]}"
        )
    faults += _against_what_was_told(console, shown, recorded, cut)
    faults += _folders_and_rows(console)
    return faults


def _against_what_was_told(console: Console, shown: dict, recorded: Recorded, cut: Cut) -> list[str]:  # type: ignore[type-arg]
    faults = []
    by_then = [told for told in recorded.told if told.operations <= cut.after]
    deleted = {told.label for told in by_then if told.what == "deleted"}
    resumed_after = next(
        (t.operations for t in recorded.told if t.what == "ended" and t.label == "waiting"), 1 << 60
    )
    for told in by_then:
        run = shown.get(told.label)
        if told.label in deleted:
            if run is not None:
                faults.append(f"{told.label} was deleted, and is back as {run['state']}")
            continue
        if run is None:
            if cut.after < _deletion_begins(recorded) or told.label != "good":
                faults.append(f"{told.label} was {told.what}, and is not in the record")
            continue
        may_have_moved_on = told.label == "bad" and cut.after > resumed_after
        if told.what == "ended" and run["state"] != told.value and not may_have_moved_on:
            faults.append(f"{told.label} had ended {told.value}, and is {run['state']}: {run['reason']}")
        if told.what == "points" and _points(console.home, run["id"]) < int(told.value):
            faults.append(f"{told.label} had {told.value} points, and has {_points(console.home, run['id'])}")
        if told.what == "points" and (console.cwd / f"ran-{told.label}").exists() and not may_have_moved_on:
            faults.append(f"{told.label} had run, and ran again, though nobody asked for it")
    for label, run in shown.items():
        if run["state"] not in (recorded.truth[label], "interrupted", "cancelled") and label != "stopped":
            faults.append(f"{label} is {run['state']}: {run['reason']}, which it never was")
    return faults


def _deletion_begins(recorded: Recorded) -> int:
    names = (one.other or one.path for one in recorded.operations)
    return next((n for n, name in enumerate(names) if name.endswith(".delete")), 1 << 60)


def _folders_and_rows(console: Console) -> list[str]:
    faults: list[str] = []
    try:
        conn = open_reader(console.home / "kgops.db")
    except DatabaseMissing:  # cut before anything was promised
        return faults
    try:
        faults += integrity_problems(conn)
        rows = {run.folder for run in run_list.page(conn, limit=100)}
    finally:
        conn.close()
    there = {path.name for path in (console.home / "runs").glob("*") if re.match(r"\d{4}-", path.name)}
    faults += [f"folder {name} has no row" for name in sorted(there - rows)]
    faults += [f"the folder of row {name} is gone" for name in sorted(rows - there)]
    faults += [f"left over: {path.name}" for path in (console.home / "pending").glob("*")]
    return faults


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--cuts", type=int, default=60)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="power-cut-"))
    recorded = record(folder)
    print(f"{len(recorded.operations)} operations, {len(recorded.told)} promises in {folder}", flush=True)
    wrong = 0
    for cut, faults in judge_all(recorded, moments(recorded, given.cuts, given.seed), folder):
        for fault in faults:
            print(json.dumps([cut.after, cut.way, cut.seed, fault]), flush=True)
        wrong += bool(faults)
    print(f"{given.cuts} cuts, {wrong} with faults")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
