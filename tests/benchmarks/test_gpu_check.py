"""`make gpu-check` says what it did, and passes only on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from driving import patience

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_A_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

# SIGALRM is how `timeout` learns that the time is over.
SLOW = """
import os, signal, time
import pytest

@pytest.mark.gpu
def test_quick():
    pass

@pytest.mark.gpu
def test_slow():
    os.kill(os.getppid(), signal.SIGALRM)
    time.sleep(600)
"""


def gpu_check(*variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "gpu-check", f"GPU_PYTHON={sys.executable}", *variables],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patience(),
    )


@WITHOUT_A_GPU
@pytest.mark.long
def test_without_a_gpu_every_test_is_skipped_and_the_whole_fails() -> None:
    done = gpu_check("GPU_TESTS=tests/planning/test_gpu_estimate.py")
    assert done.returncode != 0
    assert " skipped" in done.stdout and " passed" not in done.stdout
    assert f"requires a GPU, and torch {torch.__version__} sees none" in done.stdout
    assert f"no GPU to measure: torch {torch.__version__} sees no CUDA device" in done.stdout


@WITHOUT_A_GPU
def test_when_its_time_is_over_it_shows_what_ran_and_what_was_running(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text(SLOW)
    done = gpu_check(f"GPU_TESTS={tmp_path / 'test_slow.py'}")
    assert done.returncode != 0
    assert "::test_quick PASSED" in done.stdout
    assert "::test_slow" in done.stdout
    assert "KeyboardInterrupt" in done.stdout and "1 passed" in done.stdout
