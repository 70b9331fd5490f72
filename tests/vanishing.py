"""Hosts that vanish and return at random, watched all the time: no run may be shown twice, lost or in a wrong state."""

import os
import random
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from driving import wait_for
from ssh_server import Lab

from kgops.hosts import registry
from kgops.hosts.watch import States, Watch
from kgops.settings import Home
from kgops.supervisor import processes
from storage.runs import ENDED

FAULTS = (
    *("killed", "stopped", "session killed", "session stopped", "runs change"),
    *("slowed", "server stopped", "server killed", "supervisor killed"),
)
SILENT_S = 4.0


@dataclass
class Seen:
    """Checks each state as it is posted: nothing that a host never had, and nothing that goes back."""

    labels: dict[str, set[str]] = field(default_factory=dict)  # that runs of a host ever had
    ended: dict[tuple[str, str], str] = field(default_factory=dict)  # state by host and run
    deleted: set[tuple[str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    newest: States = ()
    posts: int = 0

    def take(self, states: States) -> None:
        self.posts += 1
        for name, count in Counter(state.name for state in states).items():
            if count > 1:
                self.wrong.append(f"{name} is shown {count} times")
        for before, state in zip(self.newest or states, states, strict=True):
            rows = state.rows("run")
            if state.name != before.name:
                self.wrong.append(f"{before.name} became {state.name}")
            self.wrong += [
                f"{state.name}:{run} is lost while {state.reach}"
                for run in before.rows("run")
                if run not in rows and (state.name, run) not in self.deleted
            ]
            for run, fields in rows.items():
                self._judge(state.name, run, str(fields.get("label")), str(fields.get("state")))
        self.newest = states

    def _judge(self, host: str, run: str, label: str, state: str) -> None:
        if label not in self.labels[host]:
            self.wrong.append(f"{host}:{run} has the label {label!r} of another")
        known = self.ended.get((host, run))
        if known is not None and state != known:
            self.wrong.append(f"{host}:{run} was {known} and became {state}")
        if state in ENDED:
            self.ended[host, run] = state


def vanish(lab: Lab, names: Sequence[str], rounds: int, seed: int) -> Seen:
    """Every round a fault befalls a host, is undone, and what is shown is compared with the host's own record."""
    rng = random.Random(seed)
    seen = Seen({name: set() for name in names})
    for name in names:
        _new_run(lab, seen, name, 0)
    failed: list[BaseException] = []
    home = Home(lab.console.home)
    watch = Watch(
        home,
        [registry.read(home)[name] for name in names],
        seen.take,
        failed.append,
        alive_s=1,
        silent_s=SILENT_S,
        pauses_s=(0.1, 0.3),
    )

    def compare(name: str) -> None:
        _same_as_there(lab, seen, name, failed)

    watch.start()
    try:
        for name in names:
            compare(name)
        for turn in range(1, rounds + 1):
            name, fault = rng.choice(names), rng.choice(FAULTS)
            undo = _befall(lab, seen, name, fault, turn, rng, compare)
            if rng.random() < 0.7:  # what happens there while nobody sees it
                _change_runs(lab, seen, name, turn, rng)
            undo()
            for one in names:
                compare(one)
            assert not seen.wrong, (turn, name, fault, seen.wrong[:5])
    finally:
        watch.stop(timeout_s=30.0)
    return seen


def _befall(
    lab: Lab,
    seen: Seen,
    name: str,
    fault: str,
    turn: int,
    rng: random.Random,
    compare: Callable[[str], None],
) -> Callable[[], None]:
    """What undoes it."""
    if fault == "slowed":
        lab.slow_mark(name).touch()
        for pid in lab.feeds(name):  # the next picture comes in small parts
            _signal(pid, signal.SIGKILL)
        return lambda: _hurry(lab, name, compare)
    if fault == "server killed":
        lab.server.kill()
        return lab.server.listen
    if fault == "supervisor killed":
        return _lose_supervisor(lab, seen, name, f"{turn} of {name}, adopted")
    pids = lab.feeds(name)
    if fault.startswith(("session", "server")):
        assert lab.server.child is not None
        pids = [*lab.server.own_processes(), *([lab.server.child.pid] if fault == "server stopped" else [])]
    if fault.endswith("killed"):
        for pid in pids:
            _signal(pid, signal.SIGKILL)
    elif fault.endswith("stopped"):
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        return lambda: _set_going(lab, pids, rng)
    return lambda: None


def _hurry(lab: Lab, name: str, compare: Callable[[str], None]) -> None:
    """A slow line shows all the same."""
    compare(name)
    lab.slow_mark(name).unlink()


def _set_going(lab: Lab, pids: Sequence[int], rng: random.Random) -> None:
    """Or they never go again: then a server comes anew."""
    assert lab.server.child is not None
    for pid in pids:
        is_server = pid == lab.server.child.pid
        _signal(pid, signal.SIGCONT if is_server else rng.choice((signal.SIGCONT, signal.SIGKILL)))


def _lose_supervisor(lab: Lab, seen: Seen, name: str, label: str) -> Callable[[], None]:
    """A run goes on without one, until the next command there has it adopted."""
    there, go = lab.there(name), lab.folder / f"{label}.go"
    seen.labels[name].add(label)
    waits = f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.05; done"
    number = there.going("sh", "-c", waits, flags=("--label", label))
    holders = processes.holders(there.folder(number) / "supervisor.lock")
    # A child that it has just forked holds the lock too, until it is another program: the run may be that child.
    processes.send(min(holders, key=lambda who: (who.started, who.pid)), signal.SIGKILL)

    def go_on() -> None:
        assert there("runs").code == 0
        go.touch()
        assert there.ended(number).state == "succeeded"

    return go_on


def _change_runs(lab: Lab, seen: Seen, name: str, turn: int, rng: random.Random) -> None:
    known = [run for host, run in seen.ended if host == name and (host, run) not in seen.deleted]
    if known and rng.random() < 0.3:
        run = rng.choice(known)
        seen.deleted.add((name, run))
        assert lab.there(name)("delete", run, "--yes").code == 0
    else:
        _new_run(lab, seen, name, turn)


def _new_run(lab: Lab, seen: Seen, name: str, turn: int) -> None:
    label = f"{turn} of {name}"
    seen.labels[name].add(label)
    program = "true" if turn % 2 else "false"
    lab.there(name)("run", "exec", "--label", label, "--", program)


def _same_as_there(lab: Lab, seen: Seen, name: str, failed: list[BaseException]) -> None:
    """Waits until the screen would show the host live, with the very runs of its own record."""
    listed = lab.there(name)("runs", "--json").json()
    there = {str(run["id"]): (run["state"], run["label"]) for run in listed}

    def shown() -> bool:
        assert not failed, failed
        state = next((one for one in seen.newest if one.name == name), None)
        if state is None or state.reach != "live":
            return False
        return {run: (row["state"], row["label"]) for run, row in state.rows("run").items()} == there

    wait_for(shown, f"{name} to be shown as it is: {there}")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself
