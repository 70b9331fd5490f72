"""A matrix of runs that take turns says what an option does, and goes on where it was when it is killed."""

import signal
import sqlite3
from pathlib import Path

import pytest
from driving import Console, patience, wait_for

from kgops.errors import BadJob, Usage
from kgops.experiments.trial_result import ratios, spread_of
from kgops.experiments.variants import combinations, read_axis, variants
from kgops.jobs import toml
from kgops.workloads.job_files import read_job
from storage import benches
from storage.benches import Pair
from storage.database import open_reader

PYTHON = ("python3", "-I", "-S", "-c")
# Times its own work and says so, as a benchmark's command does. CPU time, so that no other work of this machine
# counts.
WORK = """
import json, os, time
begun = time.process_time()
while time.process_time() < begun + 0.2 + {work}:
    pass
values = {"bench_s": time.process_time() - begun, "bench_peak_mib": 10 * (1 + {work})}
with open(os.environ["KGOPS_EVENTS"], "a") as file:
    file.write(json.dumps({"event": "result", "at": time.time(), "metrics": values}) + chr(10))
"""


def job_of(console: Console, *command: str) -> Path:
    """A job of a command whose words have what is varied in braces."""
    path = console.cwd / "job.toml"
    path.write_text(toml.dumps({"workload": "exec", "exec": {"command": list(command)}}))
    return path


@pytest.fixture
def job(run_cli: Console) -> Path:
    return job_of(run_cli, *PYTHON, WORK)


def test_a_option_that_does_nothing_has_no_effect_and_a_slow_one_is_harmful(
    run_cli: Console, job: Path, conn: sqlite3.Connection
) -> None:
    done = run_cli.must("bench", "matrix", job, "--vary", "work=0,0.0,0.1", "--repeat", "3", "--json")
    first, nothing, slow = done.json()["row"]
    assert (first["variant"], first["verdict"]) == ("work=0", "baseline")
    assert nothing["verdict"] == "no effect"
    assert slow["verdict"] == "harmful"
    assert 0.5 < slow["speed"]["median"] < 0.8 and slow["speed"]["n"] == 3
    assert slow["memory"]["median"] == pytest.approx(1 / 1.1)
    assert run_cli("runs", "--tag", "bench-1", "--json").json()[0]["label"].startswith("bench 1: work=")


def test_rounds_on_other_data_are_not_compared(run_cli: Console) -> None:
    reads = (
        "n=$(cat count 2>/dev/null || echo 1); echo $((n + 1)) > count; echo {work} > /dev/null; "
        'printf \'{"event":"data","train":"%s:ab"}\\n\' $n >> $KGOPS_EVENTS'
    )
    job = job_of(run_cli, "sh", "-c", reads)
    done = run_cli("bench", "matrix", job, "--vary", "work=0,1", "--repeat", "2")
    assert done.code == 1
    assert (
        "the data of work=1 have changed since run 4 of this benchmark: training triples: 4 then, 5"
        in done.err
    )
    assert "--afresh" in done.err


def test_killed_half_way_it_goes_on_without_repeating_a_finished_pair(run_cli: Console, job: Path) -> None:
    asked = ("bench", "matrix", str(job), "--vary", "work=0,0.01,0.02", "--repeat", "3", "--json")
    child = run_cli.start(*asked)

    def some_pairs() -> list[Pair]:
        if not (run_cli.home / "kgops.db").exists():
            return []
        found = benches.pairs(open_reader(run_cli.home / "kgops.db"), 1)
        return found if len(found) >= 3 else []

    wait_for(some_pairs, "three finished pairs")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    before = benches.pairs(open_reader(run_cli.home / "kgops.db"), 1)
    assert 3 <= len(before) < 6
    done = run_cli.must(*asked)
    assert f"Resuming benchmark 1: {len(before)} of its pairs are finished." in done.err
    after = [Pair(**{**pair, "noted": tuple(pair["noted"])}) for pair in done.json()["pair"]]
    assert after[: len(before)] == before
    assert sorted((p.round, p.variant) for p in after) == [
        (number, f"work={work}") for number in (1, 2, 3) for work in ("0.01", "0.02")
    ]
    assert run_cli("runs", "--state", "running", "--json").json() == []
    # Finished, the same command measures again.
    assert run_cli(*asked[:-2], "1", "--json").json()["id"] == 2


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_that_is_ended_stops_the_run_that_is_going_on(
    run_cli: Console, ending: signal.Signals
) -> None:
    path = job_of(run_cli, "sleep", "{s}")
    child = run_cli.start("bench", "matrix", str(path), "--vary", "s=60,61")
    run_cli.running(
        wait_for(lambda: 1 if (run_cli.home / "kgops.db").exists() and run_cli.run(1) else 0, "a run")
    )
    other = run_cli("bench", "matrix", str(path), "--vary", "s=1,2")
    assert other.code == 2 and "another benchmark is running" in other.err
    child.send_signal(ending)
    _, err = child.communicate(timeout=patience())
    assert child.returncode == 130, err
    assert run_cli.row(1).state == "cancelled"


def test_what_a_variant_cannot_do_is_said_once_and_the_others_go_on(run_cli: Console) -> None:
    path = job_of(run_cli, "sh", "-c", "exit {code}")
    done = run_cli.must("bench", "matrix", path, "--vary", "code=0,3", "--repeat", "4", "--json")
    told = done.json()
    assert told["row"][1]["verdict"] == "cannot be tested here"
    assert "3" in told["row"][1]["why"]
    assert len(told["pair"]) == 1
    failing = run_cli("bench", "matrix", path, "--vary", "code=3,0", "--json")
    assert failing.code == 1
    assert "the baseline code=3 failed" in failing.err
    (listed,) = run_cli("bench", "show", "--json").json()
    assert listed["bench"] == [1, 2] and listed["state"] == "failed"
    assert "The newest benchmark failed." in run_cli("bench", "show", "code").out
    assert "Time: n/a." in run_cli("bench", "export", "2", "--to", "md").out


EPOCHS = """
import json, os, time
with open(os.environ["KGOPS_EVENTS"], "a") as file:
    for epoch in range({epochs}):
        seconds = 1.0 if epoch else 9.0
        told = {"event": "metric", "at": time.time(), "name": "epoch_seconds", "value": seconds, "step": epoch}
        file.write(json.dumps(told) + chr(10))
"""


@pytest.mark.parametrize(
    ("counts", "of", "seconds"), [("2,3", "an epoch", 1.0), ("1,3", "the whole run", None)]
)
def test_an_epoch_that_warms_up_is_not_compared_with_others(
    run_cli: Console, counts: str, of: str, seconds: float | None
) -> None:
    path = job_of(run_cli, *PYTHON, EPOCHS)
    done = run_cli.must("bench", "matrix", path, "--vary", f"epochs={counts}", "--repeat", "1", "--json")
    first, other = done.json()["row"]
    (pair,) = done.json()["pair"]
    assert first["seconds_of"] == other["seconds_of"] == of
    took = pair["baseline"]["took_s"], pair["measured"]["took_s"]
    expected = took if seconds is None else (seconds, seconds)
    assert (first["seconds"]["median"], other["seconds"]["median"]) == expected
    assert other["speed"]["median"] == pytest.approx(expected[0] / expected[1])
    assert f"time         {of}" in run_cli("bench", "show", "1").out


@pytest.mark.long
def test_a_pipeline_is_timed_as_a_whole(run_cli: Console) -> None:
    """What is varied may concern any of its stages, not training alone."""
    path = run_cli.cwd / "p.toml"
    path.write_text(
        'workload = "pipeline"\n[pipeline.train]\ndataset = "nations"\nembedding_dim = 16\noutput_channels = 2\n'
        'num_epochs = 2\nvalidate_every = 0\ndevice = "cpu"\n[pipeline.tracin]\n'
        'test_triple = "usa,embassy,uk"\ntop_k = 4\n'
    )
    done = run_cli.must("bench", "matrix", path, "--vary", "block=64,1024", "--repeat", "1", "--json")
    (pair,) = done.json()["pair"]
    for row, trial in zip(done.json()["row"], (pair["baseline"], pair["measured"]), strict=True):
        assert row["seconds_of"] == "the whole run"
        assert row["seconds"]["median"] == trial["took_s"]


def test_a_option_that_was_not_in_effect_is_named_with_the_reason(run_cli: Console) -> None:
    path = run_cli.cwd / "small.toml"
    path.write_text(
        'workload = "train"\n[train]\ndataset = "nations"\nnum_epochs = 2\nembedding_dim = 16\noutput_channels = 4\n'
    )
    done = run_cli.must(
        *("bench", "matrix", path, "--vary", "precision=fp32,fp16", "--repeat", "1", "--json"),
        env={"OMP_NUM_THREADS": "1"},
    )
    row = done.json()["row"][1]
    assert "fp16" in row["unapplied"]["precision"]
    assert row["seconds_of"] == "an epoch"
    assert row["memory_of"] == "resident set at its peak, above loaded libraries"
    assert row["quality"]["test_mrr"][0] == row["quality"]["test_mrr"][1]


def _pairs(baseline: list[float], variant: list[float]) -> list[Pair]:
    told = {"seconds_of": "x", "memory_of": "y", "memory_mib": None, "trouble": None}
    return [
        Pair(i, "v", 1, 2, {**told, "seconds": a}, {**told, "seconds": b}, None, (), 0.0)
        for i, (a, b) in enumerate(zip(baseline, variant, strict=True))
    ]


def test_ratios_are_taken_pair_by_pair() -> None:
    """A machine that slows down half-way changes both of a pair."""
    found = spread_of(ratios(_pairs([1, 10, 1, 10], [0.5, 5, 0.5, 5]), "speed"))
    assert found is not None
    assert (found.low, found.median, found.high, found.n) == (2, 2, 2, 4)
    assert ratios(_pairs([1], [1]), "memory") == []


def test_options_settings_and_placeholders_vary_and_nothing_else() -> None:
    train = read_job({"workload": "train", "train": {"dataset": "nations"}}, "test")
    axes = [read_axis("batch_size=64,128"), read_axis("learning_rate=0.1,0.2,0.3")]
    found = variants(train, axes)
    assert next(iter(found)) == "batch_size=64 learning_rate=0.1"
    assert len(found) == 6
    last = list(found.values())[-1]
    assert last.options["batch_size"] == 128 and last.settings["learning_rate"] == 0.3
    with pytest.raises(Usage, match="cannot be varied; did you mean 'batch_size'"):
        variants(train, [read_axis("batch_sise=1,2")])
    with pytest.raises(BadJob, match=r"options\.batch_size"):
        variants(train, [read_axis("batch_size=-1,2")])
    assert len(variants(train, [read_axis("batch_size=64")])) == 1
    with pytest.raises(Usage, match="one combination"):  # to compare
        combinations(train, [read_axis("batch_size=64")])
    with pytest.raises(Usage, match="has no values"):
        read_axis("batch_size")
    command = read_job({"workload": "exec", "exec": {"command": ["echo", "{x}"]}}, "test")
    with pytest.raises(Usage, match=r"no \{y\} to vary"):
        variants(command, [read_axis("y=1,2")])
    assert [job.settings["command"] for job in variants(command, [read_axis("x=a b,c")]).values()] == [
        ["echo", "a b"],
        ["echo", "c"],
    ]
