"""A pipeline is one run of two halves, and its record says what each half took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kgops.jobs.job import read_job


def test_levers_of_both_halves_stand_side_by_side_and_tracin_keeps_float32(tmp_path: Path) -> None:
    job = read_job(
        {
            "workload": "pipeline",
            "pipeline": {
                "train": {"dataset": "nations", "num_epochs": 1, "embedding_dim": 16, "device": "cpu"},
                "tracin": {"max_triples": 1, "top_k": 2, "device": "cpu"},
            },
            "levers": {"precision": "bf16", "batch_size": 128, "entity_chunk": "auto", "block": 64},
        },
        "a test's job",
    )
    (tmp_path / "job.toml").write_text(job.as_toml())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kgops.workers.pipeline", "job.toml"],
        cwd=tmp_path,
        env={**os.environ, "KGOPS_RUN_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    told = {event["name"]: event for event in events if event["event"] == "lever"}
    assert told["precision"]["requested"] == "bf16"
    # A processor without the instructions trains in fp32, and then there is nothing to tell apart.
    assert told["precision"]["effective"] in ("bf16, then fp32", "fp32")
    assert told["batch_size"]["effective"] == 128  # TracIn has none, and does not take this one's place
    assert told["block"]["effective"] == 64
    first, second = told["entity_chunk"]["effective"].split(", then ")
    assert int(first) != int(second)
