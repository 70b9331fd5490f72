"""Of the kill tests: which processes there are, what workers say of themselves, and the report, for a person and for
BENCHMARKS.md."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Line
from kgops.jobs.files import read_json
from kgops.settings import Home
from kgops.supervisor import gate, processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder
from storage import attempts, runs, series
from storage.database import Connection, open_reader


def actors(home: Home, folder: RunFolder, number: int) -> dict[str, list[Identity]]:
    """Who is at work for a run, by the part each plays."""
    of_run = supervisors(home, number)
    last = folder.last_attempt()
    if not last:
        return {"supervisor": of_run}
    door = processes.identity_from(read_json(folder.attempt(last).identity))
    tree = processes.tagged(Tree(folder, last).tag)
    workers = [who for who in tree if door and processes.parent(who.pid) == door.pid]
    return {
        "supervisor": of_run,
        "gate": [door] if door and door.is_alive() else [],
        "worker": workers,
        "grandchild": [who for who in tree if who not in workers],
    }


def supervisors(home: Home, number: int) -> list[Identity]:
    """Without their gates, which are copies, variables and all."""
    of_run = processes.supervisors(home.path, number)
    return [who for who in of_run if not any(processes.parent(who.pid) == other.pid for other in of_run)]


def variables_of_all(name: str) -> set[str]:
    """The values this variable has in any process."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for variable in processes._environment(int(entry.name)):
                if variable.startswith(name.encode() + b"="):
                    found.add(variable.partition(b"=")[2].decode("utf-8", "replace"))
    return found


def is_closed(home: Home, run: int, number: int) -> bool:
    """Whether the record says how this attempt ended."""
    with closing(open_reader(home.database)) as conn:
        return all(a.outcome is not None for a in attempts.of_run(conn, run) if a.number == number)


def untruths(
    conn: Connection, home: Home, run: runs.Run, truth: Path, kills: int, *, was_asked: bool
) -> Iterator[str]:
    """`kills` hit the tree of the run's worker, which wrote into `truth`; `was_asked` means to stop."""
    folder = RunFolder(home.runs / run.folder)
    left = gate.read_exit(folder.attempt(folder.last_attempt())) if folder.last_attempt() else None
    if run.state == "succeeded" and not (truth / "finished").exists():
        yield f"run {run.id} is a false success"
    if left and left.code == 0 and not left.asked_to_stop and run.state != "succeeded":
        yield f"run {run.id} finished and is {run.state}: a result is missing"
    if run.state == "cancelled" and not was_asked:
        yield f"run {run.id} was never asked to stop and is cancelled"
    if run.state == "failed":
        yield f"run {run.id} failed: {run.reason}"
    if run.state == "interrupted" and not kills:
        yield f"run {run.id} is interrupted and nothing of its worker was killed"
    starts = (truth / "starts").read_text().splitlines() if (truth / "starts").exists() else []
    if len(starts) > 1 + kills:
        yield f"run {run.id} began {len(starts)} times; {kills} kills hit its worker"
    wanted = []
    if folder.events.exists():
        wanted = [json.loads(line)["value"] for line in folder.events.read_bytes().splitlines()]
    taken = [point.value for point in series.points(conn, run.id, "unit")]
    if taken != wanted:
        yield f"run {run.id} reported {len(wanted)} points, the database has {len(taken)}"
    if any(attempt.outcome is None for attempt in attempts.of_run(conn, run.id)):
        yield f"run {run.id} is {run.state} and an attempt of it goes on"


@dataclass
class Report:
    kills: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    adoptions: int = 0
    attempts: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest_settling_s: float = 0.0

    @property
    def killed(self) -> int:
        return self.kills.total()

    def lines(self) -> list[str]:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.kills.items()))
        states = ", ".join(f"{n} {state}" for state, n in sorted(self.runs.items()))
        return [
            f"{self.killed} kills: {kinds}",
            f"{self.runs.total()} runs: {states}; {self.attempts} attempts, {self.adoptions} adoptions",
            f"slowest settling {self.slowest_settling_s:.1f} s",
            *(["nothing wrong"] if not self.wrong else ["WRONG: " + line for line in self.wrong]),
        ]


def metrics(report: Report, took_s: float) -> list[Line]:
    """What BENCHMARKS.md shows of it."""
    counted = (
        ("kills at random moments", report.killed, None),
        ("runs they fell upon", report.runs.total(), None),
        ("attempts of them", report.attempts, None),
        ("supervisors that took over from a dead one", report.adoptions, None),
        ("states, results, points or processes that were wrong afterwards", len(report.wrong), 0.0),
    )
    return [
        *(Line(f"chaos_{i}", subject, "", (float(n),), most) for i, (subject, n, most) in enumerate(counted)),
        Line("chaos_settling", "longest from a kill until all was told truly", "s", (report.slowest_settling_s,)),
        Line("chaos_took", "all of it took", "s", (took_s,)),
    ]  # fmt: skip
