"""Jobs that do not fit as asked end well on an emulated GPU, or are refused with numbers: drawn at random.

KGOPS_OOM_JOBS is how many are drawn: 40 for a release, one otherwise, since each really runs. Most are for a GPU of
1.4 GB; every tenth is for a T4, in whose memory the scores of one batch do not fit.
"""

import os
import random
import re
from pathlib import Path

import pytest
from cuda_machine import GpuConsole, consoles
from small_graph import write_wide_graph

from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.workloads.catalog import effect_of

JOBS = int(os.environ.get("KGOPS_OOM_JOBS", "1"))
MODEL = ("--embedding-dim", "32", "--output-channels", "4", "--num-epochs", "1", "--compile", "off")
Job = list[str | Path]


def train(draw: random.Random, folder: Path, console: GpuConsole) -> Job:
    """Long steps of a wide network: what takes memory are activations."""
    heavy = ["--batch-size", str(draw.choice([2048, 4096, 8192]))]
    heavy += ["--output-channels", str(draw.choice([32, 64, 128]))]
    heavy += ["--embedding-dim", str(draw.choice([128, 200]))]
    heavy += precision_and_loss(draw)
    heavy += draw.choice([[], ["--cuda-graphs"], ["--no-batch-norm"]])
    return ["run", "train", "--dataset", "kinships", "--num-epochs", "1", "--compile", "off", *heavy]


def train_wide(draw: random.Random, folder: Path, console: GpuConsole) -> Job:
    """Many entities: the plane of scores takes memory."""
    return wide(draw, folder, entities=60_000, triples=5000, batch=draw.choice([4096, 5000]))


def train_on_t4(draw: random.Random, folder: Path, console: GpuConsole) -> Job:
    return wide(draw, folder, entities=700_000, triples=6000, batch=6000)


def precision_and_loss(draw: random.Random) -> list[str]:
    return ["--precision", draw.choice(["fp32", "fp16"]), "--loss", draw.choice(["kvsall-bce", "1vsall-ce"])]


def wide(draw: random.Random, folder: Path, *, entities: int, triples: int, batch: int) -> Job:
    graph = write_wide_graph(folder, entities, train=triples, valid=25, test=25)
    chunk = ("--entity-chunk", str(entities), "--batch-size", str(batch))
    return ["run", "train", *graph, *MODEL, *chunk, *precision_and_loss(draw)]


def tracin(draw: random.Random, folder: Path, console: GpuConsole) -> Job:
    """Blocks of a graph of many entities, of a small training."""
    graph = write_wide_graph(folder, 60_000, train=5000, valid=25, test=25)
    small = ("--batch-size", "256", "--entity-chunk", "2048")
    trained = console("run", "train", *graph, *MODEL, *small, "--json").json()
    assert trained["state"] == "succeeded", trained["reason"]
    heavy = ["--batch-size", str(draw.choice([2048, 4096])), "--entity-chunk", "60000"]
    heavy += draw.choice(
        [["--loss", "one-to-n"], ["--loss", "train"], ["--loss", "one-to-n", "--both-directions"]]
    )
    some = ["--max-triples", "30"]
    heavy += draw.choice([some, [*some, "--precision", "fp16"], ["--self-influence"]])
    return ["run", "tracin", "--run", str(trained["id"]), *heavy]


def regress(draw: random.Random, folder: Path, console: GpuConsole) -> Job:
    """Large batches of windows of images."""
    make_flights(folder / "flights", 3, Sky(frames=36, size=96), seed=4)
    heavy = ["--batch-size", str(draw.choice([40, 56])), "--temporal-frames", str(draw.choice([5, 7]))]
    heavy += ["--precision", draw.choice(["fp32", "fp16"]), "--compile", "off"]
    plain = ["--epochs", "1", "--no-pretrain", "--no-loo"]
    return ["run", "regress", "--data-directory", folder / "flights", *heavy, *plain]


KINDS = (train, tracin, regress, train_wide)


@pytest.mark.parametrize("number", range(JOBS))
def test_a_job_that_does_not_fit_ends_well_or_is_refused_with_numbers(
    tmp_path: Path, kgops_home: Path, number: int
) -> None:
    draw, on_t4 = random.Random(number), number % 10 == 9
    kind = train_on_t4 if on_t4 else KINDS[number % len(KINDS)]
    with consoles(tmp_path, kgops_home) as on:
        console = on("t4" if on_t4 else "small")
        job = kind(draw, tmp_path, console)
        job += draw.choice([["--force"], ["--force", "--allow-approximate"], []])
        done = console(*job, "--json")
        if not done.out:
            assert done.code == 3 and re.search(r"[\d,]+ MiB", done.err), done.err
            print(f"OOM job {number} {kind.__name__}: refused")
            return
        run = done.json()
        log = console("logs", str(run["id"])).out
        assert "Traceback" not in log and "Traceback" not in done.err
        changed = [set(one["settings"]) for one in run["attempt"]]
        print(
            f"OOM job {number} {kind.__name__}: {run['state']} after {len(changed)} attempts {changed[-1:]}"
        )
        if run["state"] != "succeeded":
            assert run["state"] == "out_of_memory" and re.search(r"\d", run["reason"]), run["reason"]
        elif run["workload"] == "train":
            assert (Path(run["path"]) / "results" / "best_model.pt").exists()
        # What changes results comes last, and only where it was allowed.
        told = [any(effect_of(name) == "changes results" for name in settings) for settings in changed]
        assert told == sorted(told)
        assert not any(told) or "--allow-approximate" in job
