"""Benchmarks and `make gpu-check` keep what they measured, compare like with like, and say what they could not do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from driving import Console, patience

from benchmarks import gpu, predict
from benchmarks import tracin as bench
from benchmarks.lds import spearman
from benchmarks.regress import LEAST_R2, MOST_S, Setting, measure
from kgops.maths.graphs.triples import read_graph

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_A_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@WITHOUT_A_GPU
def test_without_a_gpu_its_benchmark_says_so_in_one_line_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert gpu.main(["--store"]) == 1
    (told,) = capsys.readouterr().out.splitlines()
    assert "no GPU to measure" in told
    if torch.version.cuda is None:
        assert "the installed torch is a CPU build: install a CUDA build" in told


def test_benchmarks_import_where_pykeen_is_missing() -> None:
    code = (
        "import sys\nsys.modules['pykeen'] = None\n"
        "import benchmarks.gpu, benchmarks.train_step, benchmarks.train"
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


def test_predictions_are_measured_beside_pykeen_and_bare_products(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "small"
    data.mkdir()
    for name, count in (("train", 300), ("valid", 20), ("test", 20)):
        rows = (f"e{i % 60}\tr{i % 3}\te{(7 * i + i // 60) % 60}" for i in range(count))
        (data / f"{name}.txt").write_text("\n".join(rows) + "\n")
    predict.main(["--data", str(data), "--entities", "500", "--dim", "12", "--store"])
    told = capfd.readouterr()
    assert told.err == ""
    lines = (home / "benchmarks.jsonl").read_text().splitlines()
    kept = {one["name"]: one["value"] for one in map(json.loads, lines)}
    assert kept["predict_ranks_that_differ"] == 0
    assert f"{kept['predict_pairs_ratio']:.4g} x" in told.out


def test_each_architecture_is_told_by_its_r2_and_its_time_and_too_few_frames_miss_the_target(
    tmp_path: Path,
) -> None:
    lines = list(measure(tmp_path, ["cnn"], Setting(flights=3, frames=8, seeds=1)))
    assert [line.name for line in lines] == ["regress_r2_cnn", "regress_s_cnn"]
    r2, took = lines
    assert (r2.target, took.target) == (LEAST_R2, MOST_S)
    assert r2.value < LEAST_R2 and r2.reached is False  # from sixteen windows nobody learns
    assert 0 < took.value < MOST_S


def test_rank_correlation_is_scipys_ties_included() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = torch.Generator().manual_seed(0)
    for n in (3, 8, 21):
        a, b = (torch.randint(5, (6, n), generator=draw).double() for _ in range(2))
        a[:, 0], b[:, 0] = 9, 9
        truth = [stats.spearmanr(x, y).statistic for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        torch.testing.assert_close(spearman(a, b), torch.tensor(truth, dtype=torch.float64))
    assert torch.isnan(spearman(torch.ones(1, 4), torch.arange(4.0)[None])).all()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A graph of 30 entities as files."""
    draw = torch.Generator().manual_seed(0)
    columns = [torch.randint(n, (400,), generator=draw).tolist() for n in (30, 3, 30)]
    lines = sorted({f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(*columns, strict=True)})
    (tmp_path / "train.txt").write_text("".join(lines))
    (tmp_path / "test.txt").write_text("".join(lines[:25]))
    return tmp_path


SMALL = ("--dim", "32", "--triples", "64", "--quick")


def test_all_methods_run_and_are_shown_as_ratios_to_the_plain_pass(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--data", str(data), *SMALL, "--tests", "1", "3"]) == 0
    told = capsys.readouterr().out
    for name in ("kgops, factored", "PyKEEN's model", "vmap", "for each test"):
        assert name in told


def test_whole_of_a_graph_is_scored_and_says_what_it_took(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--data", str(data), *SMALL, "--full", "0.5"]) == 0
    told = capsys.readouterr().out
    many = len(read_graph(data / "train.txt").train)
    assert f"{many} training x 12 test triples" in told and "peak RSS" in told


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
    done = gpu_check("GPU_TESTS=tests/planning/test_reserved_memory.py")
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
    assert "no GPU to measure" in done.stdout  # the benchmarks come afterwards all the same
