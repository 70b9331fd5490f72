"""What `suggest` and `run --dry-run` show is what the started run does, over random command lines of all workloads.

All of them started: `make plan-equals-run N=200`.
"""

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import plan_equals_run
import pytest
from command_lines import Bed, Line, lines
from driving import Console
from nvml_standin import Machine, StandIn, a100, ask_child, cuda_build, t4
from plan_equals_run import ask

LINES, SEED = 80, 7


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One home for all of this module, in which a model of kgops' and one of PyKEEN's were trained."""
    folder = tmp_path_factory.mktemp("plans")
    made = Console(folder / "home", folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def bed(console: Console) -> Bed:
    return plan_equals_run.made_bed(console, console.cwd)


@pytest.fixture
def found(console: Console, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    monkeypatch.setenv("KGOPS_HOME", str(console.home))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(console.cwd)
    return list(lines(bed, LINES, SEED))


def test_suggest_the_dry_run_and_the_printed_command_are_one_plan(found: list[Line]) -> None:
    differences = [f"{line}\n    {one}" for line in found for one in plan_equals_run.compare_plans(line)]
    assert not differences, "\n".join(differences)


def test_a_started_run_applies_what_its_plan_shows(console: Console, found: list[Line]) -> None:
    chosen = plan_equals_run.covering(found, 9)
    workloads = {"train", "pykeen", "tracin", "regress", "pipeline", "predict", "explain", "sweep"}
    assert {line.workload for line in chosen} >= workloads
    differences = [f"{line}\n    {one}" for line, one in plan_equals_run.compare_started(console, chosen)]
    assert not differences, "\n".join(differences)


@pytest.fixture
def with_gpus(console: Console, bed: Bed, tmp_path: Path) -> dict[str, str]:
    """The environment of a console that sees an A100 and a T4, beside a CUDA build of torch."""
    build = cuda_build(tmp_path / "build")
    driver = StandIn(tmp_path)
    driver.show(Machine((a100(), t4())))
    paths = os.pathsep.join(filter(None, (str(build), os.environ.get("PYTHONPATH"))))
    return {**driver.environment(), "KGOPS_HOME": str(console.home), "PYTHONPATH": paths}


def test_with_gpus_suggest_and_the_dry_run_are_one_plan(with_gpus: dict[str, str], tmp_path: Path) -> None:
    assert ask_child(with_gpus, plan_equals_run.planned_gpus, str(tmp_path), 20, SEED) == []


def precisions(*words: str) -> tuple[object, ...]:
    """That a training and a regression would apply, by suggest and by the dry run."""
    shown = ask("suggest", *words, "--json").json()[0], ask("run", *words, "--dry-run", "--json").json()
    options = ({one["option"]: one["applied"] for one in told["options"]} for told in shown)
    return tuple(told["precision"] for told in options)


def precisions_of(many: list[tuple[str, ...]]) -> list[tuple[object, ...]]:
    return [precisions(*words) for words in many]


def test_without_a_profile_a_gpu_computes_in_its_own_format_and_a_cpu_in_fp32(
    with_gpus: dict[str, str], found: list[Line], bed: Bed
) -> None:
    shipped = ("colab_optimized", "colab_full_stable", "colab_optimized_full")
    jobs: list[tuple[str, ...]] = [
        ("train", "--dataset", "nations"),
        ("regress", "--data_directory", str(bed.flights)),
    ]
    jobs += [(*jobs[1], "--config", name) for name in shipped]
    by = (("--gpu", "1"), ("--gpu", "0"), ("--device", "cpu"))
    assert {precisions(*job) for job in jobs} == {("fp32", "fp32")}
    found_there = ask_child(with_gpus, precisions_of, [(*job, *flags) for job in jobs for flags in by])
    assert found_there == [("fp16", "fp16"), ("bf16", "bf16"), ("fp32", "fp32")] * len(jobs)


def test_a_run_repeated_keeps_who_chose_its_options(found: list[Line]) -> None:
    options = ask("run", "--again", "1", "--dry-run", "--json").json()["options"]
    assert {one["option"]: one["chosen_by"] for one in options}["precision"] == "profile cpu"


def test_what_would_not_start_is_said_by_the_plan_too(found: list[Line]) -> None:
    job = ("train", "--dataset", "nations", "--gpu-memory", "500")
    for words, code in ((("suggest", *job), 3), (("run", *job, "--dry-run"), 0)):
        told = ask(*words)
        assert told.code == code, told.err
        assert "would not start here: a GPU was requested" in told.out


def test_a_configuration_says_what_suggest_predicts_for_it(kgops_home: Path) -> None:
    about = files("kgops").joinpath("recipes", "colab_optimized.yaml").read_text()
    needs = {}
    for name in ("colab_optimized", "colab_full_stable", "colab_optimized_full"):
        (plan,) = ask("suggest", "regress", "--config", name, "--gpu", "t4", "--json").json()
        needs[name] = plan["estimate"]["total_mib"]
    told = [f"{need:,.0f}" for need in needs.values()]
    assert "predicts {} MiB here, {} for colab_full_stable and {} for".format(*told) in about
    again = ("--config", "colab_optimized", "--gradient_checkpointing")
    (small,) = ask("suggest", "regress", *again, "--gpu", "t4", "--json").json()
    assert small["estimate"]["total_mib"] < needs["colab_full_stable"] < needs["colab_optimized"]
