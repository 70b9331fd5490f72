"""Emulated GPUs: what is marked `gpu` passes on each kind, steps are compiled for it, and claims are measured on it.

KGOPS_GPU_MACHINES names the machines: `make test-cuda` names all. By default it is one, and what takes minutes is left
out too. Triton's kernels are assembled and not run; on a real GPU the tests marked `triton` look at what they compute.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cuda_machine import ENVIRONMENT, PROJECT, consoles, machine_of_test, shown

MARKED = sorted(
    str(path.relative_to(PROJECT))
    for path in (PROJECT / "tests").rglob("test_*.py")
    if path != Path(__file__) and re.search(r"\bmark\.gpu\b", path.read_text(encoding="utf-8"))
)


NAMED = os.environ.get("KGOPS_GPU_MACHINES", "")


def run_python(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """By torch's CUDA build, which `make test-cuda` sets up."""
    command = [str(ENVIRONMENT / "bin" / "python"), *words]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMED.split() or ["t4"])
def test_all_that_is_marked_passes_on_this_machine(tmp_path: Path, name: str) -> None:
    machine = machine_of_test(tmp_path, name)
    marked = ("-m", "gpu" if NAMED else "gpu and not long")
    words = ("-m", "pytest", "-q", *marked, "-rs", "-p", "no:cacheprovider", *MARKED)
    done = run_python(machine.environment(), *words)
    assert done.returncode == 0, done.stdout[-4_000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("Triton" in line for line in skipped), skipped


PRECISIONS = {"t4": "fp16", "a100": "fp32", "h200": "bf16"}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMED.split() or ["t4"] if name in PRECISIONS])
@pytest.mark.parametrize("workload", ["train", "regress"])
def test_a_step_is_compiled_for_this_gpu_and_no_part_runs_eagerly(
    tmp_path: Path, workload: str, name: str
) -> None:
    if not (ENVIRONMENT / "triton").exists():
        pytest.skip("requires torch's CUDA build and Triton: `make test-cuda` sets them up")
    machine, log = shown(tmp_path, name), tmp_path / "log"
    precision = PRECISIONS[name]
    done = run_python(machine.triton(log), "tests/cuda/compiled_step.py", workload, precision)
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


SCRIPT = """
import json, os, torch
from torch.nn.functional import conv2d
found = {}
for kind in ("float16", "bfloat16"):
    images, kernels = torch.randn(4, 3, 40, 40), torch.randn(16, 3, 3, 3)
    ours = [x.cuda().requires_grad_() for x in (images, kernels)]
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", dtype=getattr(torch, kind)):
        made = conv2d(*ours, padding=1)
    made.backward(torch.ones_like(made))
    peak = torch.cuda.max_memory_allocated()
    apart = (made.detach().float().cpu() - conv2d(images, kernels, padding=1)).abs().max()
    gradients = [float((x.grad != 0).float().mean()) for x in ours]
    found[kind] = [peak, float(apart), min(gradients)]
    del made, ours
print(json.dumps(found), flush=True)
os._exit(0)  # autograd's thread may still let go of the last step, and is not to want the interpreter when that ends
"""


def test_a_convolution_in_bf16_takes_as_much_as_one_in_fp16(tmp_path: Path) -> None:
    done = run_python(machine_of_test(tmp_path, "a100").environment(), "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    half, brain = json.loads(done.stdout)["float16"], json.loads(done.stdout)["bfloat16"]
    assert brain[0] == half[0]
    assert half[1] < 0.1 and brain[1] < 0.3  # as far as their numbers reach
    assert min(half[2], brain[2]) > 0.9  # gradients were computed


# Table → its results without rounding, and its place among the documents.
TABLES = {"a": ("same loss", [0]), "b": ("same scores", [1, 2])}


@pytest.mark.long
@pytest.mark.parametrize("letter", TABLES)
def test_every_row_that_needs_a_gpu_is_measured_on_it(tmp_path: Path, kgops_home: Path, letter: str) -> None:
    with consoles(tmp_path, kgops_home) as open_on:
        done = open_on("t4")("bench", "claims", "--quick", "--only", letter, "--json")
        assert done.code == 0, done.err
        page: dict[str, Any] = done.json()
    assert page["machine"] == ["Tesla T4"]
    exact, places = TABLES[letter]
    for row in (row for place in places for row in page["documents"][place]["rows"]):
        if row["why"] != "4 GPUs":
            assert row["why"] == "" and row["seconds"] > 0 and row["mib"] > 0, row
    (table,) = (one for one in page["tables"] if one["letter"] == letter)
    options = {line["variant"]: line for line in table["options"]}
    # What rounds nothing gives the same values, and fp16 rounds a little.
    assert options["+ cleanup"]["results"] == options["+ checkpointing"]["results"] == exact
    assert all(options[name]["mib"] for name in ("+ fp16", "+ fp16 + checkpointing"))
    if letter == "b":
        assert options["+ fp16"]["results"].startswith("scores ±0.")
    else:
        assert options["+ fp16"]["memory"]["median"] > 1.05
        assert options["+ fp16 + checkpointing"]["memory"]["median"] > 1.05
