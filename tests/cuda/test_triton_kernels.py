"""Compiling for a GPU, without one: Triton's kernels are generated and assembled for each capability, not run.

KGOPS_GPU_MACHINES names the machines, as in test_marked_tests.py. What the kernels compute is not looked at here: on a
real GPU the tests marked `triton` do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cuda_machine import ENVIRONMENT, MACHINES, PROJECT, CudaMachine

PRECISIONS = {"t4": "fp16", "a100": "fp32", "h200": "bf16"}
NAMED = os.environ.get("KGOPS_GPU_MACHINES", "t4").split()


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMED if name in PRECISIONS])
@pytest.mark.parametrize("workload", ["train", "regress"])
def test_a_step_is_compiled_for_this_gpu_and_no_part_runs_eagerly(
    tmp_path: Path, workload: str, name: str
) -> None:
    if not (ENVIRONMENT / "triton").exists():
        pytest.skip("requires torch's CUDA build and Triton: `make test-cuda` sets them up")
    machine, log = CudaMachine(tmp_path, MACHINES[name]), tmp_path / "log"
    machine.show()
    precision = PRECISIONS[name]
    done = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "tests/cuda/compiled_step.py", workload, precision],
        cwd=PROJECT,
        env=machine.triton(log),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("launched") == pytest.approx(told.pop("planned"), rel=0.15)
    assert told == {"compile": ["default", None], "precision": precision, "eager": {}}
    made = [json.loads(path.read_text()) for path in (tmp_path / "triton").rglob("triton_*.json")]
    major, minor = machine.gpus[0].capability
    assert {one["target"]["arch"] for one in made if "target" in one} == {10 * major + minor}
    assembled = {path.stem for path in (tmp_path / "triton").rglob("*.cubin")}
    named = re.findall(r"launch (triton_\w+)", log.read_text(errors="replace"))
    launched = {name[:150] for name in named}  # as Triton cuts the names of its files
    assert len(launched) > {"train": 20, "regress": 5}[workload]
    assert launched <= assembled
