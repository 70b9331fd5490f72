"""Jobs that do not fit as asked end well on a small GPU, or are refused with numbers: drawn at random, forced and not.

KGOPS_OOM_JOBS is how many are drawn: 40 for a release, a few else, since each really trains.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from cuda_machine import consoles

from kgops.options.catalog import effect_of

JOBS = int(os.environ.get("KGOPS_OOM_JOBS", "2"))


def drawn(number: int) -> list[str]:
    draw = random.Random(number)
    heavy = ["--batch-size", str(draw.choice([2048, 4096, 8192]))]
    heavy += [
        "--output-channels",
        str(draw.choice([32, 64, 128])),
        "--embedding-dim",
        str(draw.choice([128, 200])),
    ]
    rest = ["--precision", draw.choice(["fp32", "fp16"]), "--loss", draw.choice(["kvsall-bce", "1vsall-ce"])]
    rest += draw.choice([[], ["--cuda-graphs"], ["--no-batch-norm"]])
    rest += draw.choice([["--force"], ["--force", "--allow-approximate"], []])
    return ["run", "train", "--dataset", "kinships", "--num-epochs", "1", "--compile", "off", *heavy, *rest]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(JOBS))
def test_a_job_that_does_not_fit_ends_well_or_is_refused_with_numbers(
    tmp_path: Path, kgops_home: Path, number: int
) -> None:
    with consoles(tmp_path, kgops_home) as on:
        console = on("small")
        done = console(*drawn(number), "--json")
        if not done.out:
            assert done.code == 3 and re.search(r"[\d,]+ MiB", done.err), done.err
            return
        run = done.json()
        log = console("logs", str(run["id"])).out
        assert "Traceback" not in log
        if run["state"] != "succeeded":
            assert run["state"] == "out_of_memory" and re.search(r"\d", run["reason"]), run["reason"]
        changed = [set(one["settings"]) for one in run["attempt"]]
        # What changes results comes last, and only where it was allowed.
        told = [any(effect_of(name) == "changes results" for name in settings) for settings in changed]
        assert told == sorted(told)
        assert not any(told) or "--allow-approximate" in drawn(number)
