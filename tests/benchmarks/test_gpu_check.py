"""`make gpu-check` says what it did, and passes only on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from driving import patience

from benchmarks.gpu import shaped_like_fb15k_237
from kgops.maths.train.batches import Batches
from kgops.workloads.graphs.counts import counted_table

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
@pytest.mark.slow
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


def test_it_installs_what_tests_need_but_never_into_a_python_of_ones_own() -> None:
    def would_do(*variables: str) -> str:
        command = ["make", "--dry-run", "--always-make", "gpu-check", *variables]
        outside = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        return subprocess.run(
            command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True
        ).stdout

    assert "--editable '.[dev]'" in would_do()
    assert "pip install" not in would_do("GPU_PYTHON=python3")


def test_an_epoch_of_the_made_graph_has_as_many_steps_as_one_of_fb15k_237() -> None:
    counted = counted_table("fb15k237")
    assert counted is not None
    queries = counted["tails"]["queries"] + counted["heads"]["queries"]
    graph = shaped_like_fb15k_237()
    batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=1024, seed=0)
    assert len(graph.train) == counted["train"]
    assert batches.num_queries == queries
    assert len(batches) == 147


def test_a_warning_of_torchs_compiler_fails_no_test_and_one_of_ours_does() -> None:
    warnings.warn_explicit("not enough SMs", UserWarning, "utils.py", 1, module="torch._inductor.utils")
    with pytest.raises(UserWarning):
        warnings.warn_explicit("ours", UserWarning, "loop.py", 1, module="kgops.maths.train.loop")
