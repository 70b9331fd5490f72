"""A run on another host needs no console, and a start whose answer is lost is found there."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from driving import Terminal, all_of, end_all_of, patience, wait_for
from ssh_server import Lab, needs_ssh

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


@needs_ssh
def test_a_lost_answer_says_where_to_look_and_the_run_is_there(lab: Lab) -> None:
    lab.add("lab1")
    console, _ = start_unanswered(lab, *SLEEP)
    lab.server.kill_logins()
    _, errors = console.communicate(timeout=patience())
    assert console.returncode == 1
    assert b"`kgops runs --hosts lab1` shows what became of it" in errors
    (run,) = lab.there("lab1")("runs", "--json").json()
    assert run["label"] == "a job"


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
