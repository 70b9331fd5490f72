"""A signal reaches the process that was meant, or nobody: a number alone is given again to somebody else."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kgops.supervisor import processes
from kgops.supervisor.processes import Identity


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "300"])
    yield child
    child.kill()
    child.wait()


def identity(child: subprocess.Popen[bytes]) -> Identity:
    who = processes.identify(child.pid)
    assert who is not None
    return who


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_a_process_that_is_not_the_one_meant_gets_no_signal(
    stranger: subprocess.Popen[bytes], change: dict[str, int | str]
) -> None:
    meant = replace(identity(stranger), **change)  # type: ignore[arg-type]
    assert not meant.is_alive()
    assert not processes.send(meant, signal.SIGKILL)
    assert identity(stranger).is_alive()


def test_the_one_that_is_meant_gets_it_and_afterwards_nobody_does(stranger: subprocess.Popen[bytes]) -> None:
    meant = identity(stranger)
    assert processes.send(meant, signal.SIGKILL)
    assert stranger.wait() == -signal.SIGKILL
    assert not processes.send(meant, signal.SIGKILL)
