"""Every system call of nine commands that touches a file or a process, one after another, killed or failed.

`python tests/injection/inject.py` does all of it and prints what was wrong; `--sample 200` takes an even part,
`--commands launcher,stop` and `--kinds kill,EIO` those alone, `--only launcher:EIO:17` one again, with what it hit.
A kind with a plus stays: the file of that call is broken from then on. `--fault NAME` plants a mutant of mutants.py.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interposing import KILL, KINDS, STAYS, Arming, Call, build, compiler, read_calls

HERE = Path(__file__).parent
SKIPPED = 77  # the exit code where there is no compiler
_STAYS_FOR_GOOD = 1_000_000
_STAYS_UNDER_A_SUPERVISOR = 4  # which would, rightly, wait for a better disk for ever


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One injection: `launcher:EIO:17` is the 17th call of a launcher that can give EIO, or the next that can."""

    command: str
    kind: str
    at: int

    def __str__(self) -> str:
        return f"{self.command}:{self.kind}:{self.at}"


@dataclass(frozen=True, slots=True)
class Result:
    point: Point
    hit: str | None  # None: the process was gone before it came to that call
    wrong: list[str]
    took_s: float
    answered_in_s: float


@dataclass(slots=True)
class Attack:
    """What all injections share; copied into each process that does some of them."""

    base: Path
    limit_s: float
    patience_s: float
    keep: bool
    templates: dict[str, Path]
    calls: dict[str, list[Call]] = field(default_factory=dict)
    expected: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    def trace(self, name: str) -> None:
        """A pass without a fault: which calls there are, and what the command leaves."""
        judge, arming = self._do(Point(name, KILL, 0), self.base / "traced", fault=False)
        if judge.wrong:
            raise SystemExit(f"{name} is wrong without any fault: {judge.wrong}")
        self.calls[name] = read_calls(arming.trace)
        self.expected[name] = judge.rows

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
        room = fresh_room(path, self.templates[command.template])
        command.prepare(room)
        stays = _STAYS_FOR_GOOD if command.target == "console" else _STAYS_UNDER_A_SUPERVISOR
        arming = Arming(
            command.target,
            room.home.path,
            room.notes,
            point.kind if fault else None,
            point.at,
            stays if point.kind.endswith(STAYS) else 1,
        )
        before = Before.of(room) if command.name != "migration" else Before({}, {})
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
                    is_new, _ = one.path not in seen, seen.add(one.path) if one.can(kind) else None
                    # A file that stays broken is another case once for each file.
                    if one.can(kind) and (is_new or not kind.endswith(STAYS)):
                        found.append(Point(name, kind, one.number))
        return found


def sample(points: list[Point], count: int) -> list[Point]:
    """An even part."""
    if not 0 < count < len(points):
        return points
    return [points[i * len(points) // count] for i in range(count)]


def _end_all(room: Any) -> None:
    """Whatever a fault left behind is ended: these are our own processes, found by their room."""
    import signal

    from consoles import processes_of

    from kgops.runs import processes

    for _ in range(100):
        left = processes_of(room)
        if not left:
            return
        for who in left:
            processes.send(who, signal.SIGKILL)
        time.sleep(0.02)


# --- what was found -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    missed: int = 0
    wrong: dict[tuple[str, str, str], list[Result]] = field(default_factory=lambda: defaultdict(list))
    slowest_s: float = 0.0

    def add(self, result: Result) -> None:
        if result.hit is None:
            self.missed += 1
        else:
            self.done[result.point.command, result.point.kind] += 1
        self.slowest_s = max(self.slowest_s, result.answered_in_s)
        for what in result.wrong:
            self.wrong[result.point.command, result.point.kind, what].append(result)

    def lines(self) -> Iterator[str]:
        commands = list(dict.fromkeys(command for command, _ in self.done))
        yield f"{'':14}" + "".join(f"{kind:>9}" for kind in KINDS) + f"{'all':>9}"
        for command in commands:
            counts = [self.done[command, kind] for kind in KINDS]
            yield f"{command:14}" + "".join(f"{count:9}" for count in counts) + f"{sum(counts):9}"
        yield f"{self.done.total()} injections; {self.missed} calls were not come to; the slowest answer took {self.slowest_s:.1f} s"
        for (command, kind, what), results in self.wrong.items():
            numbers = [str(result.point.at) for result in results]
            more = f" and {len(numbers) - 12} more" if len(numbers) > 12 else ""
            yield f"WRONG {command}:{kind}:{','.join(numbers[:12])}{more}: {what}"
            yield f"      hit: {results[0].hit}"
        yield f"{len({r.point for found in self.wrong.values() for r in found})} injections show something wrong"


# --- the program ----------------------------------------------------------------------------------------


def _preloaded(base: Path) -> None:
    """This program once more, with the library before the C library."""
    library = build(base)
    os.environ |= {"LD_PRELOAD": str(library), "INJECTION_BASE": str(base)}
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _base() -> Path:
    # In memory: a commit waits for a disk otherwise, thousands of times.
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="kgops-injection-", dir=memory if os.access(memory, os.W_OK) else None))


_shared: Attack


def _inject(point: Point) -> Result:
    return _shared.inject(point)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N of them, evenly; 0 for all")
    parser.add_argument("--commands", default="", metavar="C,…", help="default: all")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="K,…")
    parser.add_argument("--only", action="append", default=[], metavar="COMMAND:KIND:AT")
    parser.add_argument("--fault", help="a mutant that must be noticed")
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
            return SKIPPED
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
    from attacked import COMMANDS, make_templates
    from consoles import import_everything, plant

    began = time.monotonic()
    import_everything()
    _shared = Attack(base, given.limit, given.patience, given.keep, make_templates(base / "templates"))
    only = [Point(command, kind, int(at)) for command, kind, at in (one.split(":") for one in given.only)]
    commands = given.commands.split(",") if given.commands else list(COMMANDS)
    if only:
        commands = list(dict.fromkeys(point.command for point in only))
    for name in commands:
        _shared.trace(name)
    points = only or sample(_shared.points(commands, given.kinds.split(",")), given.sample)
    told = ", ".join(f"{name} {len(calls)}" for name, calls in _shared.calls.items())
    print(f"calls: {told}; {len(points)} injections; ready after {time.monotonic() - began:.0f} s", flush=True)
    if given.list:
        for name in commands:
            for one in _shared.calls[name]:
                print(name, one.number, one.name, one.path.replace(str(base), ""), *sorted(one.errors))
        return 0
    if given.fault:
        plant(given.fault)
    report = Report()
    with multiprocessing.get_context("fork").Pool(given.at_once) as pool, contextlib.suppress(KeyboardInterrupt):
        for i, result in enumerate(pool.imap(_inject, points), 1):
            report.add(result)
            if only or (result.wrong and given.sample):
                print(f"{result.point} hit {result.hit}: {'; '.join(result.wrong) or 'nothing wrong'}", flush=True)
            if i % 200 == 0:
                print(f"{i} after {time.monotonic() - began:.0f} s, {len(report.wrong)} kinds of wrong", flush=True)
    print("\n".join(report.lines()))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
