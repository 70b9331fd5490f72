"""Training as a person starts it: its files, its flags, its ends, its threads, and what it says of bad input."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console, wait_for
from recording import assert_identical, events
from tracing import files, flags

from kgops.errors import Usage
from kgops.maths.train.checkpoints import read_checkpoint
from kgops.maths.train.worker import train
from kgops.maths.worker.devices import _threads_spin
from kgops.maths.worker.entry import run_reporting_errors
from kgops.maths.worker.report import Reporter
from kgops.planning import resolve
from kgops.workloads.job_files import read_job
from kgops.workloads.train.models import ConvEConfig, step_gflop, threads_for

SMALL = ("--embedding-dim", "32", "--output-channels", "4", "--batch-size", "128", "--device", "cpu")
EPOCHS = 100  # long enough that a stop, seen within half a second, finds it in the middle
STEADY = ("--num-epochs", str(EPOCHS), "--resume-every", "0.05", "--checkpoint-frequency", "0", "--seed", "3")


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(folder / "final_model.pt").model)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A training never disturbed, by the worker alone: its folder and the events it printed."""
    folder = tmp_path_factory.mktemp("by-hand")
    told = subprocess.run(
        [sys.executable, "-m", "kgops", "run", "train", *flags(), *SMALL, *STEADY, "--dry-run"],
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "job.toml").write_text(told.stdout)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kgops.maths.train.worker", "job.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    return folder, [json.loads(line) for line in lines]


# --- what it leaves behind ------------------------------------------------------------------------


def test_training_on_nations_succeeds_with_the_files_the_group_knows(
    run_cli: Console, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "here"
    run_cli.must("run", "train", "--dataset", "nations", *SMALL, "--num-epochs", "3", "--output-dir", out)
    kept = (
        *("config.json", "best_model.pt", "final_model.pt", "training_history.json", "test_results.json"),
        "checkpoints/checkpoint_epoch_0000002.pt",
    )
    results = run_cli.folder(1) / "results"
    for name in kept:
        assert (out / name).read_bytes() == (results / name).read_bytes(), name
    assert not list(out.rglob("resume_*"))
    shown = run_cli.show(1)
    assert shown["state"] == "succeeded"
    test = json.loads((out / "test_results.json").read_text())
    assert shown["metric"]["test_mrr"] == pytest.approx(test["both"]["mrr"])
    assert set(test) == {"both", "head", "tail", "groups", "interval", "bootstrap_samples"}
    assert [e["epoch"] for e in json.loads((out / "training_history.json").read_text())] == [1, 2, 3]
    assert read_checkpoint(out / "best_model.pt").config["embedding_dim"] == 32
    assert "test_mrr" in run_cli("runs").out
    (out / "final_model.pt").write_bytes(b"overwritten by somebody")
    assert (results / "final_model.pt").stat().st_size > 1000


@pytest.mark.parametrize(
    ("device", "given", "reason"),
    [
        ("cuda", "", "device cuda was requested"),
        ("auto", "GPU-t4", "this run was given GPU-t4"),  # by its supervisor
    ],
)
def test_a_gpu_that_was_requested_or_given_and_is_not_there_fails_the_worker_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, given: str, reason: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("KGOPS_GPU", given)
    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    job = read_job({"workload": "train", "train": {**files(), "device": device}}, "a test")
    with pytest.raises(Usage) as caught:
        train(job, tmp_path, Reporter(tmp_path), lambda: False)  # type: ignore[arg-type]
    assert f"{reason}, and torch {torch.__version__} sees no CUDA device: " in caught.value.message


@pytest.mark.skipif(torch.version.cuda is not None, reason="the installed torch is built for CUDA")
def test_a_gpu_is_refused_before_the_start_where_torch_is_a_cpu_build(run_cli: Console) -> None:
    done = run_cli("run", "train", *flags(), "--device", "cuda")
    assert done.code == 2
    assert "a GPU was requested, but the installed torch is a CPU build" in done.err
    assert run_cli("runs", "--json").json() == []


# --- stopped, killed, by hand ---------------------------------------------------------------------


def test_the_worker_run_by_hand_prints_its_events(by_hand: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, printed = by_hand
    kinds = [event.get("event") for event in printed]
    assert kinds[0] == "started" and "option" in kinds and "metric" in kinds
    assert kinds[-2:] == ["result", "memory"]  # the peak is known when all is done
    assert printed[-2]["metrics"]["epochs"] == EPOCHS
    metrics = [event["name"] for event in printed if event.get("event") == "metric"]
    first_epoch = metrics[: metrics.index("loss") + 1]
    assert first_epoch == ["learning_rate", "epoch_seconds", "loss"]
    validation = metrics[metrics.index("valid_hits_at_1") :][:4]
    assert validation == ["valid_hits_at_1", "valid_hits_at_3", "valid_hits_at_10", "valid_mrr"]
    assert metrics[-1] == "test_mrr"
    notes = [event["text"] for event in printed if event.get("event") == "note"]
    assert any(note.startswith("using 1 of ") for note in notes)
    assert (folder / "results" / "manifest.json").exists()


def in_the_middle(run_cli: Console, number: int) -> dict[str, Any]:
    """The worker's start, once it has trained for a few epochs, saved where it is, and has many to go."""

    def look() -> dict[str, Any] | None:
        folder = run_cli.folder(number)
        path = folder / "events.jsonl"
        if not path.exists() or not path.read_bytes().endswith(b"\n"):
            return None
        far = [e["step"] for e in events(folder, "metric") if e["name"] == "loss"]
        assert not far or far[-1] < EPOCHS, "too quick for this test"
        is_saved = any((folder / "results").rglob("resume_*"))
        return events(folder, "started")[-1] if far and far[-1] >= 3 and is_saved else None

    return wait_for(look, f"run {number} to be in the middle of its training")


def test_a_training_whose_worker_is_killed_resumes_by_itself_to_the_same_weights(
    run_cli: Console, by_hand: tuple[Path, list[dict[str, Any]]]
) -> None:
    run_cli.must("run", "train", *flags(), *SMALL, *STEADY, "--detach")
    os.kill(in_the_middle(run_cli, 1)["pid"], signal.SIGKILL)
    run = run_cli.ended(1)
    assert (run.state, run.attempts) == ("succeeded", 2)
    folder = run_cli.folder(1)
    assert any(note["text"].startswith("resumed after epoch ") for note in events(folder, "note"))
    assert_identical(final_weights(folder / "results"), final_weights(by_hand[0] / "results"))


def test_a_training_stopped_in_the_middle_and_resumed_has_the_weights_of_one_never_stopped(
    run_cli: Console, by_hand: tuple[Path, list[dict[str, Any]]]
) -> None:
    run_cli("run", "train", *flags(), *SMALL, *STEADY, "--detach")
    in_the_middle(run_cli, 1)
    assert run_cli("stop", "1").code == 0
    assert run_cli.show(1)["state"] == "cancelled"
    run_cli.must("resume", "1")
    folder = run_cli.folder(1)
    assert any(note["text"].startswith("resumed after epoch ") for note in events(folder, "note"))
    assert_identical(final_weights(folder / "results"), final_weights(by_hand[0] / "results"))


# --- bad input ------------------------------------------------------------------------------------


def test_bad_triples_are_told_with_file_line_and_what_to_do(run_cli: Console, tmp_path: Path) -> None:
    (tmp_path / "good.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    (tmp_path / "bad.tsv").write_text("a\tr\tb\nb\tr\n")
    done = run_cli("run", "train", "--train", "good.tsv", "--test", "bad.tsv", "--device", "cpu")
    assert done.code == 1
    reason, last = run_cli.show(1)["reason"], done.out.splitlines()[-1]
    for text in (reason, last):
        assert f"{tmp_path / 'bad.tsv'}, line 2: expected 3 columns, found 2" in text
    assert "separated by single tabs" in reason and "separated by single tabs" in done.err
    assert "Traceback" not in done.err + (run_cli.folder(1) / "worker.log").read_text()


# --- names ----------------------------------------------------------------------------------------


def test_a_person_who_asks_for_compiling_without_a_compiler_is_told_and_the_run_succeeds(
    run_cli: Console,
) -> None:
    run_cli.must(
        *("run", "train", *flags(), *SMALL, "--num-epochs", "1", "--compile", "default"),
        env={"CUDA_VISIBLE_DEVICES": "", "CXX": "no-such-compiler"},
    )
    options = {option["name"]: option for option in events(run_cli.folder(1), "option")}
    assert options["compile"]["applied"] == "off"
    assert "no C++ compiler (no-such-compiler)" in options["compile"]["reason"]


def test_an_end_that_nobody_foresaw_is_reported_in_its_first_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))

    def lose_the_gpu() -> None:
        raise RuntimeError("CUDA error: unknown error\nSearch for `cudaErrorUnknown' in …")

    with pytest.raises(RuntimeError, match="CUDA error"):
        run_reporting_errors(Reporter(tmp_path), lose_the_gpu)
    (failed,) = events(tmp_path, "failed")
    assert failed["reason"] == "RuntimeError: CUDA error: unknown error"


def test_the_number_of_threads_depends_on_step_size_and_cores_alone() -> None:
    nations_small = step_gflop(ConvEConfig(14, 55, embedding_dim=32, output_channels=4), 128)
    fb15k237 = step_gflop(ConvEConfig(14_541, 237), 256)
    assert nations_small < 0.01 and 5 < fb15k237 < 10
    assert [threads_for(nations_small, cores) for cores in (1, 2, 64)] == [1, 1, 1]
    assert [threads_for(fb15k237, cores) for cores in (1, 2, 8)] == [1, 2, 8]


@pytest.mark.parametrize(
    ("exclusive", "theirs", "spins"),
    [
        (True, {}, "10000"),
        (True, {"GOMP_SPINCOUNT": "7"}, "7"),
        (True, {"GOMP_SPINCOUNT": "0"}, "0"),
        (True, {"OMP_WAIT_POLICY": "PASSIVE"}, None),
        (False, {}, None),
    ],
)
def test_threads_spin_where_a_run_has_the_cpus_to_itself_and_nobody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, exclusive: bool, theirs: dict[str, str], spins: str | None
) -> None:
    asked = {"workload": "train", "train": {"dataset": "nations"}, "gpu": {"exclusive": exclusive}}
    ours = resolve.resolve(read_job(asked, "a test"), lambda _: None).environment
    variables = {**theirs, **resolve.for_worker(ours, theirs)}
    assert variables.get("GOMP_SPINCOUNT") == spins
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):  # of a worker imported here
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _threads_spin() == (spins not in (None, "0"))


def test_the_worker_of_an_exclusive_run_gets_threads_that_spin(
    run_cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # of whoever tests
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    heavy = ("--batch-size", "256", "--embedding-dim", "200", "--num-epochs", "1")
    run = run_cli("run", "train", "--dataset", "nations", *heavy, "--exclusive", "--json").json()
    assert run["environment"]["variables"]["GOMP_SPINCOUNT"] == "10000"
    said = [event["text"] for event in events(run_cli.folder(run["id"]), "note")]
    (note,) = [text for text in said if re.match(r"using \d+ of", text)]
    assert ("which spin while they wait" in note) == (not note.startswith("using 1 "))
