"""Benchmarks are started by one verb, keep what they measured with the machine it belongs to, and need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from driving import Console


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_benchmark_says_so_in_one_line_and_fails(run_cli: Console) -> None:
    done = run_cli.benchmark("gpu", "--store")
    assert (done.code, len(done.out.splitlines())) == (1, 1)
    assert "no GPU to measure" in done.out
    if torch.version.cuda is None:
        assert "the installed torch is a CPU build: install a CUDA build" in done.out


def test_benchmarks_import_where_pykeen_is_missing() -> None:
    code = (
        "import sys\nsys.modules['pykeen'] = None\n"
        "import benchmarks.gpu, kgops.maths.trials.train_step, benchmarks.train"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", ["tracin", "train"])
def test_a_folder_that_is_not_there_is_named_in_a_line_and_no_traceback(
    run_cli: Console, name: str, tmp_path: Path
) -> None:
    done = run_cli.benchmark(name, "--data", str(tmp_path / "nowhere"))
    assert done.code in (1, 2) and "Traceback" not in done.err
    (error,) = (line for line in done.err.splitlines() if line.startswith("Error: "))
    assert "nowhere" in error and "cannot be read" in error


@pytest.mark.slow
def test_predictions_are_measured_beside_pykeen_and_bare_products(
    run_cli: Console, home: Path, tmp_path: Path
) -> None:
    data = tmp_path / "small"
    data.mkdir()
    for name, count in (("train", 300), ("valid", 20), ("test", 20)):
        rows = (f"e{i % 60}\tr{i % 3}\te{(7 * i + i // 60) % 60}" for i in range(count))
        (data / f"{name}.txt").write_text("\n".join(rows) + "\n")
    done = run_cli.benchmark("predict", "--data", str(data), "--entities", "500", "--dim", "12", "--store")
    assert done.err == ""
    lines = (home / "benchmarks.jsonl").read_text().splitlines()
    kept = {one["name"]: one["value"] for one in map(json.loads, lines)}
    assert kept["predict_ranks_that_differ"] == 0
    assert f"{kept['predict_pairs_ratio']:.4g} x" in done.out
