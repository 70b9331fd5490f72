"""A GPU reserves as much memory as was predicted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

JUDGE = Path(__file__).parents[1] / "cuda" / "memory_judge.py"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("workload", "over"), [("train", 0.10), ("tracin", float("inf")), ("regress", 0.10)], ids=str
)
def test_a_gpu_reserves_what_was_predicted(workload: str, over: float, tmp_path: Path) -> None:
    """Of TracIn, which keeps to a budget, no more; segments of small jobs are partly used."""
    found = tmp_path / "found.jsonl"
    # In a process of its own: what other tests have left on the GPU would count.
    judge = [sys.executable, str(JUDGE), "--only", workload, "--settings", "3", "--seed", "9"]
    done = subprocess.run([*judge, "--json", str(found)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for one in map(json.loads, found.read_text().splitlines()):
        assert -0.10 <= one["predicted_reserved"] / one["reserved"] - 1 <= over, one


@pytest.mark.gpu
@pytest.mark.parametrize("part", ["workspace", "optimizer"])
def test_a_prediction_without_a_part_of_the_memory_is_noticed(part: str) -> None:
    judge = [sys.executable, str(JUDGE), "--only", "train", "--settings", "1", "--seed", "9"]
    done = subprocess.run([*judge, "--without", part], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "0 settings could not be run" in done.stdout, done.stdout + done.stderr
