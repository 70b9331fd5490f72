"""`kgops suggest`, and a run that is planned before it starts."""

import shlex
from pathlib import Path

import pytest
from driving import Console
from gpu_machine import TOO_LARGE
from tracing import files

from kgops.cli import run_workload
from kgops.cli.command_line import as_command
from kgops.jobs.job import Job
from storage import series
from storage.database import open_reader

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def test_a_plan_names_each_option_with_who_chose_it_and_ends_with_the_command(run_cli: Console) -> None:
    done = run_cli.must(
        "suggest", "train", "--dataset", "umls", "--gpu", "t4", "--batch-size", "512", "--details"
    )
    assert "\ntrain umls on Tesla T4 (14,909 MiB): fits an empty Tesla T4, " in done.out
    rows = {line.split()[0]: line for line in reversed(done.out.splitlines()) if line.strip()}
    assert "person" in rows["batch_size"]
    assert "fp16" in rows["precision"]
    assert "profile t4" in rows["precision"]
    assert "not yet" in rows["weights"]  # no metric of a GPU is claimed before it was measured
    assert done.out.rstrip().endswith(
        "on a machine with a Tesla T4:\nkgops train --dataset umls --batch-size 512 --profile t4"
    )


def test_json_has_the_same_and_the_parts_sum_to_the_total(run_cli: Console) -> None:
    (found,) = run_cli("suggest", "train", "--dataset", "nations", "--gpu", "a10", "--json").json()
    estimate = found["estimate"]
    assert sum(estimate["parts_mib"].values()) == pytest.approx(estimate["total_mib"])
    assert found["fits"] is True
    assert found["need_mib"] == pytest.approx(estimate["total_mib"] * (1 + found["margin"]))
    assert found["expected_s"] is None
    assert found["command"][:2] == ["kgops", "train"]
    options = {one["option"]: (one["applied"], one["chosen_by"]) for one in found["options"]}
    assert options["precision"] == ("bf16", "profile a10")  # what `auto` means there
    assert options["entity_chunk"] == (65536, "profile a10")  # as the worker reports it
    assert options["batch_size"] == (256, "default")
    assert all(one["reason"] for one in found["options"] if one["option"] != "expandable_segments")


def test_what_will_not_fit_ends_with_a_command_that_does(run_cli: Console) -> None:
    size = ("--embedding-dim", "1000", "--output-channels", "200", "--batch-size", "9000")
    kept = ("--checkpoint-frequency", "0")  # else the disk of the test has to take them
    mine = run_cli.cwd / "mine.toml"
    mine.write_text('summary = "x"\n[options]\nprecision = "fp16"\ngradient_checkpointing = false\n')
    own = ("--profile", str(mine), "--gpu", "t4")
    asked = ("train", "--dataset", "umls", "--loss", "1vsall-ce", *size, *kept, *own)
    done = run_cli("suggest", *asked)
    assert done.code == 3, done.out + done.err
    assert "not needed: activations fit" not in done.out
    assert "nearest change that fits: gradient_checkpointing on (exact)" in done.out
    again = shlex.split(done.out.splitlines()[-1])
    assert again[:2] == ["kgops", "train"]
    run_cli.must("suggest", *again[1:], "--gpu", "t4")


def test_a_job_that_cannot_fit_is_refused_with_the_numbers_and_force_starts_it(run_cli: Console) -> None:
    refused = run_cli("run", *TOO_LARGE)
    assert refused.code == 3
    assert "umls needs about" in refused.err
    assert "--force" in refused.err
    assert run_cli("runs", "--json").json() == []
    # The limit ends it in a moment; what matters is that it was started.
    forced = run_cli("run", *TOO_LARGE, "--force", "--memory-limit", "1500", env=ONE_THREAD)
    assert forced.code == 4, forced.err
    assert run_cli.show(1)["attempt"][0]["outcome"] == "out_of_memory"
    told = run_cli("suggest", *TOO_LARGE)
    assert told.code == 3
    assert "does not fit: needs" in told.out
    assert "\nonly --force starts it:\nkgops train" in told.out and told.out.endswith(" --force\n")


def test_each_run_is_scored_against_its_prediction(run_cli: Console) -> None:
    assert "No run has a predicted" in run_cli("suggest", "--accuracy").out
    run_cli.must("run", "train", "--dataset", "nations", "--num-epochs", "2", env=ONE_THREAD)
    run = run_cli.show(1)
    forecast = run["plan"]["forecast"]
    assert run["predicted_mib"] == pytest.approx(forecast["predicted_mib"])
    (row,) = run_cli("suggest", "--accuracy", "--json").json()
    assert row["runs"] == 1
    (told,) = run_cli("suggest", "train", "--dataset", "nations", "--json").json()
    assert told["expected_s"]["runs"] == 1
    conn = open_reader(run_cli.home / "kgops.db")
    epochs = [point.value for point in series.points(conn, 1, "epoch_seconds") if point.value is not None]
    conn.close()
    assert told["expected_s"]["s"] == pytest.approx(sum(epochs) / 2)  # the first is slower, and counts


@pytest.mark.parametrize(
    "words",
    [
        "kgops train --dataset umls --no-batch-norm --batch-size 64 --precision fp16 --use-gradient-checkpointing",
        "kgops train --train /a/x.txt --num-epochs 7 --disable-memory-cleanup --profile t4 --gpu 0 --exclusive",
        "kgops tracin --run 3 --top-k 5 --layers entity --layers conv --batch-size 32 --precision bf16",
        "kgops tracin --checkpoint-dir /c --train /a/x.txt --test-triple 'a b c' --no-preserve-test-edges",
    ],
)
def test_the_command_of_a_job_makes_that_job(words: str) -> None:
    job = _job_of(shlex.split(words))
    again = as_command(job)
    assert again is not None
    assert _job_of(again) == job


def _job_of(words: list[str]) -> Job:
    """What the command makes of its flags, the common ones included."""
    with run_workload.command_of(words[1]).make_context(words[1], words[2:]) as ctx:
        given = dict(ctx.params)
        job = run_workload.job_of(words[1], given)
    from kgops.cli.launching import with_flags

    return with_flags(job, {name: given.get(name) for name in _COMMON})


_COMMON = (
    *("profile", "label", "gpu", "gpu_memory", "exclusive", "attempts", "grace", "log_limit"),
    *("memory_limit", "allow_approximate", "on", "partition", "time", "gres", "cpus", "mem", "account"),
    *("tasks", "sbatch", "address"),
)


def test_expected_time_comes_from_runs_of_the_same_kind(run_cli: Console, trained: Path) -> None:
    data = [word for name, path in files().items() for word in (f"--{name}", path)]
    influences = ("tracin", "--checkpoint-dir", str(trained / "checkpoints"), *data, "--device", "cpu")
    for kind in (("--self-influence",), ("--self-influence",), ()):
        assert run_cli("run", *influences, *kind).code == 0
    for words, runs in (((*influences, "--self-influence"), 2), (influences, 1)):
        (plan,) = run_cli("suggest", *words, "--json").json()
        assert plan["expected_s"]["runs"] == runs
    predict = ("predict", "--checkpoint-dir", str(trained / "checkpoints"), *data, "--relation", "embassy")
    (before,) = run_cli("suggest", *predict, "--head", "usa", "--json").json()
    assert run_cli("run", *predict, "--head", "usa", "--device", "cpu").code == 0
    (after,) = run_cli("suggest", *predict, "--head", "usa", "--json").json()
    assert (before["expected_s"], after["expected_s"]["runs"]) == (None, 1)
