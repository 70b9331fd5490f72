"""Every test that is marked `gpu` passes on emulated GPUs of each kind; only what needs Triton is left out.

KGOPS_GPU_MACHINES names the machines: `make test-cuda` names all. By default it is one, and what takes minutes is left
out too.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from cuda_machine import ENVIRONMENT, MACHINES, PROJECT, CudaMachine

MARKED = sorted(
    str(path.relative_to(PROJECT))
    for path in (PROJECT / "tests").rglob("test_*.py")
    if path != Path(__file__) and re.search(r"\bmark\.gpu\b", path.read_text(encoding="utf-8"))
)


NAMED = os.environ.get("KGOPS_GPU_MACHINES", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED.split() or ["t4"])
def test_all_that_is_marked_passes_on_this_machine(tmp_path: Path, name: str) -> None:
    if not (ENVIRONMENT / "bin" / "python").exists():
        pytest.skip("requires torch's CUDA build: `make test-cuda` sets it up")
    machine = CudaMachine(tmp_path, MACHINES[name])
    machine.show()
    command = [
        str(ENVIRONMENT / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu" if NAMED else "gpu and not long",
        "-rs",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, *MARKED],
        cwd=PROJECT,
        env=machine.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("Triton" in line for line in skipped), skipped
