"""Every system call of nine commands that touches a file or a process, one after another, killed or failed.

`python tests/injection/inject.py` does all of it and prints what was wrong; `--sample 200` takes an even part,
`--commands launcher,stop` and `--kinds kill,EIO` those alone, `--only launcher:EIO:17` one again, with what it hit.
A kind with a plus stays: the file of that call is broken from then on.
`--mutants` plants the faults of injected_mutants.py.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from injections import Point, Report, Result, sample
from interposing import KILL, KINDS, STAYS, Arming, Call, build, compiler, read_calls

HERE = Path(__file__).parent
_STAYS_FOR_GOOD = 1_000_000
_STAYS_UNDER_A_SUPERVISOR = 4  # which would, rightly, wait for a better disk for ever


@dataclass(slots=True)
class Attack:
    """What all injections share; copied into each process that does some of them."""

    base: Path
    limit_s: float
    patience_s: float
    keep: bool
    templates: Any
    wanted: str = ""  # a regular expression: only calls like `fsync /home/runs` that it finds have a number
    calls: dict[str, list[Call]] = field(default_factory=dict)
    expected: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    def trace(self, name: str) -> None:
        """A pass without a fault: which calls are wanted, and what the command leaves."""
        judge, arming = self._do(Point(name, KILL, 0), self._traced, fault=False)
        if judge.wrong:
            raise SystemExit(f"{name} is wrong without any fault: {judge.wrong}")
        self.calls[name] = read_calls(arming.trace)
        self.expected[name] = judge.rows

    @property
    def _traced(self) -> Path:
        return self.base / f"traced-{os.getpid()}"

    def shown(self, path: str) -> str:
        return path.replace(str(self._traced), "")

    def inject(self, point: Point) -> Result:
        began = time.monotonic()
        path = self.base / f"{os.getpid()}"
        judge, arming = self._do(point, path, fault=True)
        hits = arming.hit.read_text(errors="replace").splitlines() if arming.hit.exists() else []
        hit = " ".join(hits[0].split("\t")[1:]).replace(str(path), "") if hits else None
        if judge.wrong and self.keep:
            shutil.rmtree(kept := self.base / str(point).replace(":", "-"), ignore_errors=True)
            path.rename(kept)
        return Result(point, hit, judge.wrong, time.monotonic() - began, judge.answer.took_s)

    def _do(self, point: Point, path: Path, *, fault: bool) -> tuple[Any, Arming]:
        from attacked import COMMANDS
        from consoles import call, fresh_room
        from judging import Before, Judge

        command = COMMANDS[point.command]
        room = fresh_room(path, self.templates.room(command.template).path)
        command.prepare(room)
        stays = _STAYS_FOR_GOOD if command.target == "console" else _STAYS_UNDER_A_SUPERVISOR
        arming = Arming(
            command.target,
            room.home.path,
            room.notes,
            point.kind if fault else None,
            point.at,
            stays if point.kind.endswith(STAYS) else 1,
            self.wanted,
        )
        before = Before.of(room)
        answer = call(room, *command.attack_arguments(room), arming=arming, limit_s=self.limit_s)
        judge = Judge(
            room,
            command,
            point.kind,
            before,
            answer,
            self.limit_s,
            self.patience_s,
            self.expected.get(point.command),
        )
        try:
            judge.judge()
        finally:
            _end_all(room)
        return judge, arming

    def points(self, commands: list[str], kinds: list[str]) -> list[Point]:
        """All of them, in an order that is always the same."""
        found = []
        for name in commands:
            for kind in kinds:
                seen: set[str] = set()
                for one in self.calls[name]:
                    # A file that stays broken is another case once for each file.
                    is_known = kind.endswith(STAYS) and one.path in seen
                    if one.can(kind) and not is_known:
                        seen.add(one.path)
                        found.append(Point(name, kind, one.number))
        return found


def _end_all(room: Any) -> None:
    """Whatever a fault left behind is ended: these are our own processes, found by their room."""
    import signal

    from consoles import processes_of

    from kgops.supervisor import processes

    for _ in range(100):
        left = processes_of(room)
        if not left:
            return
        for who in left:
            processes.send(who, signal.SIGKILL)
        time.sleep(0.02)


# --- the program ----------------------------------------------------------------------------------------


def _preloaded(base: Path) -> None:
    """This program once more, with the library before the C library."""
    library = build(base)
    os.environ |= {"LD_PRELOAD": str(library), "INJECTION_BASE": str(base)}
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _base() -> Path:
    # In memory: a commit waits for a disk otherwise, thousands of times.
    memory = Path("/dev/shm")
    return Path(
        tempfile.mkdtemp(prefix="kgops-injection-", dir=memory if os.access(memory, os.W_OK) else None)
    )


_shared: Attack


def _inject(point: Point) -> Result:
    return _shared.inject(point)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N of them, evenly; 0 for all")
    parser.add_argument("--commands", default="", metavar="C,…", help="default: all")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="K,…")
    parser.add_argument("--calls", default="", metavar="REGEX", help="those like `fsync /home/runs` alone")
    parser.add_argument("--only", action="append", default=[], metavar="COMMAND:KIND:AT")
    parser.add_argument(
        "--mutants", action="store_true", help="plant one fault for each kind: all must be noticed"
    )
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1), metavar="N")
    parser.add_argument("--limit", type=float, default=10.0, metavar="S", help="for each answer")
    parser.add_argument("--patience", type=float, default=60.0, metavar="S", help="until all has settled")
    parser.add_argument("--keep", action="store_true", help="keep the homes of what was wrong")
    parser.add_argument("--list", action="store_true", help="print the calls and attack none")
    return parser.parse_args()


def main() -> int:
    given = _parse()
    if "INJECTION_BASE" not in os.environ:
        if compiler() is None:
            print("there is no C compiler (cc): nothing was injected")
            return 0
        _preloaded(_base())
    base = Path(os.environ.pop("INJECTION_BASE"))
    del os.environ["LD_PRELOAD"]
    try:
        return _run(given, base)
    finally:
        if not given.keep:
            shutil.rmtree(base, ignore_errors=True)
        else:
            print(f"kept in {base}")


def _run(given: argparse.Namespace, base: Path) -> int:
    global _shared
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]
    from attacked import COMMANDS, Templates
    from consoles import import_everything
    from injected_mutants import MUTANTS

    began = time.monotonic()
    import_everything()
    _shared = Attack(
        base, given.limit, given.patience, given.keep, Templates(base / "templates"), given.calls
    )
    only = [Point(command, kind, int(at)) for command, kind, at in (one.split(":") for one in given.only)]
    commands = given.commands.split(",") if given.commands else list(COMMANDS)
    if only:
        commands = list(dict.fromkeys(point.command for point in only))
    if given.mutants:
        commands = list(dict.fromkeys(mutant.command for mutant in MUTANTS.values()))
    for name in commands:
        _shared.trace(name)
    if given.mutants:
        return _attack_mutants(given)
    points = only or sample(_shared.points(commands, given.kinds.split(",")), given.sample)
    told = ", ".join(f"{name} {len(calls)}" for name, calls in _shared.calls.items())
    print(
        f"calls: {told}; {len(points)} injections; ready after {time.monotonic() - began:.0f} s", flush=True
    )
    if given.list:
        for name in commands:
            for one in _shared.calls[name]:
                print(name, one.number, one.name, _shared.shown(one.path), *sorted(one.errors))
        return 0
    report = _attack_all(points, given, began)
    print("\n".join(report.lines()))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if report.wrong else 0


def _attack_all(points: list[Point], given: argparse.Namespace, began: float) -> Report:
    report = Report()
    with multiprocessing.get_context("fork").Pool(given.at_once) as pool:
        for i, result in enumerate(pool.imap(_inject, points), 1):
            report.add(result)
            if given.only or (result.wrong and given.sample):
                print(
                    f"{result.point} hit {result.hit}: {'; '.join(result.wrong) or 'nothing wrong'}",
                    flush=True,
                )
            if i % 200 == 0:
                print(
                    f"{i} after {time.monotonic() - began:.0f} s, {len(report.wrong)} kinds of wrong",
                    flush=True,
                )
    return report


def _attack_mutants(given: argparse.Namespace) -> int:
    """Each planted in processes of its own; 1 if one was not noticed."""
    with multiprocessing.get_context("fork").Pool(given.at_once, maxtasksperchild=1) as pool:
        found = pool.map(_attack_mutant, _mutants(), chunksize=1)
    for name, is_noticed, what in found:
        print(f"{'noticed' if is_noticed else 'NOT NOTICED'}: {name}: {what}")
    return 0 if all(is_noticed for _, is_noticed, _ in found) else 1


def _mutants() -> list[str]:
    from injected_mutants import MUTANTS

    return list(MUTANTS)


def _attack_mutant(name: str) -> tuple[str, bool, str]:
    from consoles import plant
    from injected_mutants import MUTANTS

    mutant = MUTANTS[name]
    _shared.patience_s = min(_shared.patience_s, 5.0)  # some never settle, and that is what is looked for
    # By what the calls do: how many pages SQLite touches before them hangs on the length of a path that it keeps.
    _shared.wanted = mutant.calls
    _shared.trace(mutant.command)
    plant(name)
    others: list[str] = []
    for point in _shared.points([mutant.command], [mutant.kind]):
        result = _shared.inject(point)
        told = [what for what in result.wrong if re.search(mutant.told, what)]
        if told:
            return name, True, f"{point}: {told[0]}"
        others += [f"{point} hit {result.hit}", *result.wrong]
    return name, False, "; ".join(others)


if __name__ == "__main__":
    sys.exit(main())
