"""Hosts that vanish and return at random."""

from __future__ import annotations

import pytest
from ssh_server import Lab, needs_ssh
from vanishing import FAULTS, Seen, vanish

from kgops.hosts.mirror import HostState

pytestmark = needs_ssh


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
