"""What was applied of each option: the lines of a run's log that people search, and the booleans of its config.json."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driving import Console
from tracing import flags

from kgops.jobs.option_reading import DOCUMENTED, option_line
from kgops.maths.regress.made_flights import Sky, make_flights

SMALL = ("--embedding-dim", "16", "--output-channels", "2", "--num-epochs", "1", "--device", "cpu")
TRAIN = ("run", "train", "--dataset", "nations", *SMALL)
REQUESTED = ("--use-mixed-precision", "--use-gradient-checkpointing")
PAGE = (Path(__file__).parents[2] / "docs" / "MIGRATING.md").read_text()
MIXED, CHECKPOINTING, CLEANUP = "mixed precision: ", "gradient checkpointing: ", "memory cleanup: "


def logged(run_cli: Console, run: str, label: str) -> list[str]:
    found = run_cli.must("logs", run, "--grep", f"^{label}")
    return found.out.splitlines()


def options(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results" / "config.json").read_text())["optimizations"]
    return found


def documented(folder: Path) -> dict[str, bool]:
    """Applied, and requested, in the order of the names."""
    return {name: value for name, value in options(folder).items() if isinstance(value, bool)}


def test_a_trainings_log_and_config_say_what_was_applied_and_requested(run_cli: Console) -> None:
    assert run_cli(*TRAIN, *REQUESTED).code == 0
    assert documented(run_cli.folder(1)) == {
        "use_mixed_precision": False,
        "use_mixed_precision_requested": True,
        "use_gradient_checkpointing": True,
        "use_gradient_checkpointing_requested": True,
        "enable_memory_cleanup": False,
        "enable_memory_cleanup_requested": True,
    }
    assert logged(run_cli, "1", MIXED) == [MIXED + "off (fp32, requested auto: no CUDA device)"]
    assert logged(run_cli, "1", CHECKPOINTING) == [CHECKPOINTING + "on"]
    assert logged(run_cli, "1", CLEANUP) == [CLEANUP + "off (no CUDA device)"]
    for label in (MIXED, CHECKPOINTING, CLEANUP):
        (line,) = logged(run_cli, "1", label)
        assert f"`{line}`" in PAGE, "docs/MIGRATING.md says which lines there are"
    told = {option["name"] for option in run_cli.show(1)["option"]}
    lines = run_cli("logs", "1").out
    for name in told - {"precision"}:
        assert f"\n{name.replace('_', ' ')}: " in f"\n{lines}", name


def test_a_tracing_logs_a_line_for_each_option(run_cli: Console, trained: Path) -> None:
    test = ("--test-triple", "usa", "embassy", "china", "--disable-memory-cleanup")
    model = ("--model-path", str(trained / "final_model.pt"), *flags(["train"]), "--device", "cpu")
    run_cli.must("run", "tracin", *model, *test, "--precision", "bf16", *REQUESTED[1:])
    assert logged(run_cli, "1", MIXED) == [MIXED + "on (bf16)"]
    (line,) = logged(run_cli, "1", CHECKPOINTING)
    assert line.startswith(CHECKPOINTING + "off (requested on: TracIn has no backward pass")
    assert logged(run_cli, "1", CLEANUP) == [CLEANUP + "off"]


def test_pykeens_engine_logs_and_writes_what_its_pipeline_applied(run_cli: Console) -> None:
    pykeen = ("--engine", "pykeen", "--model", "TransE", "--embedding-dim", "16", "--num-epochs", "1")
    run_cli.must("run", "train", "--dataset", "nations", *pykeen, "--device", "cpu", *REQUESTED)
    (line,) = logged(run_cli, "1", MIXED)
    assert line == MIXED + "off (fp32, requested auto: PyKEEN's pipeline trains in float32)"
    (line,) = logged(run_cli, "1", CHECKPOINTING)
    assert line.startswith(CHECKPOINTING + "off (requested on: PyKEEN's pipeline has no such")
    assert logged(run_cli, "1", CLEANUP) == [CLEANUP + "off (no CUDA device)"]
    found = documented(run_cli.folder(1))
    for name in DOCUMENTED:
        assert (found[name], found[f"{name}_requested"]) == (False, True), name


def test_a_regression_logs_and_writes_the_same(run_cli: Console, tmp_path: Path) -> None:
    make_flights(tmp_path / "flights", 3, Sky(frames=24, size=16))
    given = ("--epochs", "1", "--no_pretrain", "--device", "cpu", "--gradient_checkpointing")
    run_cli.must("run", "regress", "--data_directory", tmp_path / "flights", *given, "--precision", "bf16")
    applied = options(run_cli.folder(1))["precision"]["applied"]  # bf16 where the CPU has it
    (line,) = logged(run_cli, "1", MIXED)
    assert line.startswith(MIXED + ("on (bf16" if applied == "bf16" else "off (fp32, requested bf16: "))
    assert logged(run_cli, "1", CHECKPOINTING) == [CHECKPOINTING + "on (frame by frame)"]
    assert logged(run_cli, "1", CLEANUP) == [CLEANUP + "off (no CUDA device)"]
    found = documented(run_cli.folder(1))
    assert [found[name] for name in DOCUMENTED] == [applied == "bf16", True, False]


def test_after_a_fallback_config_keeps_apart_what_was_asked_and_what_ran(
    run_cli: Console, tmp_path: Path
) -> None:
    """The worker as the supervisor starts it after an out-of-memory."""
    job = tmp_path / "job.toml"
    job.write_text(
        'workload = "train"\n[train]\ndataset = "nations"\nembedding_dim = 16\noutput_channels = 2\n'
        'num_epochs = 1\ndevice = "cpu"\n[options]\nbatch_size = 256\n'
    )
    changed = {"gradient_checkpointing": True, "batch_size": 128}
    env = run_cli.environment({"KGOPS_SETTINGS": json.dumps(changed)})
    argv = [sys.executable, "-P", "-m", "kgops.maths.train.worker", str(job)]
    done = subprocess.run(argv, cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = options(tmp_path)
    assert (found["batch_size"]["requested"], found["batch_size"]["applied"]) == (256, 128)
    assert found["use_gradient_checkpointing"] and not found["use_gradient_checkpointing_requested"]
    assert found["gradient_checkpointing"]["reason"] == "an earlier attempt ran out of memory"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (("precision", "fp16", "fp16", None), "mixed precision: on (fp16)"),
        (("precision", "auto", "bf16", None), "mixed precision: on (bf16)"),
        (("precision", "tf32", "tf32", None), "mixed precision: off (tf32)"),
        (
            ("precision", "bf16", "fp16", "bf16 needs compute capability 8.0"),
            "mixed precision: on (fp16, requested bf16: bf16 needs compute capability 8.0)",
        ),
        (("gradient_checkpointing", False, "off", None), "gradient checkpointing: off"),
        (
            ("memory_cleanup", True, "on", "gave back 3 MiB, 1 time"),
            "memory cleanup: on (gave back 3 MiB, 1 time)",
        ),
        (
            ("memory_cleanup", True, "off", "no CUDA device"),
            "memory cleanup: off (requested on: no CUDA device)",
        ),
        (("block", "auto", 256, None), "block: 256"),
        (("compile", "default", "off", "a\nb"), "compile: off (requested default: a b)"),
    ],
)
def test_a_line_has_the_reason_where_requested_and_applied_differ(
    told: tuple[str, Any, Any, str | None], line: str
) -> None:
    assert option_line(*told) == line
