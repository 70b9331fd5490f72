"""A training that several processes share is the training of one process, whoever dies or stops meanwhile."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import training_together as together
from driving import Console, wait_for
from training_together import WAYS, StopAt

from kgops.errors import KgopsError
from kgops.jobs.job import Job, read_job
from kgops.models.conve import ConvE
from kgops.training.checkpoints import read_checkpoint
from kgops.training.data_parallel import SingleProcess
from kgops.training.loop import fit
from kgops.training.out_of_memory import describe, is_out_of_memory
from kgops.workers.entry import Stopped
from kgops.workers.report import Reporter
from kgops.workers.train import model_config, train_settings
from kgops.workers.train_ranks import lost_process, train_in_processes, trouble_file

torch.set_num_threads(1)

EPOCHS = 50  # long enough to be found in the middle
NEED_TWO = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="as many processes share a CPU as it has cores: here one"
)


def curve(history: list[dict[str, Any]]) -> torch.Tensor:
    """Losses and validations by epoch."""
    rows = [[entry["loss"], *_metrics(entry.get("valid"))] for entry in history]
    return torch.tensor(rows, dtype=torch.float64)


def _metrics(valid: dict[str, dict[str, float]] | None) -> list[float]:
    return [] if valid is None else [value for side in valid.values() for value in side.values()]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What each of two processes has found of all that `training_together` does, and where."""
    folder = tmp_path_factory.mktemp("together")
    together.write_graph(folder)
    graph = together.graph_in(folder)
    way = WAYS["float32 and Adam"]
    done, _, _ = together.train(
        way, graph, folder / "stopped-alone", SingleProcess(), stop=StopAt(together.STOPS_AT)
    )
    assert done.stopped == "requested"
    command = [sys.executable, "-P", together.__file__]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [
        subprocess.Popen([*command, str(which), "2", str(folder)], env=environment) for which in range(2)
    ]
    assert [process.wait(150) for process in processes] == [0, 0]
    return folder, [torch.load(folder / f"found-{which}.pt") for which in range(2)]


@pytest.mark.parametrize("name", WAYS)
def test_two_processes_have_the_curve_of_one_and_the_same_weights(
    name: str, shared: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, found = shared
    way = WAYS[name]
    done, weights, _ = together.train(way, together.graph_in(folder), tmp_path, SingleProcess())
    (history, first, _, _), (_, second, _, _) = (of_one[name] for of_one in found)
    torch.testing.assert_close(curve(history), curve(done.history), rtol=way.within, atol=way.within)
    assert all(torch.equal(first[weight], second[weight]) for weight in first)
    if way.dtype == torch.float64:
        for weight, value in weights.items():
            torch.testing.assert_close(first[weight], value, rtol=1e-8, atol=1e-10, msg=weight)


def test_only_the_first_process_writes_and_none_holds_more_than_one_alone(
    shared: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, found = shared
    name = "float64"
    _, _, alone = together.train(WAYS[name], together.graph_in(folder), tmp_path, SingleProcess())
    for which, (_, _, mib, artifacts) in enumerate(of_one[name] for of_one in found):
        assert artifacts == (alone.artifacts if which == 0 else [])
        assert all(mib[what] <= alone.mib[what] for what in alone.mib)
        assert mib["buffers"] < 0.75 * alone.mib["buffers"]  # what goes with the rows is halved


def test_all_stop_where_one_wishes_to_and_one_process_goes_on_as_if_it_had_been_alone(
    shared: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, found = shared
    assert [of_one["stopped"] for of_one in found] == ["requested", "requested"]
    graph, way = together.graph_in(folder), WAYS["float32 and Adam"]
    resumed, _, _ = together.train(way, graph, folder / "stopped", SingleProcess(), resume=True)
    whole, _, _ = together.train(way, graph, tmp_path, SingleProcess())
    torch.testing.assert_close(curve(resumed.history), curve(whole.history), rtol=1e-5, atol=1e-5)
    # And the other way round: what one had begun, two have ended.
    torch.testing.assert_close(curve(found[0]["taken up"]), curve(whole.history), rtol=1e-5, atol=1e-5)


def test_processes_whose_weights_differ_are_found_out_before_the_first_step(
    shared: tuple[Path, list[dict[str, Any]]],
) -> None:
    for of_one in shared[1]:
        assert "different weights before the first step" in of_one["different"]


# --- the worker -----------------------------------------------------------------------------------


def job_on(graph: Path, **settings: Any) -> Job:
    table = {
        **{name: str(graph / f"{name}.txt") for name in ("train", "valid")},
        **together.SMALL,
        "num_epochs": EPOCHS,
        "validate_every": 25,
        "checkpoint_frequency": 0,
        "resume_every": 0.05,
        "device": "cpu",
        **settings,
    }
    options = {"devices": 2, "batch_size": 512}
    return read_job({"workload": "train", "train": table, "options": options}, "the test")


def told(folder: Path, kind: str) -> list[dict[str, Any]]:
    file = folder / "events.jsonl"
    text = file.read_bytes() if file.exists() else b""
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def environment_of(pid: int) -> bytes:
    return b"\0" + Path(f"/proc/{pid}/environ").read_bytes()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    together.write_graph(folder)
    return folder


@pytest.fixture(scope="module")
def never_shared(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The history that one process has of the worker's training."""
    job, triples = job_on(graph), together.graph_in(graph)
    torch.manual_seed(job.settings["seed"])
    model = ConvE(model_config(job.settings, triples))
    settings = dataclasses.replace(train_settings(job), resume_every=60)
    return fit(model, triples, settings, tmp_path_factory.mktemp("alone"), together.Recorder()).history


class TwoProcesses:
    """Started by this process, as the worker starts them."""

    def __init__(self, folder: Path, job: Job, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.job = folder, job
        self._others = set(children_of(os.getpid()))
        patch.setenv("KGOPS_RUN_FOLDER", str(folder))
        patch.setenv("KGOPS_EVENTS", str(folder / "events.jsonl"))
        patch.setenv("OMP_NUM_THREADS", "1")

    def train(self, stop: Callable[[], bool]) -> dict[str, float]:
        (self.folder / "results").mkdir()
        return train_in_processes(self.job, self.folder, Reporter(self.folder), stop, ["cpu", "cpu"])

    def here(self) -> list[int]:
        """The first before the second."""
        return [child for child in children_of(os.getpid()) if child not in self._others]

    def are_in_the_middle(self) -> bool:
        return any(event["name"] == "loss" for event in told(self.folder, "metric"))


def test_a_process_that_is_killed_costs_nothing_but_time(
    graph: Path, never_shared: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoProcesses(tmp_path, job_on(graph), monkeypatch)
    killed: list[int] = []

    def kill_the_second_once() -> bool:
        is_saved = any((tmp_path / "results").rglob("resume_*.pt"))
        if not killed and is_saved and two.are_in_the_middle():
            killed.append(two.here()[1])
            os.kill(killed[0], signal.SIGKILL)
        return False

    metrics = two.train(kill_the_second_once)
    notes = [note["text"] for note in told(tmp_path, "note")]
    (lost,) = [note for note in notes if "lost" in note]
    assert lost.startswith("process 2 of 2 was lost to signal 9: all restart")
    assert any(note.startswith("resumed after epoch") for note in notes)
    assert not told(tmp_path, "failed")
    history = json.loads((tmp_path / "results" / "training_history.json").read_text())
    assert [entry["epoch"] for entry in history] == list(range(1, EPOCHS + 1))
    losses = [torch.tensor([entry["loss"] for entry in one]) for one in (history, never_shared)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    assert metrics["epochs"] == EPOCHS
    assert (tmp_path / "results" / "final_model.pt").exists()


def test_under_torchrun_too_a_process_that_is_killed_costs_nothing_but_time(
    graph: Path, never_shared: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "job.toml").write_text(job_on(graph).as_toml())
    command = [
        sys.executable,
        "-P",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr",
        "127.0.0.1",
    ]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1"]
    command += ["-m", "kgops.workers.train_rank", str(tmp_path / "job.toml")]
    own = {"KGOPS_RUN_FOLDER": str(tmp_path), "KGOPS_EVENTS": str(tmp_path / "events.jsonl")}
    with subprocess.Popen(command, env={**os.environ, **own, "OMP_NUM_THREADS": "1"}) as torchrun:
        wait_for(lambda: any(tmp_path.rglob("resume_*.pt")), "a point to resume from")
        (second,) = [pid for pid in children_of(torchrun.pid) if b"\0RANK=1\0" in environment_of(pid)]
        os.kill(second, signal.SIGKILL)
        assert torchrun.wait(150) == 0
    assert [event["device"] for event in told(tmp_path, "started")] == ["cpu", "cpu"]
    assert any(note["text"].startswith("resumed after epoch") for note in told(tmp_path, "note"))
    assert {e["applied"] for e in told(tmp_path, "option") if e["name"] == "devices"} == {2}
    history = json.loads((tmp_path / "results" / "training_history.json").read_text())
    losses = [torch.tensor([entry["loss"] for entry in one]) for one in (history, never_shared)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    assert (tmp_path / "results" / "manifest.json").exists()  # by the first of them: it is a whole run


def test_a_part_that_nobody_has_named_says_who_does(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(job_on(graph).as_toml())
    command = [sys.executable, "-P", "-m", "kgops.workers.train_rank", str(tmp_path / "job.toml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "torchrun --nproc-per-node 2 -m kgops.workers.train_rank job.toml" in done.stderr


def test_a_run_that_is_stopped_leaves_a_point_to_resume_from_and_no_process(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoProcesses(tmp_path, job_on(graph, resume_every=1000.0), monkeypatch)
    with pytest.raises(Stopped):
        two.train(two.are_in_the_middle)
    assert two.here() == []
    (point,) = (tmp_path / "results" / "checkpoints").glob("resume_*.pt")
    assert 1 <= read_checkpoint(point).epoch < EPOCHS


@NEED_TWO
def test_what_the_processes_cannot_do_fails_the_run_with_their_words(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("only\ttwo\n")
    job = job_on(graph, train=str(tmp_path / "train.txt"))
    (tmp_path / "job.toml").write_text(job.as_toml())
    own = {"KGOPS_RUN_FOLDER": str(tmp_path), "KGOPS_EVENTS": str(tmp_path / "events.jsonl")}
    command = [sys.executable, "-P", "-m", "kgops.workers.train", str(tmp_path / "job.toml")]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    assert done.returncode == 2
    (failed,) = told(tmp_path, "failed")
    assert "train.txt" in failed["reason"]
    assert done.stderr.count("train.txt") == 1  # said once, not by each of them


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ([75, -9], "process 2 of 2 was lost to signal 9"),
        ([0, -11], "process 2 of 2 was lost to signal 11"),
        ([75, 75], "process 1 of 2 has lost the others"),
    ],
)
def test_whoever_ended_first_is_named_as_lost(codes: list[int], says: str, tmp_path: Path) -> None:
    assert lost_process(tmp_path, codes) == says


def test_a_process_that_ends_by_a_fault_of_its_own_is_not_started_again(tmp_path: Path) -> None:
    with pytest.raises(KgopsError, match="process 2 of 2 ended with 1"):
        lost_process(tmp_path, [75, 1])


def test_a_process_without_memory_makes_the_run_one_that_ran_out_in_its_words(tmp_path: Path) -> None:
    says = "host memory ran out: 64 MiB more were asked for, the limit is 500 MiB"
    told = {"kind": "out_of_memory", "says": says, "hint": None, "code": 1}
    trouble_file(tmp_path, 0).write_text(json.dumps(told))
    with pytest.raises(MemoryError) as caught:
        lost_process(tmp_path, [1, -9])
    assert is_out_of_memory(caught.value)
    assert describe(caught.value) == says


def test_several_devices_are_refused_where_pykeen_trains(run_cli: Console) -> None:
    refused = run_cli("run", "train", "--dataset", "nations", "--engine", "pykeen", "--devices", "2")
    assert refused.code == 2
    assert "PyKEEN's pipeline trains on one device, found 2" in refused.err
