"""A start whose answer is lost: the run is there once, the console knows of it, and the run needs no console."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from driving import Console, Terminal, all_of, end_all_of, wait_for
from ssh_server import Lab, needs_ssh

from storage import runs
from storage.database import open_reader

SLEEP = ("run", "exec", "--cwd", "/", "--label", "a job", "--host", "lab1", "--", "sleep", "1000")


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


def start_unanswered(lab: Lab, *args: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A console that waits for an answer after the host did what it was asked."""
    silent = holds_back(lab, "--detach")
    console = lab.console.start(*args, env={"PATH": lab.path})
    wait_for(lambda: (lab.folder / "asked").exists() or console.poll() is not None, "the host to be asked")
    silent.unlink()
    return console, silent


def remote(lab: Lab) -> list[tuple[str, int | None]]:
    return [(one["host"], one["id"]) for one in lab.kgops("runs", "--remote", "--json").json()]


def numbers(lab: Lab) -> list[int]:
    return sorted(run["id"] for run in lab.there("lab1")("runs", "--json").json())


@needs_ssh
def test_a_start_is_remembered_here_by_its_host_and_number(lab: Lab) -> None:
    lab.add("lab1")
    for number in (1, 2):
        assert lab.kgops(*SLEEP).out == f"lab1:{number}\n"
    assert remote(lab) == [("lab1", 2), ("lab1", 1)]
    rows = [line.split() for line in lab.kgops("runs").out.splitlines() if line]
    assert [(row[0], row[1], row[-2:]) for row in rows] == [
        ("HOST:RUN", "WORKLOAD", ["SUBMITTED", "LABEL"]),
        ("lab1:2", "exec", ["a", "job"]),
        ("lab1:1", "exec", ["a", "job"]),
    ]
    refused = lab.kgops("run", "exec", "--cwd", "/not/there", "--host", "lab1", "--", "true")
    assert refused.code == 2
    assert remote(lab) == [("lab1", 2), ("lab1", 1)]


@needs_ssh
def test_a_start_that_cannot_be_remembered_is_not_asked_for(lab: Lab) -> None:
    lab.add("lab1")
    (lab.console.home / "starting").write_text("in the way of a folder")
    refused = lab.kgops(*SLEEP)
    assert refused.code == 1
    assert "the start cannot be recorded in" in refused.err
    assert not (lab.homes["lab1"] / "kgops.db").exists()


@needs_ssh
def test_a_connection_that_breaks_before_the_answer_costs_no_second_run(lab: Lab) -> None:
    lab.add("lab1")
    console, _ = start_unanswered(lab, *SLEEP)
    lab.server.kill_logins()
    assert console.wait(60) == 1
    assert remote(lab) == [("lab1", None)]
    assert "lab1:n/a" in lab.kgops("runs").out
    again = lab.kgops(*SLEEP)
    assert (again.code, again.out) == (0, "lab1:1\n"), again.err
    assert "this is the run of that start" in again.err
    assert remote(lab) == [("lab1", 1)]
    assert numbers(lab) == [1]
    assert lab.kgops(*SLEEP).out == "lab1:2\n", "asked for once more, it is another run"


@needs_ssh
def test_a_start_that_never_reached_its_host_is_forgotten_later(lab: Lab) -> None:
    lab.add("lab1")
    lab.server.kill()
    assert lab.kgops(*SLEEP).code == 1
    lab.server.listen()
    assert lab.kgops("runs", "--hosts", "lab1").code == 0
    assert remote(lab) == [("lab1", None)], "it may still be on its way"
    listed = lab.console.home / "started.jsonl"
    start = json.loads(listed.read_text())
    listed.write_text(json.dumps({**start, "at": start["at"] - 3600}) + "\n")
    assert lab.kgops("runs", "--hosts", "lab1").code == 0
    assert remote(lab) == []


@needs_ssh
def test_a_console_killed_while_it_starts_a_run_finds_it_later(lab: Lab) -> None:
    lab.add("lab1")
    start_unanswered(lab, *SLEEP)
    end_all_of(lab.console.home)
    assert remote(lab) == [("lab1", None)]
    assert lab.kgops("runs", "--hosts", "lab1").code == 0
    assert remote(lab) == [("lab1", 1)]
    assert numbers(lab) == [1]


@needs_ssh
def test_a_start_that_another_console_waits_for_is_not_taken_for_lost(lab: Lab) -> None:
    lab.add("lab1")
    console, _ = start_unanswered(lab, *SLEEP)
    assert lab.kgops(*SLEEP).out == "lab1:2\n"
    os.kill(console.pid, signal.SIGKILL)
    console.wait(60)
    assert lab.kgops(*SLEEP).out == "lab1:1\n"
    assert numbers(lab) == [1, 2]


def test_of_many_launches_with_one_token_one_makes_a_run(run_cli: Console) -> None:
    job = run_cli.cwd / "job.toml"
    job.write_text('workload = "exec"\n[exec]\ncommand = ["sleep", "1000"]\n')
    token = "0123456789abcdef" * 2
    started = [run_cli.start("run", str(job), "--detach", "--token", token) for _ in range(4)]
    said = [child.communicate(timeout=300) for child in started]
    assert [out for out, _ in said] == [b"1\n"] * 4, said
    conn = open_reader(run_cli.home / "kgops.db")
    assert runs.count(conn) == 1
    conn.close()
    assert run_cli("hosts", "started", token, "f" * 32).json() == {token: 1}


@needs_ssh
@pytest.mark.parametrize("lost", ["connection", "console", "machine"])
def test_a_started_run_survives_the_loss_of(lab: Lab, lost: str) -> None:
    lab.add("lab1")
    go = lab.folder / "go"
    waits = f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.05; done"
    console = lab.console
    screen = Terminal(console.argv("--hosts", "all"), console.environment({"PATH": lab.path}), console.cwd)
    try:
        screen.wait_for_text(b"1 of 1 answer")
        started = lab.kgops("run", "exec", "--cwd", "/", "--host", "lab1", "--", "sh", "-c", waits)
        assert started.out == "lab1:1\n", started.err
        lab.there("lab1").running(1)
        assert all_of(console.home), "the console, its SSH clients and the connection that they share"
        if lost == "connection":
            lab.server.kill_logins()
        elif lost == "console":
            screen.child.kill()
        else:
            end_all_of(console.home)
            assert not all_of(console.home)
        go.touch()
        assert lab.there("lab1").ended(1).state == "succeeded"
        assert lab.there("lab1").run(1).attempts == 1  # type: ignore[union-attr]
    finally:
        screen.close()


@needs_ssh
def test_a_run_repeated_without_an_answer_is_repeated_once(lab: Lab) -> None:
    lab.add("lab1")
    assert lab.kgops(*SLEEP).out == "lab1:1\n"
    again = ("run", "--again", "lab1:1")
    console, _ = start_unanswered(lab, *again)
    lab.server.kill_logins()
    assert console.wait(60) == 1
    done = lab.kgops(*again)
    assert (done.code, done.out) == (0, "lab1:2\n"), done.err
    assert "this is the run of that start" in done.err
    assert (remote(lab), numbers(lab)) == ([("lab1", 2), ("lab1", 1)], [1, 2])
    assert lab.kgops(*again).out == "lab1:3\n", "asked for once more, it is another run"


@needs_ssh
def test_a_run_resumed_without_an_answer_has_one_more_attempt(lab: Lab) -> None:
    lab.add("lab1")
    assert lab.kgops(*SLEEP[:-2], "false").out == "lab1:1\n"
    there = lab.there("lab1")

    def attempts() -> int:
        there.ended(1)
        return len(there.show(1)["attempt"])

    assert attempts() == 1
    console, _ = start_unanswered(lab, "resume", "lab1:1")
    lab.server.kill_logins()
    assert console.wait(60) == 1
    assert remote(lab) == [("lab1", None), ("lab1", 1)]
    assert attempts() == 2
    done = lab.kgops("resume", "lab1:1")
    assert (done.code, done.out) == (0, "lab1:1\n"), done.err
    assert "this is the run of that start" in done.err
    assert attempts() == 2
    assert remote(lab) == [("lab1", 1)], "the run stands in the list once"
    assert lab.kgops("resume", "lab1:1").out == "lab1:1\n"
    assert attempts() == 3


def test_of_many_resumptions_with_one_token_one_makes_an_attempt(run_cli: Console) -> None:
    number = run_cli.detach("false")
    run_cli.ended(number)
    words = ("resume", str(number), "--detach", "--token", "fedcba9876543210" * 2)
    said = [child.communicate(timeout=300) for child in [run_cli.start(*words) for _ in range(4)]]
    assert {out for out, _ in said} <= {b"1\n", b""}, said
    assert b"1\n" in {out for out, _ in said}, said
    run_cli.ended(number)
    assert run_cli(*words).out == "1\n"
    assert len(run_cli.show(number)["attempt"]) == 2
