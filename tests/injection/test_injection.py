"""A call that fails, or a process that is killed at it, loses no run and tells no lie; the whole is `make inject`."""

import subprocess
import sys
from pathlib import Path

import pytest
from interposing import compiler

PROGRAM = Path(__file__).with_name("inject.py")
pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")


def inject(*flags: str) -> subprocess.CompletedProcess[str]:
    # A guard against hanging alone: what takes how long is for `make inject`, on a machine that is quiet.
    patient = ("--limit", "300", "--patience", "300", "--at-once", "2")
    return subprocess.run(
        [sys.executable, str(PROGRAM), *patient, *flags], capture_output=True, text=True, timeout=1700
    )


def test_after_any_failed_call_no_run_is_lost_and_no_state_is_a_lie() -> None:
    done = inject("--sample", "60")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " injections; " in done.stdout


@pytest.mark.long
def test_the_injections_notice_a_planted_fault_of_each_kind() -> None:
    done = inject("--mutants")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("noticed: ") == 6
