"""One injection, what came of it, and the report of all."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from interposing import KINDS

# What is wrong, by the promise that it breaks; the first that fits.
_PROMISES = (
    ("tracebacks", "traceback"),
    ("answers that took too long", "did not answer within|took more than"),
    ("lost runs", "is lost|is missing"),
    ("folders removed", "was removed|has no folder|and lacks"),
    ("processes left", "a process is left"),
    (
        "false ends",
        "false success|finished and is|failed:|is interrupted|is out_of_memory|and is cancelled|has another",
    ),
    ("files left", "stays|keeps its"),
    ("other", ""),
)


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
        yield (
            f"{self.done.total()} injections; {self.missed} calls were not come to; "
            f"the slowest answer took {self.slowest_s:.1f} s"
        )
        for (command, kind, what), results in self.wrong.items():
            numbers = [str(result.point.at) for result in results]
            more = f" and {len(numbers) - 12} more" if len(numbers) > 12 else ""
            yield f"WRONG {command}:{kind}:{','.join(numbers[:12])}{more}: {what}"
            yield f"      hit: {results[0].hit}"
        broken: dict[str, set[Point]] = {name: set() for name, _ in _PROMISES}
        for (_, _, what), results in self.wrong.items():
            name = next(name for name, pattern in _PROMISES if re.search(pattern, what))
            broken[name] |= {result.point for result in results}
        yield ", ".join(f"{len(points)} {name}" for name, points in broken.items())


def sample(points: list[Point], count: int) -> list[Point]:
    """An even part of each command's: how many calls one has does not move those of another."""
    if not 0 < count < len(points):
        return points
    of_command: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        of_command[point.command].append(point)
    chosen: set[Point] = set()
    for i, found in enumerate(sorted(of_command.values(), key=len)):  # what the shortest lack the others give
        share = min((count - len(chosen)) // (len(of_command) - i), len(found))
        chosen |= {found[n * len(found) // share] for n in range(share)}
    return [point for point in points if point in chosen]
