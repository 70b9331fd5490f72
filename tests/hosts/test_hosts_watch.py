"""The watched connections: what breaks is said and tried again, what lies or floods reaches nobody."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from driving import wait_for
from nvml_standin import Machine, t4
from ssh_server import Lab, needs_ssh
from vanishing import FAULTS, Seen, vanish

from kgops.hosts import registry
from kgops.hosts.mirror import HostState
from kgops.hosts.watch import _PAUSES_S, States, Watch
from kgops.settings import Home

pytestmark = needs_ssh
HELLO = '{"type": "hello", "protocol": 1, "kgops": "1.0.0"}'
ONE = Machine((t4("GPU-a"),))


@dataclass
class Watched:
    """What a screen would have been told, and by when."""

    posted: list[States] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)

    def now(self, name: str) -> HostState | None:
        assert not self.failed, self.failed
        return next((state for state in (self.posted or [()])[-1] if state.name == name), None)

    def wait(self, name: str, holds: Callable[[HostState], object], what: str) -> HostState:
        def look() -> HostState | None:
            state = self.now(name)
            return state if state is not None and holds(state) else None

        return wait_for(look, f"{name}: {what}; last {self.now(name)}")

    def live(self, name: str) -> HostState:
        return self.wait(name, lambda state: state.reach == "live", "to be live")


@pytest.fixture
def watch(lab: Lab) -> Iterator[Callable[..., Watched]]:
    started: list[Watch] = []

    def start(**how: Any) -> Watched:
        watched = Watched()
        home = Home(lab.console.home)
        hosts = list(registry.read(home).values())
        started.append(Watch(home, hosts, watched.posted.append, watched.failed.append, **how))
        started[-1].start()
        watched.watches.append(started[-1])
        return watched

    yield start
    for one in started:
        one.stop(timeout_s=30.0)
    assert not any(thread.name == "kgops-hosts" for thread in threading.enumerate())


def says(*lines: str, then: str = "cat > /dev/null") -> str:
    """A host that prints these lines, whatever it is asked."""
    text = "".join(f"{line}\n" for line in lines)
    return f"#!/bin/sh\ncat <<'END'\n{text}END\n{then}\n"


def test_what_changes_there_is_shown_here(lab: Lab, watch: Callable[..., Watched]) -> None:
    there = lab.add("lab1", ONE)
    seen = watch()
    assert seen.live("lab1").rows("gpu")["0"]["memory_used_mib"] == 0
    lab.standins["lab1"].show(Machine((replace(t4("GPU-a", used_mib=5_000), utilization=88),)))
    there("run", "exec", "--label", "new there", "--", "true")
    seen.wait("lab1", lambda s: s.rows("gpu")["0"]["utilization_percent"] == 88, "88 %")
    seen.wait("lab1", lambda s: s.rows("run").get("1", {}).get("state") == "succeeded", "the run")
    there("delete", "1", "--yes")
    seen.wait("lab1", lambda s: not s.rows("run"), "the run to go")


def test_a_killed_connection_comes_back_with_the_same_rows(lab: Lab, watch: Callable[..., Watched]) -> None:
    lab.add("lab1", ONE)("run", "exec", "--label", "kept", "--", "true")
    seen = watch(pauses_s=(0.2,))
    before = seen.live("lab1")
    lab.server.kill_logins()
    lost = seen.wait("lab1", lambda s: s.reach == "unreachable", "to be lost")
    assert lost.tables == before.tables
    assert lost.heard_at is not None
    assert lost.problem
    assert seen.live("lab1").tables == before.tables


def test_a_stopped_feed_turns_silent_and_is_replaced(lab: Lab, watch: Callable[..., Watched]) -> None:
    lab.add("lab1", ONE)
    lab.add("lab2", ONE)
    seen = watch(alive_s=1, silent_s=6.0, pauses_s=(0.2,))
    seen.live("lab1")
    stopped = lab.feeds("lab1")
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    lost = seen.wait("lab1", lambda s: s.reach == "silent", "to be silent")
    assert lost.rows("gpu"), "what was shown last stays"
    assert seen.now("lab2").reach == "live"  # type: ignore[union-attr]
    seen.live("lab1")
    assert set(lab.feeds("lab1")) - set(stopped), "a new one"


def test_another_protocol_is_told_and_others_are_shown(lab: Lab, watch: Callable[..., Watched]) -> None:
    lab.add("future", program=says('{"type": "hello", "protocol": 7, "kgops": "9.0"}'))
    lab.add("lab1", ONE)
    seen = watch()
    state = seen.wait("future", lambda s: s.problem, "a problem")
    assert state.problem == "kgops 9.0 there speaks protocol 7, this one 1: this one is older"
    assert state.version == "9.0"
    assert not state.has_picture
    seen.live("lab1")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (says(HELLO, then="tr '\\0' x < /dev/zero"), "a line of more than"),
        (says(HELLO, '{"type": "picture"}', then='yes \'{"type": "alive"}\''), "more than 500 lines at once"),
        (says(HELLO, then="yes > /dev/stderr"), "bytes at once"),
    ],
    ids=["endless line", "endless lines", "endless errors"],
)
def test_a_host_that_floods_is_left_alone(
    lab: Lab, watch: Callable[..., Watched], program: str, words: str
) -> None:
    lab.add("flood", program=program)
    lab.add("lab1", ONE)
    seen = watch()
    state = seen.wait("flood", lambda s: s.problem, "a problem")
    assert words in str(state.problem)
    assert seen.live("lab1").rows("gpu")
    wait_for(lambda: not lab.feeds("flood"), "what flooded to end")


def test_a_host_that_lies_changes_no_row_of_another(lab: Lab, watch: Callable[..., Watched]) -> None:
    picture = (
        '{"type": "picture", "host": {"host": {"problem": "\\u001b[2Jx"}, "lab1": {"problem": "mine"}},'
        ' "gpu": {"0": {"host": "lab1", "name": "\\u202eT4"}, "lab1/0": {"name": "T4"}},'
        ' "run": {"1": {"label": "\\u0007"}}}'
    )
    lab.add(
        "liar",
        program=says('{"type": "hello", "protocol": 1, "kgops": "\\u001b]0;x", "host": "lab1"}', picture),
    )
    lab.add("lab1", ONE)
    seen = watch()
    liar, honest = seen.live("liar"), seen.live("lab1")
    assert honest.rows("gpu")["0"]["name"] == "Tesla T4"
    assert honest.rows("run") == {}
    assert (liar.name, list(liar.rows("gpu")), list(liar.rows("host"))) == ("liar", ["0"], ["host"])
    shown = [
        liar.version,
        *(v for rows in liar.tables.values() for row in rows.values() for v in row.values()),
    ]
    assert all(str(text).isprintable() for text in shown)


class Posted:
    """A clock that stands still until the test sets it forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_between_tries_grow_and_start_small_after_a_steady_line(
    lab: Lab, watch: Callable[..., Watched]
) -> None:
    counts = (
        'n=0; while [ -e "$0.up" ]; do n=$((n+1));'
        ' echo \'{"type": "change", "set": {"host": {"host": {"runs": \'$n\'}}}}\'; sleep 0.1; done'
    )
    program = says(HELLO, '{"type": "picture", "host": {"host": {}}}', then=counts).splitlines()
    lab.add("shaky", program="\n".join([program[0], '[ -e "$0.up" ] || exit 1', *program[1:]]) + "\n")
    up = lab.homes["shaky"].parent / "kgops command.up"
    clock = Posted()
    seen = watch(clock=clock, silent_s=1000.0)

    def pauses(tick_s: float) -> list[float]:
        """All that were posted until now; the clock goes on a little."""
        clock.now += tick_s
        seen.watches[-1].wake()
        assert not seen.failed
        posted = [state.pause_s for (state,) in seen.posted if state.pause_s is not None]
        return [pause for pause, before in zip(posted, [0.0, *posted], strict=False) if pause != before]

    grown = (*_PAUSES_S, _PAUSES_S[-1])
    drawn = wait_for(lambda: found if len(found := pauses(0.5)) >= len(grown) else None, "tries that fail")
    up.touch()
    for wanted, pause_s in zip(grown, drawn, strict=False):
        assert 0.8 * wanted <= pause_s <= 1.2 * wanted, drawn
    clock.now += _PAUSES_S[-1] * 1.2
    wait_for(lambda: pauses(0.05) and seen.now("shaky").reach == "live", "the host")  # type: ignore[union-attr]
    begun, tries = clock.now, len(pauses(0.0))
    wait_for(lambda: pauses(0.5) and clock.now > begun + 100, "a line that holds")
    up.unlink()
    again = wait_for(lambda: found[tries:] if len(found := pauses(0.02)) > tries else None, "its loss")
    assert 0.8 * _PAUSES_S[0] <= again[0] <= 1.2 * _PAUSES_S[0]


@pytest.mark.long
def test_no_run_is_shown_twice_lost_or_wrong_when_hosts_vanish(lab: Lab) -> None:
    names = ("lab1", "lab2", "lab3")
    for name in names:
        lab.add(name, slowable=True)
    seen = vanish(lab, names, rounds=20, seed=24)
    assert seen.wrong == []
    assert seen.posts > 20
    assert len(FAULTS) == 9
    assert len(seen.ended) > len(names)


def test_the_watcher_of_vanishing_hosts_notices_what_is_wrong() -> None:
    seen = Seen({"lab1": {"a"}, "lab2": {"b"}})

    def state(name: str, **runs: tuple[str, str]) -> HostState:
        rows = {number[1:]: {"label": label, "state": was} for number, (label, was) in runs.items()}
        return HostState(name, name, "live", tables={"run": {key: dict(row) for key, row in rows.items()}})

    first = (state("lab1", r1=("a", "succeeded")), state("lab2", r1=("b", "running")))
    seen.take(first)
    assert seen.wrong == []
    seen.take((state("lab1", r1=("a", "running")), state("lab2", r1=("a", "running"))))
    seen.take((state("lab1", r1=("a", "succeeded")), state("lab2")))
    assert seen.wrong == [
        "lab1:1 was succeeded and became running",
        "lab2:1 has the label 'a' of another",
        "lab2:1 is lost while live",
    ]
