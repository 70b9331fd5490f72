"""A pipeline is one run of two halves, and its record says what each half took."""

import pytest
from driving import Console

from kgops.workloads.job_files import read_job


# tf32 becomes fp32 on every CPU, bf16 on those without the instructions: then both halves took the same.
@pytest.mark.parametrize("asked", ["bf16", "tf32"])
def test_options_of_both_halves_stand_beside_what_was_asked(run_cli: Console, asked: str) -> None:
    job = read_job(
        {
            "workload": "pipeline",
            "pipeline": {
                "train": {"dataset": "nations", "num_epochs": 1, "embedding_dim": 16, "device": "cpu"},
                "tracin": {"max_triples": 1, "top_k": 2, "device": "cpu"},
            },
            "options": {"precision": asked, "batch_size": 128, "entity_chunk": "auto", "block": 64},
        },
        "a test's job",
    )
    (run_cli.cwd / "job.toml").write_text(job.as_toml())
    run_cli.must("run", "job.toml")
    told = {option["name"]: option for option in run_cli.show(1)["option"]}
    precision = told["precision"]
    assert precision["requested"] == asked
    if precision["applied"] == "fp32":
        # Why the first half did not take it; the second was not asked.
        assert precision["reason"].startswith(
            ("this CPU has no bf16", "TF32 is a number format of CUDA GPUs")
        )
    else:
        assert (asked, precision["applied"]) == ("bf16", "bf16, then fp32")
        assert precision["reason"] == "first training, then TracIn"
    assert told["batch_size"]["applied"] == "128"  # TracIn has none, and does not take this one's place
    assert told["block"]["applied"] == "64"
    first, second = told["entity_chunk"]["applied"].split(", then ")
    assert int(first) != int(second)
