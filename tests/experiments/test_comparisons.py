"""Ways that take turns in one run: one works at a time, each with a time and a peak of its own, and is told truly."""

import json
import os
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from driving import patience

from kgops.errors import KgopsError
from kgops.experiments.comparison import Context, PairedComparison, run_comparison
from kgops.experiments.summary import rows
from kgops.jobs.job import Job
from kgops.settings import Home
from kgops.workloads.job_files import read_job
from storage import benches

ROOT = Path(__file__).parents[2]

VARIANTS = """
import json, os, pathlib, sys, time
sys.path.insert(0, {root!r})
import torch
from kgops.maths.trials.interleaved import run_trials
from kgops.maths.trials.variants import TrialResult, Untestable

def takes(seconds, mib):
    held = []
    def fill():  # before the clock is read: how long the kernel takes to give memory is not steady
        held.append(torch.ones(int(mib * 2**18)))
    def work(repetition):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
    def variant(trial):
        held.clear()
        measured = trial.measure(work, fill)
        return TrialResult(measured.seconds, measured.resident_mib, {{"loss": seconds}})
    return variant

def cannot(trial):
    raise Untestable("no such GPU")

def dies(trial):
    os._exit(3)

def fails(trial):
    raise ValueError("what it says")

run_trials({{"first": takes(0.1, 30), "same": takes(0.1, 30), "slow": takes(0.2, 60), "cannot": cannot, "dies": dies,
            "fails": fails}}, int(sys.argv[1]), trials=int(sys.argv[2]))
"""


LOCKSTEP = """
import os, sys, time
sys.path.insert(0, {root!r})
from kgops.maths.trials.interleaved import run_trials
from kgops.maths.trials.variants import TrialResult

def variant(name, dies_in=None):
    def work(repetition):
        if repetition == dies_in:
            os._exit(5)
        begun = time.monotonic_ns()
        time.sleep(0.002)
        os.write(1, f"{{name}} {{repetition}} {{begun}} {{time.monotonic_ns()}}\\n".encode())
    def trial_of(trial):
        measured = trial.measure(work)
        return TrialResult(measured.each(2), measured.resident_mib)
    return trial_of

run_trials({{"a": variant("a"), "b": variant("b"), "dies": variant("dies", 2)}}, 1, trials=1, repetitions=4)
"""


def test_one_way_works_at_a_time_and_nobody_is_a_part_ahead_of_another(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    environment = {**os.environ, "KGOPS_RUN_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", LOCKSTEP.format(root=str(ROOT))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 4 and ":" not in line]
    parts = sorted((int(begun), int(ended), name, int(part)) for name, part, begun, ended in lines)
    assert [part for *_, part in parts[:10]] == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert all(ended <= begun for (_, ended, *_), (begun, *_) in pairwise(parts))
    told = json.loads((tmp_path / "results" / "ways.json").read_text())
    assert {name: len(found) for name, found in told.items()} == {"a": 4, "b": 4, "dies": 1}
    assert told["dies"][0]["trouble"] == "its process ended with 5"
    # A process has one peak of memory: told once, not as often as it was timed.
    assert [part["memory_mib"] is None for part in told["a"]] == [False, True, True, True]


def _job(*command: str) -> Job:
    return read_job({"workload": "exec", "exec": {"command": list(command)}}, "test")


def test_ways_run_trials_in_one_run_each_with_a_time_and_a_peak_of_its_own(
    home: Path, conn: sqlite3.Connection
) -> None:
    job = _job(sys.executable, "-c", VARIANTS.format(root=str(ROOT)), "{round}", "{turns}")
    others = ("same", "slow", "cannot", "dies", "fails")
    ways = PairedComparison("ways", dict.fromkeys(("first", *others), job), 4, together=True, trials=2)
    bench = run_comparison(Context(Home(home), conn, lambda _: None), ways, "test")
    pairs = benches.pairs(conn, bench.id)
    by = {name: [p for p in pairs if p.variant == name] for name in others}
    assert [len(found) for found in by.values()] == [4, 4, 1, 1, 1]
    assert all(1.5 < p.measured["seconds"] / p.baseline["seconds"] < 2.5 for p in by["slow"])
    assert {(p.baseline["memory_mib"], p.measured["memory_mib"]) for p in by["slow"]} == {(30.0, 60.0)}
    for p in by["slow"]:
        before, after = (trial["metrics"]["resident_mib"] for trial in (p.baseline, p.measured))
        assert 25 < before < 40 < after < 80
    assert by["cannot"][0].measured["trouble"] == "no such GPU"
    assert by["dies"][0].measured["trouble"] == "its process ended with 3"
    assert by["fails"][0].measured["trouble"] == "it failed: ValueError: what it says"
    assert [p.variant_run for p in by["slow"]] == [1, 1, 2, 2]  # a run has two turns of each way
    assert len({p.measured["seconds"] for p in by["slow"]}) == 4  # every turn is timed by itself
    baseline = rows(conn, bench)[0]
    assert baseline.seconds is not None and baseline.seconds.n == 4


def test_a_command_that_says_nothing_ends_the_benchmark_with_its_run_named(
    home: Path, conn: sqlite3.Connection
) -> None:
    job = _job("true")
    comparison = PairedComparison("nothing", {"a": job, "b": job}, 3, together=True)
    with pytest.raises(KgopsError, match="no output") as caught:
        run_comparison(Context(Home(home), conn, lambda _: None), comparison, "test")
    assert "kgops logs 1" in (caught.value.hint or "")
