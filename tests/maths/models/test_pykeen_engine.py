"""PyKEEN's own pipeline as a supervised run: any of its models, with the same events and files."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console, wait_for
from recording import events

from kgops.errors import BadInput, BadJob, Usage
from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph
from kgops.workloads.job_files import read_job
from kgops.workloads.shared_options import TRIPLES
from kgops.workloads.train.job import TRAIN

SMALL = ("--embedding-dim", "16", "--batch-size", "256", "--device", "cpu")
PYKEEN = ("run", "train", "--engine", "pykeen", "--dataset", "nations", *SMALL)

# PyKEEN and what it loads warn of their own affairs, which are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


def job(model: str, **settings: Any) -> Job:
    small = {"embedding_dim": 16, "num_epochs": 3, "validate_every": 0, "learning_rate": 0.02}
    table = {"dataset": "nations", "engine": "pykeen", "model": model, **small, "device": "cpu", **settings}
    options = {"batch_size": 256, "precision": "bf16", "num_workers": 0}
    return read_job({"workload": "train", "train": table, "options": options}, "the test's job")


def train_here(what: Job, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and by one thread, as the worker would in its own."""
    from kgops.maths.train.worker import train
    from kgops.maths.worker.report import Reporter

    monkeypatch.setenv("KGOPS_EVENTS", str(folder / "events.jsonl"))
    torch.set_num_threads(1)
    train(what, folder, Reporter(folder), lambda: False)  # type: ignore[arg-type]


def assert_told_like_our_own(folder: Path, model: str, settings: dict[str, Any]) -> None:
    """Of `job` with three epochs: its curves, options, metrics and files."""
    losses = [event["value"] for event in events(folder, "metric") if event["name"] == "loss"]
    assert len(losses) == 3 and losses[-1] < losses[0]
    assert events(folder, "progress")[-1]["done"] == 3
    metrics = events(folder, "result")[-1]["metrics"]
    assert 0 < metrics["test_mrr"] <= 1 and metrics["epochs"] == 3
    options = {event["name"]: event for event in events(folder, "option")}
    assert options["precision"]["applied"] == "fp32" and "float32" in options["precision"]["reason"]
    results = folder / "results"
    config = json.loads((results / "config.json").read_text())
    assert config["engine"] == "pykeen" and config["model"]["name"].lower() == model.lower()
    assert config["optimizations"]["precision"]["requested"] == "bf16"
    manifest = json.loads((results / "manifest.json").read_text())
    assert {"results/pykeen/trained_model.pkl", "results/final_model.pt", "results/test_results.json"} <= {
        file["path"] for file in manifest["files"]
    }
    best, notes = results / "best_model.pt", [event["text"] for event in events(folder, "note")]
    if "validate_every" in settings:
        last = torch.load(results / "final_model.pt", weights_only=True)
        for name, weights in torch.load(best, weights_only=True).items():
            assert torch.equal(weights, last[name])
        assert any("ended before its first validation" in note for note in notes)
    else:
        assert not best.exists() and any("no best_model.pt, since nothing was validated" in n for n in notes)


def test_a_supervised_run_shows_curves_options_and_the_best_of_its_validations(
    run_cli: Console, tmp_path: Path
) -> None:
    more = ("--model", "RotatE", "--num-epochs", "4", "--validate-every", "2", "--use-gradient-checkpointing")
    run_cli.must(*PYKEEN, *more, "--output-dir", tmp_path / "out")
    shown = run_cli.show(1)
    assert (shown["state"], shown["label"]) == ("succeeded", "nations RotatE")
    assert shown["metric"]["best_epoch"] in (2, 4)
    folder = run_cli.folder(1)
    validations = [e["step"] for e in events(folder, "metric") if e["name"] == "valid_mrr"]
    assert validations == [2, 4]
    option = next(e for e in events(folder, "option") if e["name"] == "gradient_checkpointing")
    assert option["applied"] == "off" and "no such option" in option["reason"]
    assert torch.load(tmp_path / "out" / "best_model.pt", weights_only=True)
    assert not list((tmp_path / "out").rglob("resume_*"))
    history = json.loads((tmp_path / "out" / "training_history.json").read_text())
    assert [entry["epoch"] for entry in history] == [1, 2, 3, 4]


def test_large_blocks_of_pykeen_have_pages_of_their_own(run_cli: Console) -> None:
    """Else what its ranking leaves of the heap, and so the peak, is chance."""
    train = (*PYKEEN, "--model", "TransE", "--num-epochs", "1", "--json")
    mine = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}
    runs = [run_cli(*train).json(), run_cli(*train, env=run_cli.environment(mine)).json()]
    variables = [run["environment"]["variables"].get("GLIBC_TUNABLES") for run in runs]
    assert variables == ["glibc.malloc.mmap_threshold=8388608:glibc.malloc.hugetlb=1", mine["GLIBC_TUNABLES"]]
    with_others = run_cli(
        "run", "train", "--dataset", "nations", *SMALL, "--num-epochs", "1", "--json"
    ).json()
    assert "GLIBC_TUNABLES" not in with_others["environment"]["variables"]


def test_a_killed_run_resumes_by_itself_to_the_weights_of_one_never_killed(
    run_cli: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"num_epochs": 8, "validate_every": 0, "resume_every": 0.0, "learning_rate": 0.001}
    whole = tmp_path / "never killed"
    whole.mkdir()
    train_here(job("DistMult", **settings), whole, monkeypatch)
    flags = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    run_cli.must(*PYKEEN, "--model", "DistMult", *flags, "--detach", env={"OMP_NUM_THREADS": "1"})

    def in_the_middle() -> int | None:
        folder = run_cli.folder(1)
        if not (folder / "events.jsonl").exists():
            return None
        done = [e["step"] for e in events(folder, "metric") if e["name"] == "loss"]
        assert not done or done[-1] < 8, "too quick for this test"
        return int(events(folder, "started")[-1]["pid"]) if done and done[-1] >= 2 else None

    os.kill(wait_for(in_the_middle, "the middle of the training"), signal.SIGKILL)
    run = run_cli.ended(1)
    assert (run.state, run.attempts) == ("succeeded", 2)
    assert any(note["text"].startswith("resumed after epoch") for note in events(run_cli.folder(1), "note"))
    a, b = (
        torch.load(folder / "results" / "final_model.pt", weights_only=True)
        for folder in (whole, run_cli.folder(1))
    )
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


def test_a_checkpoint_cut_short_by_a_kill_gives_way_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nations: Graph
) -> None:
    from kgops.maths.train.pykeen_engine import _resume
    from kgops.maths.worker.report import Reporter

    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    newest, before = tmp_path / "resume_pykeen.pt", tmp_path / "resume_pykeen.pt.before"
    torch.save({"epoch": 7}, before)
    newest.write_bytes(before.read_bytes()[:200])
    _resume(tmp_path, nations, Reporter(tmp_path))
    assert torch.load(newest)["epoch"] == 7 and not before.exists()
    told = [note["text"] for note in events(tmp_path, "note")]
    assert "truncated" in told[0] and told[1] == "resumed after epoch 7."


def test_a_training_of_pykeen_goes_on_with_its_own_triples_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nations: Graph
) -> None:
    from kgops.maths.train.pykeen_engine import _resume
    from kgops.maths.worker.report import Reporter

    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    _resume(tmp_path, nations, Reporter(tmp_path))  # it begins
    torch.save({"epoch": 7}, tmp_path / "resume_pykeen.pt")
    with pytest.raises(BadInput, match="other validation triples than in the training: 199 then, 100 now"):
        _resume(tmp_path, replace(nations, valid=nations.valid[:100]), Reporter(tmp_path))
    shuffled = nations.train[torch.randperm(len(nations.train))]
    _resume(tmp_path, replace(nations, train=shuffled), Reporter(tmp_path))
    assert [note["text"] for note in events(tmp_path, "note")] == ["resumed after epoch 7."]


def test_models_that_cannot_be_trained_here_are_refused_with_the_reason() -> None:
    from kgops.maths.train.pykeen_engine import find_model

    assert find_model("transe").__name__ == "TransE"
    for name, said in (
        ("RotateE", "did you mean 'RotatE'?"),
        ("DistMultLiteral", "literals"),
        ("InductiveNodePiece", "second graph"),
        ("FixedModel", "cannot be trained"),
    ):
        with pytest.raises(Usage) as caught:
            find_model(name)
        assert said in caught.value.message


class Reads(dict[str, Any]):
    """Settings that note which of them were read."""

    names: set[str]

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("loss", [{}, {"loss": "kvsall-bce"}])
def test_every_setting_is_used_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: dict[str, str]
) -> None:
    asked = job("DistMult", **loss, num_epochs=1, validate_every=1)
    settings = Reads(asked.settings)
    settings.names = set()
    train_here(replace(asked, settings=settings), tmp_path, monkeypatch)
    others = {"label_smoothing": 0.2, "schedule": "cosine", "schedule_factor": 0.5, "group_queries": True}
    others |= {"regularizer": "n3"}
    unused = [one for one in TRAIN.settings if one.name not in settings.names | {*TRIPLES}]
    assert {"schedule", "warmup_epochs"} <= {one.name for one in unused}
    for one in unused:
        value = others[one.name] if one.name in others else one.default + 1
        with pytest.raises(BadJob, match=rf"train\.{one.name}: "):
            job("DistMult", **loss, **{one.name: value})


def test_what_does_not_go_together_is_told_before_anything_starts() -> None:
    for settings, said in (
        ({"loss": "1vsall-ce"}, "PyKEEN has no 1vsAll"),
        ({"loss": "kvsall-ce", "group_queries": True}, "only for kgops' engine and the loss 1vsall-ce"),
        ({"schedule": "plateau"}, "only kgops' own engine"),
        ({"engine": "kgops"}, "choose the engine pykeen"),
    ):
        with pytest.raises(BadJob) as caught:
            job("RotatE", **settings)
        assert said in caught.value.message
