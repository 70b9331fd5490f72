"""`kgops run … --host`: the job goes there once, the run no longer needs this machine, and one whose answer is lost is
found there."""

import shlex
from pathlib import Path

import pytest
from driving import Terminal, all_of, end_all_of, patience, wait_for
from ssh_server import Lab, needs_ssh

pytestmark = needs_ssh

TRIPLES = "".join(f"e{i}\tr{i % 3}\te{(i * 7) % 50}\n" for i in range(200))
SMALL = ("--num-epochs", "1", "--embedding-dim", "8")


def test_data_and_runs_that_a_job_names_are_those_of_the_host(lab: Lab) -> None:
    """All hosts of a test share one file system."""
    there = lab.add("lab1")
    (lab.console.cwd / "same.tsv").write_text(TRIPLES)
    done = lab.kgops("run", "train", "--train", "same.tsv", *SMALL, "--host", "lab1")
    assert (done.code, done.out) == (0, "lab1:1\n"), done.err
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
    here = lab.console.going("sleep", "1000")
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
    stopped = lab.must("stop", "lab1:1", str(here), "lab2:last", "--grace", "5", "--json")
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


def holds_back(lab: Lab, word: str) -> Path:
    """The host does what it is asked, but says nothing of it when `word` is among it; `asked` tells when it is done.
    It answers again once the file is gone."""
    silent = lab.folder / "silent"
    command = lab.homes["lab1"].parent / "kgops command"
    real = command.read_text().splitlines()[1].removeprefix("exec ")
    asked = shlex.quote(str(lab.folder / "asked"))
    command.write_text(
        f'#!/bin/sh\nif [ -e {shlex.quote(str(silent))} ]; then case "$*" in *{word}*) {real} > /dev/null;'
        f" touch {asked}; exec sleep 1000;; esac; fi\nexec {real}\n"
    )
    silent.touch()
    return silent


def test_a_lost_answer_says_where_to_look_and_the_run_is_there(lab: Lab) -> None:
    there = lab.add("lab1")
    silent = holds_back(lab, "--detach")
    job = ("exec", "--cwd", "/", "--label", "a job", "--host", "lab1", "--", "sleep", "1000")
    console = lab.console.start("run", *job, env={"PATH": lab.path})
    wait_for(lambda: (lab.folder / "asked").exists() or console.poll() is not None, "the host to be asked")
    silent.unlink()
    lab.server.kill_logins()
    _, errors = console.communicate(timeout=patience())
    assert console.returncode == 1
    assert b"`kgops runs --hosts lab1` shows what became of it" in errors
    (run,) = there("runs", "--json").json()
    assert run["label"] == "a job"


@pytest.mark.parametrize("lost", ["connection", "console", "machine"])
def test_a_started_run_survives_the_loss_of(lab: Lab, lost: str) -> None:
    there, go = lab.add("lab1"), lab.folder / "go"
    waits = f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.05; done; echo went on"
    console = lab.console
    screen = Terminal(console.argv("--hosts", "all"), console.environment({"PATH": lab.path}), console.cwd)
    try:
        screen.wait_for_text(b"1 of 1 answer")
        words = ("--cwd", "/", "--host", "lab1", "--tag", "mine;$(id)")
        started = lab.kgops("run", "exec", *words, "--", "sh", "-c", waits)
        assert started.out == "lab1:1\n", started.err
        there.running(1)
        assert all_of(console.home), "the console, its SSH clients and the connection that they share"
        if lost == "connection":
            lab.server.kill_logins()  # what ssh keeps for the next command, too
            wait_for(lambda: not lab.server.own_processes(), "all logins to end")
            there.running(1)
        elif lost == "console":
            screen.child.kill()
        else:
            end_all_of(console.home)
            assert not all_of(console.home)
        go.touch()
        ended = there.ended(1)
        assert (ended.state, ended.attempts) == ("succeeded", 1)
        assert "went on" in (there.folder(1) / "worker.log").read_text()
        assert there("tag", "1").out.split("\n")[0] == "mine;$(id)"
        assert not (console.home / "runs").exists() or not list((console.home / "runs").iterdir())
    finally:
        screen.close()
