"""Profiles fill in what a person left open, on any machine, and say so in the record."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from driving import Console
from nvml_standin import Machine, StandIn, a100, t4

from kgops.gpus.facts import facts_of_known
from kgops.gpus.known import known_by_short_name
from kgops.planning import profiles
from kgops.planning.resolve import conflicts
from kgops.workloads.job_files import read_job

PROMISED = (
    *("auto", "cpu", "safe", "t4", "v100", "a10", "l4", "rtx-2080ti", "rtx-3090", "rtx-4090"),
    *("a100-40", "a100-80", "l40s", "h100", "h200", "b200"),
)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PROMISED)
def test_what_a_profile_says_of_its_gpus_is_what_plans_know_of_them(name: str) -> None:
    path = profiles.find(name).path
    known = [known_by_short_name(gpu) for gpu in tomllib.loads(path.read_text()).get("gpus", ())]
    head = path.read_text().partition("summary =")[0]
    for pattern, values in (
        (r"([\d,]+) MiB", {f"{gpu.memory_mib:,}" for gpu in known if gpu}),
        (r"([\d,]+) GB/s", {f"{gpu.bandwidth_gb_s:,}" for gpu in known if gpu}),
        (r"capability (\d+\.\d)", {"{}.{}".format(*gpu.compute_capability) for gpu in known if gpu}),
    ):
        assert set(re.findall(pattern, head)) <= values


@pytest.mark.parametrize("name", PROMISED)
def test_every_value_of_a_shipped_profile_has_its_reason_above_it(name: str) -> None:
    lines = profiles.find(name).path.read_text().splitlines()
    section = None
    for before, line in pairwise(lines):
        section = line if line.startswith("[") else section
        if section and "=" in line and not line.startswith("#"):
            assert before.startswith("# "), f"{name}: {line} has no reason"


@pytest.mark.parametrize("name", PROMISED)
def test_a_shipped_profile_breaks_no_rule_on_its_own_gpus_nor_where_no_gpu_is_known(name: str) -> None:
    profile = profiles.find(name)
    assert conflicts(profile, None) == []
    for short in profile.gpus:
        gpu = known_by_short_name(short)
        assert gpu is not None
        assert conflicts(profile, facts_of_known(gpu)) == []


def test_a_option_a_person_gave_stands_and_the_profile_fills_in_the_rest() -> None:
    table = {
        "workload": "train",
        "profile": "t4",
        "train": {"dataset": "nations"},
        "options": {"precision": "fp32"},
    }
    job = profiles.apply(read_job(table, "a test"))
    assert job.options["precision"] == "fp32"
    assert job.options["compile"] == "default"


def test_all_problems_of_a_profile_file_are_told_at_once(run_cli: Console, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('sumary = "x"\n[options]\nprecision = "fp8"\nbatchsize = 3\n[environment]\nA = 1\n')
    done = run_cli("run", "--profile", str(mine), "exec", "--", "true")
    assert done.code == 2
    for problem in ("sumary", "options.precision", "options.batchsize", "environment.A"):
        assert problem in done.err


# ---- commands ----


def test_profiles_are_listed_with_what_they_set_and_the_gpu_they_suit(
    run_cli: Console, standin: StandIn
) -> None:
    standin.show(Machine((a100(), t4(), t4("GPU-b"))))
    told = run_cli.must("profiles", env=standin.environment())
    rows = {line.split()[0]: line for line in told.out.splitlines()}
    assert set(PROMISED) < set(rows)
    assert "GPU 1, 2" in rows["t4"]
    assert "fp16" in rows["t4"]
    assert "GPU 0" in rows["a100-40"]
    assert "gpu" not in rows["h100"]
    assert "any machine" in rows["safe"]
    table = {row["name"]: row for row in run_cli("profiles", "--json", env=standin.environment()).json()}
    assert table["t4"]["suits"] == [1, 2]
    assert table["h100"]["suits"] == []
    assert table["cpu"]["suits"] is None
    assert table["t4"]["options"]["compile"] == "default"


def test_a_check_tells_all_that_rules_would_change_on_each_gpu_of_the_profile(
    run_cli: Console, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'summary = "x"\ngpus = ["t4", "p100"]\n[options]\nprecision = "bf16"\n'
        'compile = "reduce-overhead"\ngradient_checkpointing = true\n'
    )
    told = run_cli("profiles", "check", str(mine))
    assert told.code == 2
    assert "options.precision: bf16 → fp16" in told.err
    assert "options.precision: bf16 → fp32" in told.err
    assert "options.compile: reduce-overhead → default" in told.err
    assert "options.compile: reduce-overhead → off" in told.err
    assert "pytorch #154306" in told.err


def test_a_new_profile_is_a_sound_copy_with_its_own_launch_command_and_overwrites_nothing(
    run_cli: Console, tmp_path: Path
) -> None:
    told = run_cli.must("profiles", "new", "--from", "t4")
    made = tmp_path / "my-t4.toml"
    assert told.out == "my-t4.toml\n"
    assert made.read_text().startswith("# kgops run --profile my-t4.toml\n#\n# Tesla T4")
    original = tomllib.loads((ROOT / "profiles" / "t4.toml").read_text())
    assert tomllib.loads(made.read_text()) == original
    assert run_cli("profiles", "check", "my-t4.toml").out == "my-t4.toml: sound\n"
    again = run_cli("profiles", "new", "--from", "t4")
    assert again.code == 2
    assert "already exists" in again.err
    assert run_cli("profiles", "new", "--from", "t4", "elsewhere/x.toml").code == 0
    assert tomllib.loads((tmp_path / "elsewhere" / "x.toml").read_text()) == original
    assert run_cli("profiles", "new", "--from", "t4", "x.txt").code == 2
    spaced = run_cli("profiles", "new", "--from", "t4", "my t4.toml")
    assert "`kgops profiles check 'my t4.toml'`" in spaced.err and "--profile 'my t4.toml'`" in spaced.err
    assert (tmp_path / "my t4.toml").read_text().startswith("# kgops run --profile 'my t4.toml'\n")


# ---- runs ----


def _conflicting(folder: Path) -> Path:
    mine = folder / "mine.toml"
    mine.write_text('summary = "x"\n[options]\ncompile = "max-autotune"\ngradient_checkpointing = true\n')
    return mine


def test_a_dry_run_shows_what_rules_changed_and_is_still_a_job(run_cli: Console, tmp_path: Path) -> None:
    mine = _conflicting(tmp_path)
    told = run_cli.must("run", "train", "--dataset", "nations", "--dry-run", "--profile", str(mine))
    assert "# compile: max-autotune → off (" in told.out
    assert tomllib.loads(told.out)["options"]["compile"] == "default"


def test_the_record_keeps_who_chose_a_option_what_a_rule_made_of_it_and_why(
    run_cli: Console, tmp_path: Path
) -> None:
    mine = _conflicting(tmp_path)
    flags = ("--num-epochs", "1", "--entity-chunk", "7", "--profile", str(mine))
    done = run_cli.must("run", "train", "--dataset", "nations", *flags, "--json")
    assert "Note: compile: max-autotune → off" in done.err
    choices = {choice["option"]: choice for choice in done.json()["plan"]["choices"]}
    assert choices["entity_chunk"]["chosen_by"] == "person"
    assert choices["gradient_checkpointing"]["chosen_by"] == f"profile {mine}"
    assert choices["compile"]["requested"] == "max-autotune"
    assert choices["compile"]["applied"] == "off"
    assert "checkpointing" in choices["compile"]["reason"]
    assert "pytorch" in choices["compile"]["source"]
    page = run_cli("show", "1").out
    (row,) = [line for line in page.splitlines() if line.startswith("compile ")]
    assert "max-autotune" in row
    assert "off" in row  # and that the worker could not even compile stands beside it
    assert "checkpointing" in row
    assert "no CUDA device" in row


def test_the_rules_look_at_the_gpu_that_the_run_will_get(run_cli: Console, standin: StandIn) -> None:
    standin.show(Machine((a100(), t4())))
    job = ("run", "train", "--dataset", "nations", "--dry-run", "--profile", "a100-40")
    for gpu, precision in (("0", "bf16"), ("1", "fp16"), ("GPU-t4", "fp16"), ("auto", "bf16")):
        told = run_cli.must(*job, "--gpu", gpu, env=standin.environment())
        assert tomllib.loads(told.out)["options"]["precision"] == precision
