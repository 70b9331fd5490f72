"""Kills everything kgops is made of, at random moments, and checks after each kill that the record is true.

`python tests/chaos.py --kills 1000` prints what was killed and what was found, and tells every fifty kills how it goes;
`--store` keeps the metrics for BENCHMARKS.md; `--fault NAME` plants one of the faults of mutants.py first.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from chaos_report import (
    Report,
    actors,
    is_closed,
    metrics,
    supervisors,
    untruths,
    variables_of_all,
)
from driving import patience, wait_for, with_variable
from gaps import GAP, Gap
from mutants import WAITS

from benchmarks.measure import store
from kgops.jobs.files import read_json
from kgops.settings import Home
from kgops.supervisor import locks, processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder
from storage import attempts, run_list, runs
from storage.database import Connection, integrity_problems, open_reader

HERE = Path(__file__).parent
RUNS_AT_ONCE = 4
KINDS = (
    *("supervisor", "supervisor", "gate", "worker", "grandchild", "run", "run", "everything"),
    *("launcher", "console", "follower", "pid reuse"),
)


class Chaos:
    def __init__(
        self,
        base: Path,
        seed: int,
        fault: str | None,
        unit_s: float,
        kinds: tuple[str, ...],
        patience_s: float,
    ) -> None:
        self.random = random.Random(seed)
        self.home = Home(base / "home")
        self.truth = base / "truth"
        self._gap = Gap(base / "gap")
        self._waits = WAITS.get(fault, "worker") if fault else None
        self.report = Report()
        self._fault = fault
        self._unit_s = unit_s
        self._kinds = kinds
        self._patience_s = patience_s
        self._asked_to_stop: set[int] = set()
        self._tree_kills: Counter[int] = Counter()  # by run: kills that hit its worker's tree
        self._acknowledged: set[int] = set()
        self._truth_of: dict[int, Path] = {}
        self._launched = 0
        self._seen_ended: set[int] = set()
        self._listed: list[dict[str, Any]] = []
        self._stranger = subprocess.Popen(["sleep", "3600"])

    # --- the commands a person would give ---------------------------------------------------------

    def command(self, *arguments: str) -> list[str]:
        if self._fault is None:
            return [sys.executable, "-P", "-m", "kgops", *arguments]
        return [sys.executable, str(HERE / "mutants.py"), self._fault, *arguments]

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KGOPS_HOME": str(self.home.path), "PYTHONPATH": str(HERE.parent)}
        environment |= variables
        if self._waits == "supervisor":
            environment[GAP] = str(self._gap.folder)
        return subprocess.Popen(
            self.command(*arguments),
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(self, *arguments: str) -> str:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=patience())
        if process.returncode != 0:
            self.wrong(f"`kgops {' '.join(arguments)}` ended with {process.returncode}: {err.strip()[-300:]}")
        return out

    def launch_arguments(self) -> list[str]:
        self._launched += 1
        units = self.random.randint(3, 24)
        truth = self.truth / f"launch-{self._launched}"
        attempts_allowed = self.random.choice(("1", "99"))
        return [
            *("run", "exec", "--label", truth.name, "--attempts", attempts_allowed, "--"),
            *(sys.executable, "-I", "-S", str(HERE / "chaos_worker.py"), str(truth), str(units)),
            str(self._unit_s * self.random.choice((0.2, 1, 2))),
            *([str(self._gap.folder)] if self._waits == "worker" else []),
        ]

    def launch(self) -> None:
        arguments = self.launch_arguments()
        out = self.call(*arguments[:2], "--detach", *arguments[2:])
        if out.strip().isdecimal():
            self._acknowledged.add(int(out))

    def listing(self) -> list[dict[str, Any]]:
        out = self.call("runs", "--json", "--limit", "100000")
        return list(json.loads(out)) if out else []

    # --- one kill and what must hold after it -----------------------------------------------------

    def step(self) -> None:
        if self._waits in ("supervisor", "worker"):
            self._gap.arm()
        missing = (RUNS_AT_ONCE if self._fault is None else 1) - len(self._unfinished())
        for _ in range(missing):
            self.launch()
        if missing > 0:
            self._listed = self.listing()
        run = self._run_to_kill()
        if run is None or self.report.wrong:
            return
        kind = self.random.choice(self._kinds)
        if self._kill(kind, run):
            self.report.kills[kind] += 1
            self._must_settle()
        self._gap.close()

    def _run_to_kill(self) -> dict[str, Any] | None:
        """Any at a random moment; where a fault is planted, the one whose process waits where the fault shows."""
        if self._waits in ("supervisor", "worker"):
            pid = wait_for(self._gap.pid, "a process that waits to be killed")
            return next(run for run in self._listed if self._is_of(pid, run))
        if self._waits == "launcher":
            return self._listed[0]  # it is the launcher that is killed
        unfinished = self._unfinished()
        if not unfinished:
            return None
        time.sleep(self.random.random() * self._unit_s)
        if self.random.random() < 0.05:
            number = self.random.choice(unfinished)["id"]
            self._asked_to_stop.add(number)
            self.call("stop", str(number), "--no-wait", "--grace", "1")
        return self.random.choice(unfinished)

    def _unfinished(self) -> list[dict[str, Any]]:
        """As the command before this step showed them."""
        return [run for run in self._listed if run["state"] in runs.UNFINISHED]

    def _kill(self, kind: str, run: dict[str, Any]) -> bool:
        """False if there was nothing of that kind to kill."""
        if kind in ("launcher", "console", "follower"):
            return self._kill_console(kind, run)
        number = run["id"]
        folder = RunFolder(self.home.runs / run["folder"])
        mine = {kind: who for kind, who in actors(self.home, folder, number).items() if who}
        if kind == "everything":
            targets = [who for other in self._unfinished_folders() for who in self._all(*other)]
            for _, other in self._unfinished_folders():
                self._tree_kills[other] += 1
        elif kind in ("run", "pid reuse"):
            targets = [who for group in mine.values() for who in group]
            self._tree_kills[number] += 1
        else:
            targets = self.random.sample(mine[kind], 1) if kind in mine else []
            if kind in ("gate", "worker"):
                self._tree_kills[number] += 1
        killed = [processes.send(who, signal.SIGKILL) for who in targets]
        if kind == "pid reuse" and any(killed):
            self._give_pid_away(folder)
        return any(killed)

    def _kill_console(self, kind: str, run: dict[str, Any]) -> bool:
        arguments = {
            "launcher": self.launch_arguments(),
            "console": ["runs", "--json"],
            "follower": ["logs", "-f", str(run["id"])],
        }[kind]
        if kind == self._waits:
            self._gap.arm()
            process = self.start(*arguments, **{GAP: str(self._gap.folder)})
            wait_for(self._gap.pid, "a launcher whose job has a folder and no row")
        else:
            process = self.start(*arguments)
            time.sleep(self.random.random() * (0.5 if kind != "console" else 0.2))
        process.kill()
        process.communicate()
        return True

    def _is_of(self, pid: int, run: dict[str, Any]) -> bool:
        folder = RunFolder(self.home.runs / run["folder"])
        return any(who.pid == pid for who in self._all(folder, run["id"]))

    def _all(self, folder: RunFolder, number: int) -> list[Identity]:
        return [who for group in actors(self.home, folder, number).values() for who in group]

    def _unfinished_folders(self) -> list[tuple[RunFolder, int]]:
        with closing(open_reader(self.home.database)) as conn:
            found = runs.in_states(conn, runs.UNFINISHED)
            return [(RunFolder(self.home.runs / run.folder), run.id) for run in found]

    def _give_pid_away(self, folder: RunFolder) -> None:
        """As if the kernel had given the dead worker's number to somebody else meanwhile."""
        path = folder.attempt(folder.last_attempt()).identity
        noted = read_json(path)
        if isinstance(noted, dict):
            new = path.with_suffix(".given")
            new.write_text(json.dumps({**noted, "pid": self._stranger.pid}))
            new.replace(path)

    def _must_settle(self) -> None:
        """The next command shows every run in one true state; what it started is given a moment to stand."""
        begin = time.monotonic()
        trouble = self._untrue()
        while trouble and time.monotonic() < begin + self._patience_s:
            time.sleep(0.2)  # what it started needs the CPUs more than we do
            trouble = self._untrue()
        self.report.slowest_settling_s = max(self.report.slowest_settling_s, time.monotonic() - begin)
        if trouble:
            self.wrong(f"not settled after {self._patience_s:.0f} s: {trouble}")
        if self._stranger.poll() is not None:
            self.wrong("a process that was none of ours was killed")
        for path in self.truth.glob("*/TWICE"):
            self.wrong(f"two workers of {path.parent.name} ran at the same time")

    def _untrue(self) -> str | None:
        self._listed = self.listing()
        listed = {run["id"]: run for run in self._listed}
        missing = self._acknowledged - listed.keys()
        if missing:
            return f"runs {sorted(missing)} are lost"
        known = {run["folder"] for run in listed.values()}
        for path in self.home.runs.iterdir():
            being_made = locks.is_held(self.home.pending / f"{path.name}.new")
            if not path.name.startswith(".") and path.name not in known and not being_made:
                return f"the job in {path.name} was accepted and has no row"
        alive = variables_of_all(processes.TAG)
        for run in listed.values():
            folder = RunFolder(self.home.runs / run["folder"])
            if run["state"] == "failed":
                return f"run {run['id']} failed: {run['reason']}"
            if run["state"] in runs.ACTIVE:
                if len(supervisors(self.home, run["id"])) > 1:
                    return f"run {run['id']} has more than one supervisor"
                if not locks.is_held(folder.supervisor_lock) and self._state(run["id"]) in runs.ACTIVE:
                    return f"run {run['id']} is {run['state']} and nobody supervises it"
            elif run["state"] in runs.ENDED and run["id"] not in self._seen_ended:
                last = folder.last_attempt()
                if last and Tree(folder, last).tag in alive:
                    return f"run {run['id']} is {run['state']} and something of it is alive"
                if last and not is_closed(self.home, run["id"], last):
                    return f"run {run['id']} is {run['state']} and its attempt goes on"
                self._seen_ended.add(run["id"])
        return None

    def _state(self, number: int) -> str:
        with closing(open_reader(self.home.database)) as conn:
            run = runs.get(conn, number)
            return run.state if run else "missing"

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Lets every run come to its end, then compares the record with what the workers themselves say."""
        deadline = time.monotonic() + 3 * self._patience_s
        while any(run["state"] in runs.UNFINISHED for run in self.listing()):
            if time.monotonic() > deadline:
                self.wrong("runs do not come to their end")
                break
            time.sleep(0.2)
        with closing(open_reader(self.home.database)) as conn:
            for problem in integrity_problems(conn):
                self.wrong(f"integrity: {problem}")
            for run in run_list.page(conn, limit=100_000):
                self._compare(conn, run)
        leftovers = self._ours()
        deadline = time.monotonic() + 5
        # A supervisor that has just committed is on its way out.
        while leftovers and time.monotonic() < deadline:
            time.sleep(0.05)
            leftovers = [who for who in leftovers if who.is_alive()]
        for who in leftovers:
            self.wrong(f"orphan left: {Path(f'/proc/{who.pid}/cmdline').read_bytes()!r}")

    def _compare(self, conn: Connection, run: runs.Run) -> None:
        made = attempts.of_run(conn, run.id)
        self.report.runs[run.state] += 1
        self.report.attempts += len(made)
        self.report.adoptions += sum(attempt.adoptions for attempt in made)
        kills, was_asked = self._tree_kills[run.id], run.id in self._asked_to_stop
        for what in untruths(conn, self.home, run, self.truth / run.label, kills, was_asked=was_asked):
            self.wrong(what)

    def _ours(self) -> list[Identity]:
        """What lives with this home, but for this process."""
        return with_variable(f"KGOPS_HOME={self.home.path}")

    def wrong(self, what: str) -> None:
        if what not in self.report.wrong:
            self.report.wrong.append(what)

    def clean_up(self) -> None:
        """Whatever a fault left behind is ended: these are our own processes, found by their home."""
        self._stranger.kill()
        self._stranger.wait()
        for _ in range(50):
            left = self._ours()
            if not left:
                return
            for who in left:
                processes.send(who, signal.SIGKILL)
            time.sleep(0.05)


def run_chaos(
    *,
    kills: int,
    seed: int,
    fault: str | None = None,
    limit_s: float = 3600.0,
    unit_s: float = 0.15,
    kinds: tuple[str, ...] = KINDS,
    patience_s: float = 30.0,
    keep: bool = True,
    tell: Callable[[Report], None] | None = None,
) -> Report:
    """Kills until the number or the time is reached, or something is wrong; then everything is kept for a look.

    `tell` hears of it after each kill that took place.
    """
    base = Path(tempfile.mkdtemp(prefix="kgops-chaos-"))
    chaos = Chaos(base, seed, fault, unit_s, kinds, patience_s)
    until = time.monotonic() + limit_s
    try:
        while chaos.report.killed < kills and not chaos.report.wrong and time.monotonic() < until:
            before = chaos.report.killed
            chaos.step()
            if tell and chaos.report.killed > before:
                tell(chaos.report)
        if not chaos.report.wrong:
            chaos.finish()
    finally:
        chaos.clean_up()
        if not (chaos.report.wrong and keep):
            shutil.rmtree(base, ignore_errors=True)
        else:
            chaos.report.wrong.append(f"(everything is kept in {base})")
    return chaos.report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--fault")
    parser.add_argument(
        "--store", action="store_true", help="keep the metrics in the home's benchmarks.jsonl"
    )
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    begun = time.monotonic()

    def tell(report: Report) -> None:
        if report.killed % 50 == 0:
            print(f"{report.killed} kills after {time.monotonic() - begun:.0f} s", flush=True)

    result = run_chaos(kills=given.kills, seed=given.seed, fault=given.fault, tell=tell)
    took_s = time.monotonic() - begun
    print("\n".join(result.lines()))
    print(f"{took_s:.0f} s")
    if given.store:
        store(metrics(result, took_s), "make chaos")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
