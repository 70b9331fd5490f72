"""The largest batch that a plan suggests fits an emulated GPU, and a tenth more fills what the plan may use.

A sample: `batch_judge.py` has forty settings, and counts how often a tenth more is too much.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cuda_machine import ENVIRONMENT, MACHINES, CudaMachine

JUDGE = Path(__file__).parent / "batch_judge.py"


@pytest.mark.slow
def test_the_largest_batch_suggested_fits_and_leaves_no_room_for_more(tmp_path: Path) -> None:
    if not (ENVIRONMENT / "bin" / "python").exists():
        pytest.skip("requires torch's CUDA build: `make test-cuda` sets it up")
    machine = CudaMachine(tmp_path, MACHINES["small"])
    machine.show()
    judge = [
        str(ENVIRONMENT / "bin" / "python"),
        str(JUDGE),
        "--settings",
        "2",
        "--seed",
        "1",
        "--at-least",
        "0",
    ]
    done = subprocess.run(judge, env=machine.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
