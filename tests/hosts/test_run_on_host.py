"""`kgops run … --host`: the job goes there once, and the run no longer needs this machine."""

from __future__ import annotations

import shlex

from driving import wait_for
from ssh_server import Lab, needs_ssh

pytestmark = needs_ssh

TRIPLES = "".join(f"e{i}\tr{i % 3}\te{(i * 7) % 50}\n" for i in range(200))
SMALL = ("--num-epochs", "1", "--embedding-dim", "8", "--output-channels", "4", "--embedding-height", "2")


def test_a_run_is_named_by_its_host_and_goes_on_without_any_connection(lab: Lab) -> None:
    lab.add("lab1")
    go = lab.folder / "go"
    waits = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done; echo went on"
    started = lab.kgops("run", "exec", "--host", "lab1", "--tag", "mine;$(id)", "--", "sh", "-c", waits)
    assert started.code == 0, started.err
    assert started.out == "lab1:1\n"
    there = lab.there("lab1")
    there.running(1)
    lab.server.kill_logins()  # the connection that ssh keeps for the next command
    wait_for(lambda: not lab.server.own_processes(), "all logins to end")
    assert there.running(1)
    go.touch()
    assert there.ended(1).state == "succeeded"
    assert "went on" in (there.folder(1) / "worker.log").read_text()
    assert there("tag", "1").out.split("\n")[0] == "mine;$(id)"
    assert not (lab.console.home / "runs").exists() or not list((lab.console.home / "runs").iterdir())


def test_data_and_runs_that_a_job_names_are_those_of_the_host(lab: Lab) -> None:
    """All hosts of a test share one file system."""
    lab.add("lab1")
    (lab.console.cwd / "same.tsv").write_text(TRIPLES)
    done = lab.kgops(
        "run", "train", "--train", "same.tsv", *SMALL, "--embedding-width", "4", "--host", "lab1"
    )
    assert (done.code, done.out) == (0, "lab1:1\n"), done.err
    there = lab.there("lab1")
    assert there.ended(1).state == "succeeded"
    asked = ("--run", "1", "--head", "e1", "--relation", "r1")
    by_run = lab.kgops("run", "predict", *asked, "--host", "lab1")
    assert (by_run.code, by_run.out) == (0, "lab1:2\n"), by_run.err
    assert there.ended(2).state == "succeeded"


def test_what_is_wrong_is_said_with_the_host_and_nothing_is_started(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("bare", program="#!/bin/sh\nexit 127\n")
    run = ("run", "exec", "--cwd", "/", "--host")
    for host, words, code in (
        ("lab7", "is no host and no group", 2),
        ("bare", "is not found there", 1),
        ("all", "names 2 hosts", 2),
    ):
        done = lab.kgops(*run, host, "--", "true")
        assert done.code == code, (host, done)
        assert words in done.err
        assert "Traceback" not in done.err
    gone = lab.kgops("run", "exec", "--cwd", "/not/there", "--host", "lab1", "--", "true")
    assert gone.code == 2
    assert "lab1: the working folder /not/there does not exist" in gone.err
    absent = lab.kgops("run", "train", "--train", "absent.tsv", "--host", "lab1")
    assert absent.code == 2
    assert "absent.tsv" in absent.err
    (lab.console.cwd / "x.toml").write_text('workload = "train"\n[train]\ndataset = "nations"\n')
    series = lab.kgops("run", "sweep", "x.toml", "--vary", "batch_size=1,2", "--host", "lab1")
    assert series.code == 2
    assert "--host starts one run" in series.err
    assert not (lab.homes["lab1"] / "kgops.db").exists() or lab.there("lab1")("runs", "--json").json() == []


def test_a_stop_with_a_wrong_name_says_what_was_stopped(lab: Lab) -> None:
    lab.add("lab1")
    here = lab.console.detach("sleep", "1000")
    lab.console.running(here)
    unknown = lab.kgops("stop", str(here), "lab9:3")
    assert (unknown.code, unknown.err.splitlines()[0]) == (2, "Error: there is no host 'lab9'")
    assert lab.console.running(here), "nothing was stopped"
    absent = lab.kgops("stop", str(here), "lab1:999", "--grace", "5")
    assert absent.code == 2
    assert absent.err.splitlines()[0] == f"run {here}: cancelled"
    assert absent.err.splitlines()[1].startswith("Error: lab1: there are no runs yet"), absent.err


def test_a_run_is_stopped_resumed_and_repeated_where_it_is(lab: Lab) -> None:
    for name in ("lab1", "lab2"):
        lab.add(name)
        started = lab.kgops("run", "exec", "--cwd", "/", "--host", name, "--", "sleep", "1000")
        assert started.out == f"{name}:1\n", started.err
        lab.there(name).running(1)
    here = lab.console.detach("sleep", "1000")
    stopped = lab.kgops("stop", "lab1:1", str(here), "lab2:last", "--grace", "5", "--json")
    assert stopped.code == 0, stopped.err
    assert [(one.get("host"), one["id"], one["state"]) for one in stopped.json()] == [
        (None, here, "cancelled"),
        ("lab1", 1, "cancelled"),
        ("lab2", 1, "cancelled"),
    ]
    resumed = lab.kgops("resume", "lab1:1")
    assert (resumed.code, resumed.out) == (0, "lab1:1\n"), resumed.err
    lab.there("lab1").running(1)
    repeated = lab.kgops("run", "--again", "lab2:1", "--tag", "twice")
    assert (repeated.code, repeated.out) == (0, "lab2:2\n"), repeated.err
    lab.there("lab2").running(2)
    again = lab.kgops("stop", "lab1:1", "lab2:2", "--no-wait")
    assert again.out == "run lab1:1: asked to stop\nrun lab2:2: asked to stop\n", again
    for words, code in (
        (("stop", "lab1:9"), 2),
        (("stop", "lab9:1"), 2),
        (("stop", "lab1:-1"), 2),
        (("resume", "lab2:1;id"), 2),
        (("run", "--again", "lab2:1", "--gpu", "0"), 2),
        (("run", "--again", "lab2:7"), 2),
    ):
        wrong = lab.kgops(*words)
        assert wrong.code == code, (words, wrong)
        assert "Traceback" not in wrong.err
