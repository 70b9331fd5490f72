"""Whole runs on GPUs that nobody owns: every workload in every precision ends well there, and says what the CPU says.

KGOPS_GPU_MACHINES names the kinds of GPUs, by default one; `make test-cuda` names all.

The device of a run is what its worker used: where the stand-in's GPU computed nothing, a test here fails. What is
emulated and what is not: standin.h.
"""

import csv
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_machine import H200, T4, GpuConsole, consoles
from cuda_machine import SMALL as SMALL_GPU
from driving import wait_for

from kgops.maths.regress.made_flights import Sky, make_flights
from storage import influences, series
from storage.database import open_reader

On = Callable[[str], GpuConsole]
KINDS = os.environ.get("KGOPS_GPU_MACHINES", "t4").split()
STILL = ("--input-dropout", "0", "--feature-map-dropout", "0", "--output-dropout", "0")
SMALL = ("--embedding-dim", "32", "--output-channels", "8", "--batch-size", "256", "--entity-chunk", "2048")
TRAIN = ("run", "train", "--dataset", "nations", "--num-epochs", "2", "--validate-every", "1", *SMALL)


@pytest.fixture
def on(tmp_path: Path, kgops_home: Path) -> Iterator[On]:
    """`on("t4")`: a console there. All consoles of a test have one home."""
    with consoles(tmp_path, kgops_home) as open_on:
        yield open_on


def ended(console: GpuConsole, *command: str | Path, state: str = "succeeded") -> dict[str, Any]:
    done = console(*command, "--json")
    assert done.out, done.err
    run: dict[str, Any] = done.json()
    assert run["state"] == state, (run["reason"], done.err)
    return run


def on_gpu(run: dict[str, Any]) -> bool:
    """As its worker said, and as the driver saw: some of its memory lay on a GPU."""
    started = [event["body"] for event in run["event"] if event["kind"] == "started"]
    return all(str(one["device"]).startswith("cuda") for one in started) and (run["peak_gpu_mib"] or 0) > 0


def on_both(console: GpuConsole, *command: str | Path) -> list[dict[str, Any]]:
    """The same on the GPU and on the CPU."""
    runs = [ended(console, *command, "--device", device) for device in ("cuda", "cpu")]
    assert [on_gpu(run) for run in runs] == [True, False]
    return runs


def applied(run: dict[str, Any], name: str) -> str:
    return next(str(one["applied"]) for one in run["option"] if one["name"] == name)


def curve(console: GpuConsole, run: dict[str, Any], name: str) -> list[float]:
    with open_reader(console.home / "kgops.db") as conn:
        return [point.value for point in series.points(conn, run["id"], name) if point.value is not None]


def apart(here: list[float], there: list[float]) -> float:
    """The largest difference, relative to the value there."""
    assert len(here) == len(there)
    return max(abs(one - other) / abs(other) for one, other in zip(here, there, strict=True))


@pytest.mark.parametrize(
    ("machine", "precision", "flags"),
    [
        row
        for row in (
            ("t4", "fp16", ("--use-gradient-checkpointing",)),
            ("t4", "fp32", ("--cuda-graphs",)),
            ("a100", "tf32", ("--cuda-graphs",)),
            ("a100", "bf16", ()),
            ("h200", "bf16", ("--cuda-graphs",)),
            ("h200", "fp16", ("--grad-clip", "1")),
            ("mig", "fp16", ()),
        )
        if row[0] in KINDS
    ],
)
def test_training_learns_in_each_precision_on_the_gpu(
    on: On, machine: str, precision: str, flags: tuple[str, ...]
) -> None:
    console = on(machine)
    run = ended(console, *TRAIN, "--precision", precision, "--compile", "off", *flags)
    assert on_gpu(run)
    assert applied(run, "precision") == precision
    if "--cuda-graphs" in flags:
        assert applied(run, "cuda_graphs") == "on"
    losses = curve(console, run, "loss")
    assert losses[-1] < losses[0]


def test_curves_scores_and_the_strongest_influences_are_those_of_the_cpu(on: On) -> None:
    console = on("t4")
    # Adam would turn the rounding of a bias before a batch normalization, whose gradient is 0, into steps of full size.
    plain = ("--precision", "fp32", "--compile", "off", "--optimizer", "sgd", "--learning-rate", "0.1")
    runs = on_both(console, *TRAIN, *STILL, *plain)
    for name in ("loss", "valid_mrr"):
        here, there = (curve(console, run, name) for run in runs)
        assert apart(here, there) <= 1e-6
        print(f"{name} differs by {apart(here, there):.1e} at most")
    exact = ("--run", str(runs[0]["id"]), "--max-triples", "5", "--precision", "fp32")
    traced = on_both(console, "run", "tracin", *exact)
    with open_reader(console.home / "kgops.db") as conn:
        for test in influences.tests_of(conn, traced[0]["id"]):
            both = [influences.of_test(conn, run["id"], test.test) for run in traced]
            mine, theirs = ([(one.head, one.relation, one.tail) for one in which] for which in both)
            assert mine == theirs and len(mine) >= 50
            scores = [[one.score for one in which] for which in both]
            assert apart(*scores) <= 1e-6
            print(f"scores of {len(mine)} triples differ by {apart(*scores):.1e} at most")


def test_complex_is_trained_traced_and_explained_on_the_gpu_as_on_the_cpu(on: On) -> None:
    console = on("t4")
    quick = "train --dataset nations --num-epochs 3 --validate-every 1"
    own = "--model complex --rank 16 --loss 1vsall-ce --group-queries --batch-size 256"
    penalties = "--regularizer n3 --regularizer-weight 0.01 --relation-prediction 0.5"
    train = f"{quick} {own} {penalties}".split()
    plain = ("--precision", "fp32", "--optimizer", "adagrad", "--learning-rate", "0.1", "--cuda-graphs")
    runs = on_both(console, *train, *plain)
    assert applied(runs[0], "cuda_graphs") == "on"
    for name in ("loss", "valid_mrr"):
        assert apart(*(curve(console, run, name) for run in runs)) <= 1e-4
    asked = ("--run", str(runs[0]["id"]), "--triple", "usa", "embassy", "china")
    explained = on_both(console, "explain", *asked)
    for name, effect in (("explanations.csv", "effect"), ("paths.csv", "path_effect")):
        here, there = (
            [*csv.DictReader((console.folder(run["id"]) / "results" / name).read_text().splitlines())]
            for run in explained
        )
        assert len(here) == len(there) > 0, name
        assert apart(*([float(row[effect]) for row in rows] for rows in (here, there))) <= 1e-3, name
    ranked = on_both(console, "evaluate", *asked[:2], "--matrix", "embassy")
    assert 0 < ranked[0]["peak_gpu_mib"] <= ranked[0]["reserved_mib"]
    for name in ("matrix_auroc", "matrix_mrr", "frequency_auroc", "random_auroc"):
        assert apart(*([run["metric"][name]] for run in ranked)) <= 1e-3, name
    half = ended(console, *train, "--precision", "fp16", "--device", "cuda")
    assert applied(half, "precision") == "fp16" and on_gpu(half)


def test_every_way_of_tracin_runs_on_the_gpu(on: On) -> None:
    console = on("t4")
    trained = ended(console, *TRAIN, "--compile", "off")
    for flags in (
        ("--max-triples", "3", "--precision", "fp16", "--use-last-layers-only"),
        ("--max-triples", "3", "--loss", "one-to-n", "--both-directions"),
        ("--self-influence",),
    ):
        run = ended(console, "run", "tracin", "--run", str(trained["id"]), *flags)
        assert on_gpu(run)
        assert 0 < run["peak_gpu_mib"] <= run["reserved_mib"]


def test_two_gpus_score_together(on: On) -> None:
    console = on("two-t4")
    run = ended(console, *TRAIN, "--precision", "fp32", "--compile", "off")
    traced = ended(
        console, "run", "tracin", "--run", str(run["id"]), "--max-triples", "4", "--devices", "all"
    )
    assert on_gpu(traced)


@pytest.mark.parametrize(
    ("machine", "precision"),
    [row for row in (("t4", "fp16"), ("a100", "bf16"), ("h200", "fp32")) if row[0] in KINDS],
)
def test_regression_runs_on_the_gpu(on: On, tmp_path: Path, machine: str, precision: str) -> None:
    make_flights(tmp_path / "flights", 3, Sky(frames=24, size=16), seed=4)
    flags = ("--epochs", "1", "--batch-size", "8", "--microbatch", "4", "--temporal-frames", "3")
    data = ("--data-directory", tmp_path / "flights", "--precision", precision)
    run = ended(on(machine), "run", "regress", *data, *flags)
    assert on_gpu(run)
    assert applied(run, "precision") == precision


def test_pykeens_engine_runs_on_the_gpu(on: On) -> None:
    flags = ("--engine", "pykeen", "--model", "ConvE", "--embedding-dim", "16", "--num-epochs", "2")
    assert on_gpu(ended(on("t4"), "run", "train", "--dataset", "nations", *flags))


def test_a_training_resumed_on_the_gpu_has_the_curve_of_one_that_went_through(on: On) -> None:
    console = on("t4")
    long = (*TRAIN, "--precision", "fp32", "--compile", "off", "--num-epochs", "12", "--resume-every", "0")
    whole = ended(console, *long)
    number = int(console(*long, "--detach").out)
    wait_for(lambda: (console.show(number)["done"] or 0) > 0, "the first steps")
    assert console("stop", str(number)).code == 0
    stopped = console.ended(number)
    if stopped.state == "cancelled":  # else it had ended before
        assert console("resume", str(number)).code == 0
    resumed = console.show(number)
    assert resumed["state"] == "succeeded" and on_gpu(resumed)
    assert curve(console, resumed, "loss")[-1] == pytest.approx(curve(console, whole, "loss")[-1], rel=1e-6)
    assert resumed["metric"]["test_mrr"] == pytest.approx(whole["metric"]["test_mrr"], rel=1e-6)


def test_a_pipeline_trains_asks_and_traces_on_the_gpu_and_is_explained_there(on: On, tmp_path: Path) -> None:
    console = on("a100")
    job = tmp_path / "three.toml"
    job.write_text(
        'workload = "pipeline"\n[pipeline.train]\ndataset = "nations"\nnum_epochs = 2\n'
        '[pipeline.predict]\nhead = "usa"\nrelation = "embassy"\n[pipeline.tracin]\nmax_triples = 2\n'
    )
    run = ended(console, "run", job)
    assert on_gpu(run) and (Path(run["path"]) / "results" / "predictions.csv").exists()
    trained = ended(console, *TRAIN, "--compile", "off")
    asked = ("--run", str(trained["id"]), "--head", "usa", "--relation", "embassy")
    answered = on_both(console, "run", "predict", *asked)
    ranks = {(Path(run["path"]) / "results" / "predicted_triples.tsv").read_text() for run in answered}
    assert len(ranks) == 1
    because = ("--run", str(trained["id"]), "--triple", "usa", "embassy", "china", "--verify")
    assert on_gpu(ended(console, "run", "explain", *because))


def test_a_command_of_ones_own_finds_the_gpu_it_was_given(on: On) -> None:
    console = on("two-t4")
    script = (
        "import torch; torch.ones(9, device='cuda').sum().item(); print('count', torch.cuda.device_count())"
    )
    assert console("run", "exec", "--gpu", "1", "--", "python", "-c", script).code == 0
    assert "count 1" in console("logs", "1").out


def test_another_users_process_that_grows_leads_to_the_next_fallback(on: On) -> None:
    console = on("small")
    assert console.machine is not None
    heavy = ("--batch-size", "2048", "--embedding-dim", "128", "--output-channels", "32")
    long = ("run", "train", "--dataset", "kinships", "--num-epochs", "12", *heavy, "--compile", "off")
    number = int(console(*long, "--detach").out)
    wait_for(lambda: (console.show(number)["done"] or 0) > 0, "the first steps")
    free = 1300 - (console.show(number)["peak_gpu_mib"] or 0)
    console.machine.show(replace(SMALL_GPU, used_mib=int(free) + 200))
    run = console.ended(number)
    shown = console.show(number)
    assert "Traceback" not in console("logs", str(number)).out
    assert run.state in ("succeeded", "out_of_memory"), run.reason
    assert run.state == "succeeded" or re.search(r"\d", run.reason or "")
    steps = [one["settings"] for one in shown["attempt"]]
    assert len({str(one) for one in steps}) == len(steps)  # no attempt repeats one that ran out


def test_three_runs_share_one_gpu_and_another_users_process_holds_the_next_back(on: On) -> None:
    console = on("t4")
    started = [console.start(*TRAIN, "--compile", "off", "--label", f"run {n}") for n in range(3)]
    for child in started:
        child.communicate()
    assert [console.ended(number).state for number in (1, 2, 3)] == ["succeeded"] * 3
    assert console.machine is not None
    # Somebody else takes nearly all of it: the next run waits, and starts when that has ended.
    console.machine.show(replace(T4, used_mib=14_700))
    number = int(console(*TRAIN, "--compile", "off", "--detach").out)
    waiting = wait_for(
        lambda: next(
            (line for line in console("runs").out.splitlines() if "another user holds" in line), None
        ),
        "the reason",
    )
    assert "queued" in waiting
    console.machine.show(T4)
    console("runs")  # a queued run has no process of its own: whoever looks next starts it
    assert console.ended(number).state == "succeeded"


def test_a_gpu_lost_in_the_middle_ends_the_run_with_that_reason(on: On) -> None:
    console = on("h200")
    assert console.machine is not None
    number = int(console(*TRAIN, "--num-epochs", "500", "--compile", "off", "--detach").out)
    wait_for(lambda: console.show(number)["metric_value"] or console.show(number)["done"], "the first steps")
    console.machine.show(replace(H200, lost=15))
    run = console.ended(number)
    assert run.state == "failed"
    assert run.reason is not None and "CUDA" in run.reason
