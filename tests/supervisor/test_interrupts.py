"""Signals by the hundred, as a person who is in a hurry or a machine that goes down sends them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from chaos_actors import actors
from driving import Console, wait_for

from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.run_folder import RunFolder

STUBBORN = "trap '' INT TERM HUP; while [ ! -e gate ]; do sleep 0.05; done; exit 5"
OFTEN = 300


@pytest.mark.parametrize("part", ["supervisor", "gate"])
def test_signals_by_the_hundred_reach_no_end_but_the_true_one(
    run_cli: Console, tmp_path: Path, part: str
) -> None:
    number = run_cli.detach("sh", "-c", STUBBORN)
    run_cli.running(number)
    folder = RunFolder(run_cli.folder(number))
    wait_for(folder.attempt(1).begun.exists, "the worker to have begun")
    (hit,) = actors(Home(run_cli.home), folder, number)[part]
    for _ in range(OFTEN):
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCONT):
            assert processes.send(hit, one)
    (tmp_path / "gate").touch()
    ended = run_cli.ended(number)
    assert (ended.state, ended.reason) == ("failed", "exit code 5")
