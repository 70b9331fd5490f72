"""The regression worker: its files, its options told, and how it goes on after it was ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from driving import wait_for
from recording import assert_identical
from tiny_regression import weights

from kgops.maths.regress.flights import DATASETS
from kgops.maths.regress.made_flights import Sky, make_flights

JOB = """workload = "regress"
[regress]
data_directory = {data}
output_directory = {out}
save_name = "first"
epochs = {epochs}
resume_every = 0.05
early_stopping_patience = 0
device = "cpu"
left_out = ["hpc_mode"]
[options]
batch_size = 8
memory_optimized = true
temporal_frames = 3
{options}
"""


def worker(folder: Path, **change: Any) -> tuple[list[str], dict[str, str]]:
    folder.mkdir(exist_ok=True)
    data = folder.parent / "data"
    if not data.exists():
        make_flights(data, 3, Sky(frames=24, size=16))
    filled = {"epochs": 2, "options": "", **change}
    out = json.dumps(str(folder / "out"))
    (folder / "job.toml").write_text(JOB.format(data=json.dumps(str(data)), out=out, **filled))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return [sys.executable, "-P", "-m", "kgops.maths.regress.worker", "job.toml"], environment


def by_hand(folder: Path, **change: Any) -> tuple[int, list[dict[str, Any]]]:
    argv, environment = worker(folder, **change)
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def told(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def test_the_worker_leaves_its_files_and_says_what_became_of_every_option(tmp_path: Path) -> None:
    options = 'precision = "fp16"\nnum_workers = 4\ncuda_graphs = true\nmicrobatch = 3\ngradient_checkpointing = true'
    code, events = by_hand(tmp_path / "run", options=options)
    assert code == 0
    results = tmp_path / "run" / "results"
    kept = (
        *("config.json", "training_history.json", "test_results.json", "predictions.tsv"),
        *("best_model.pt", "pretrained_model.pt"),
    )
    for name in kept:
        assert (tmp_path / "run/out/first" / name).read_bytes() == (results / name).read_bytes(), name
    assert (results / "manifest.json").exists()
    config = json.loads((results / "config.json").read_text())
    assert config["model"]["channels"] == [32, 64, 128] and config["data"]["flights"][0] == "flight_01"
    found = {
        name: (o["applied"], o["reason"])
        for name, o in config["optimizations"].items()
        if isinstance(o, dict)
    }
    assert found["precision"][0] == "fp32" and "fp16 products" in found["precision"][1]
    assert found["gradient_checkpointing"] == ("on", "frame by frame")
    assert found["microbatch"] == (3, None)
    assert found["cuda_graphs"] == ("off", "regression has no such option")
    assert found["num_workers"][0] == 1
    (metrics,) = [event["metrics"] for event in told(events, "result")]
    judged = json.loads((results / "test_results.json").read_text())["final"]
    assert metrics["test_rmse"] == judged["model"]["rmse"]
    assert metrics["mean_predictor_rmse"] == judged["mean_predictor"]["rmse"]
    notes = [event["text"] for event in told(events, "note")]
    assert "left out of the configuration: hpc_mode." in notes
    assert any(note.startswith("On flight_03, which was held out,") for note in notes)
    rows = (results / "predictions.tsv").read_text().splitlines()
    assert len(rows) == 1 + judged["model"]["count"] and rows[1].startswith("final\tflight_03\t")


def test_a_worker_ended_in_the_middle_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert by_hand(whole, epochs=6)[0] == 0
    argv, environment = worker(cut, epochs=6)
    with subprocess.Popen(argv, cwd=cut, env=environment, stdout=subprocess.PIPE) as process:
        wait_for(lambda: list(cut.glob("results/checkpoints/resume_000000[2-5]_*.pt")), "a second checkpoint")
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (cut / "results" / "manifest.json").exists()
    code, events = by_hand(cut, epochs=6)
    assert code == 0 and any("resumed in stage" in event["text"] for event in told(events, "note"))
    for name in ("pretrained_model.pt", "best_model.pt"):
        assert_identical(weights(cut / "results" / name), weights(whole / "results" / name))


def test_bad_flights_fail_the_worker_with_their_files_and_reasons(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "bad.npz").touch()
    columns: dict[str, Any] = dict.fromkeys(DATASETS[1:], np.arange(2.0))
    np.savez(data / "short.npz", frames=np.ones((2, 8, 8)), **columns)
    code, events = by_hand(tmp_path / "run")
    assert code == 2
    (failed,) = told(events, "failed")
    assert f"{data / 'bad.npz'} is damaged" in failed["reason"]
    assert f"{data / 'short.npz'} has 2 frames, fewer than a window of 3" in failed["reason"]
