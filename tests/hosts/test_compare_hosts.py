"""`kgops compare lab1:1 lab2:1`: runs of several hosts side by side, and no ratio of times across machines."""

from __future__ import annotations

from nvml_standin import Machine, a100, t4
from ssh_server import Lab, needs_ssh

pytestmark = needs_ssh


def test_runs_of_hosts_carry_host_and_fingerprint_and_times_no_ratio(lab: Lab) -> None:
    lab.add("lab1", Machine((t4(),)))
    lab.add("lab2", Machine((a100(),)))
    for name in ("lab1", "lab2"):
        there = lab.there(name)
        done = there("run", "exec", "--label", f"of {name}", "--", "sleep", "0.2", env=lab.driver(name))
        assert done.code == 0, done.err
    assert lab.there("lab1")("run", "exec", "--", "sleep", "0.2", env=lab.driver("lab1")).code == 0
    found = lab.kgops("compare", "lab1:1", "lab2:last", "lab1:2", "--json")
    assert found.code == 0, found.err
    table = found.json()
    assert table["name"] == ["lab1:1", "lab2:1", "lab1:2"]
    one, other, third = table["fingerprint"]
    assert one == third != other
    assert table["same_machine"] is False
    took = table["metrics"]["took"]
    assert all(took["values"])
    assert took["ratios"] == [None, None, None]
    page = lab.kgops("compare", "lab1:1", "lab2:1").out
    assert page.splitlines()[0].split() == ["lab1:1", "of", "lab1", "lab2:1", "of", "lab2"]
    assert one in page and other in page
    assert "times have no ratios" in page
    assert not lab.console.home.joinpath("runs").exists() or lab.kgops("runs", "--json").json() == []
    same = lab.kgops("compare", "lab1:1", "lab1:2", "--json").json()
    assert same["same_machine"] is True
    assert same["metrics"]["took"]["ratios"][1] is not None


def test_a_run_here_stands_beside_one_there_and_what_lies_is_refused(lab: Lab) -> None:
    lab.add("lab1")
    lab.there("lab1")("run", "exec", "--", "true")
    assert lab.kgops("run", "exec", "--label", "mine", "--", "true").code == 0
    done = lab.kgops("compare", "1", "lab1:1")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:2] == ["1", "mine"]
    assert [run["id"] for run in lab.kgops("runs", "--json").json()] == [1]
    unended = lab.there("lab1").detach("sleep", "1000")
    lab.there("lab1").running(unended)
    waiting = lab.kgops("compare", "1", f"lab1:{unended}")
    assert waiting.code == 1
    assert "a run that is running cannot be imported" in waiting.err
    lab.add("odd", program="#!/bin/sh\necho Welcome\n")
    wrong = lab.kgops("compare", "1", "odd:1")
    assert wrong.code == 2
    assert "odd:1: not JSON" in wrong.err
    assert lab.kgops("compare", "1", "lab1:9").code == 1
    assert lab.kgops("compare", "lab1:1", "lab1:last", "lab1:1").code in (1, 2)
