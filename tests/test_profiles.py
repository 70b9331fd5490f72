"""Profiles fill in what a person left open, on any machine, and say so in the record."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import Console

from kgops.jobs.job import read_job
from kgops.plans import profiles

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_profile_reads_and_opens_with_its_launch_command(path: Path) -> None:
    assert path.read_text().splitlines()[0] == f"# kgops run --profile {path.stem}"
    assert profiles.find(path.stem).summary


def test_a_lever_a_person_gave_stands_and_the_profile_fills_in_the_rest() -> None:
    table = {
        "workload": "train",
        "profile": "t4",
        "train": {"dataset": "nations"},
        "levers": {"precision": "fp32"},
    }
    job = profiles.apply(read_job(table, "a test"))
    assert job.levers["precision"] == "fp32"
    assert job.levers["compile"] == "default"


def test_a_profile_that_does_not_exist_names_those_that_do(run_cli: Console) -> None:
    done = run_cli("run", "--profile", "t5", "exec", "--", "true")
    assert done.code == 2
    assert "t4" in done.err


def test_all_problems_of_a_profile_file_are_told_at_once(run_cli: Console, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('sumary = "x"\n[levers]\nprecision = "fp8"\nbatchsize = 3\n[environment]\nA = 1\n')
    done = run_cli("run", "--profile", str(mine), "exec", "--", "true")
    assert done.code == 2
    for problem in ("sumary", "levers.precision", "levers.batchsize", "environment.A"):
        assert problem in done.err


@pytest.mark.slow
def test_the_t4_profile_runs_on_a_machine_without_a_card_and_reports_what_took_no_effect(
    run_cli: Console,
) -> None:
    done = run_cli("run", "train", "--dataset", "nations", "--num-epochs", "1", "--profile", "t4", "--json")
    assert done.code == 0, done.err
    levers = {lever["name"]: lever for lever in done.json()["lever"]}
    assert levers["compile"]["requested"] == "default"
    assert levers["compile"]["effective"] == "off"
    assert levers["compile"]["reason"] == "no CUDA device"
    assert levers["precision"]["requested"] == "fp16"
    assert levers["precision"]["effective"] == "fp32"
    assert levers["precision"]["reason"]
