"""PyKEEN's own pipeline as a supervised run: any of its models, with the same events and files, and back again."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console, wait_for
from recording import assert_identical, events

from kgops.errors import BadInput, BadJob, Usage
from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph, read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import PykeenCheckpoint, load_saved
from kgops.maths.models.pykeen_models import PykeenRecipe, model_of, rebuild
from kgops.maths.tracin.blocks import TracinCheckpoint
from kgops.maths.tracin.checkpoint_set import load_checkpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET
from kgops.maths.tracin.scan import Scoring
from kgops.maths.train.pykeen_engine import _resume, find_model
from kgops.maths.train.worker import train
from kgops.maths.worker.report import Reporter
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
        assert_identical(*(torch.load(one, weights_only=True) for one in (best, results / "final_model.pt")))
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
    # Large blocks have pages of their own: else what ranking leaves of the heap, and so the peak, is chance.
    assert "mmap_threshold=8388608" in shown["environment"]["variables"]["GLIBC_TUNABLES"]
    folder = run_cli.folder(1)
    validations = [e["step"] for e in events(folder, "metric") if e["name"] == "valid_mrr"]
    assert validations == [2, 4]
    option = next(e for e in events(folder, "option") if e["name"] == "gradient_checkpointing")
    assert option["applied"] == "off" and "no such option" in option["reason"]
    assert torch.load(tmp_path / "out" / "best_model.pt", weights_only=True)
    assert not list((tmp_path / "out").rglob("resume_*"))
    history = json.loads((tmp_path / "out" / "training_history.json").read_text())
    assert [entry["epoch"] for entry in history] == [1, 2, 3, 4]


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
    folders = whole, run_cli.folder(1)
    assert_identical(*(torch.load(one / "results/final_model.pt", weights_only=True) for one in folders))


def test_a_checkpoint_cut_short_by_a_kill_gives_way_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nations: Graph
) -> None:
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
    monkeypatch.setenv("KGOPS_EVENTS", str(tmp_path / "events.jsonl"))
    _resume(tmp_path, nations, Reporter(tmp_path))  # it begins
    torch.save({"epoch": 7}, tmp_path / "resume_pykeen.pt")
    with pytest.raises(BadInput, match="other validation triples than in the training: 199 then, 100 now"):
        _resume(tmp_path, replace(nations, valid=nations.valid[:100]), Reporter(tmp_path))
    shuffled = nations.train[torch.randperm(len(nations.train))]
    _resume(tmp_path, replace(nations, train=shuffled), Reporter(tmp_path))
    assert [note["text"] for note in events(tmp_path, "note")] == ["resumed after epoch 7."]


def test_models_that_cannot_be_trained_here_are_refused_with_the_reason() -> None:
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


# --- read again ---

NATIONS = read_pykeen_dataset("nations")
ROWS = NATIONS.train[:20]


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, model: str, **settings: Any) -> Path:
    train_here(job(model, checkpoint_frequency=2, **settings), folder, monkeypatch)
    return folder / "results"


def scores(model: Any, rows: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = (
            model(rows[:, 0], rows[:, 1]) if isinstance(model, ConvE) else model.score_t(rows)
        )
        return found


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("TransE", {}),
        ("rotate", {"optimizer": "adamw", "validate_every": 5}),  # more than its epochs
        ("ComplEx", {"loss": "kvsall-ce"}),
        ("DistMult", {"loss": "kvsall-bce", "label_smoothing": 0.1, "optimizer": "adagrad", "inverse": True}),
        ("TuckER", {}),
        ("ConvE", {"loss": "kvsall-bce", "output_channels": 4}),
    ],
)
def test_any_model_is_told_of_like_our_own_and_leaves_what_it_is_built_from_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, settings: dict[str, Any]
) -> None:
    results = trained(tmp_path, monkeypatch, model, **settings)
    assert_told_like_our_own(tmp_path, model, settings)
    whole = torch.load(results / "pykeen" / "trained_model.pkl", weights_only=False).eval()
    final = loaded_by(results / "final_model.pt")
    assert (final.learning_rate, final.model.training) == (0.02, False)
    rows = ROWS[:, :2] * torch.tensor([1, 2 if whole.use_inverse_triples else 1])
    torch.testing.assert_close(scores(final.model, rows), scores(whole, rows), rtol=1e-5, atol=1e-5)
    pickle, cpu = results / "pykeen" / "trained_model.pkl", torch.device("cpu")
    trusted = load_checkpoint(pickle, NATIONS, device=cpu, learning_rate=0.1, trust_pickle=True).checkpoint
    assert type(trusted.model) is type(final.model)
    assert isinstance(final.model, ConvE) == (model == "ConvE")
    if isinstance(trusted.model, ConvE):
        assert trusted.model.config.embedding_dim == 16 and trusted.model.config.inverse

    (path,) = (results / "checkpoints").glob("checkpoint_epoch_*.pt")
    kept = loaded_by(path)
    assert (kept.epoch, kept.learning_rate, kept.entities_digest) == (2, 0.02, NATIONS.entities.digest)
    smoothing = settings.get("label_smoothing", 0.1)  # kgops' default
    recorded = settings.get("loss") and {"name": settings["loss"], "label_smoothing": smoothing}
    assert kept.loss == recorded and final.loss == recorded
    loaded = load_checkpoint(path, NATIONS, device=cpu)
    assert (loaded.checkpoint.learning_rate, loaded.loss, loaded.epoch) == (0.02, recorded, 2)
    points = [loaded.checkpoint, TracinCheckpoint(final.model, 0.1)]
    for loss in (TARGET, ONE_TO_N):
        assert float(Scoring(points, loss).self_influence(ROWS).min()) > 0


def loaded_by(path: Path) -> PykeenCheckpoint:
    return model_of(path, load_saved(path, trust_pickle=False))


def test_weights_that_do_not_say_their_model_are_refused_and_so_are_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = trained(tmp_path, monkeypatch, "TransE")
    with pytest.raises(BadInput) as caught:
        loaded_by(results / "pykeen" / "trained_model.pkl")
    assert "--trust-pickle" in str(caught.value.hint)
    alone = tmp_path / "elsewhere" / "deeper" / "final_model.pt"
    alone.parent.mkdir(parents=True)
    alone.write_bytes((results / "final_model.pt").read_bytes())
    with pytest.raises(BadInput, match="is not beside it"):
        loaded_by(alone)
    config = json.loads((results / "config.json").read_text())
    del config["model"]["inverse"]
    (alone.parent / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="does not say the model's 'inverse'"):
        loaded_by(alone)


def test_a_model_that_cannot_be_built_again_is_refused_with_the_reason() -> None:
    sizes = (5, 2, False)
    with pytest.raises(BadInput, match="no model 'TransZ'"):
        rebuild(PykeenRecipe("TransZ", {}, *sizes), {})
    with pytest.raises(BadInput, match="cannot be built"):
        rebuild(PykeenRecipe("TransE", {"wings": 2}, *sizes), {})
    with pytest.raises(BadInput, match="needs the graph"):
        rebuild(PykeenRecipe("CompGCN", {"embedding_dim": 4}, 5, 2, True), {})
    state = {"entity_representations.0._embeddings.weight": torch.zeros(4, 3)}
    with pytest.raises(BadInput, match=r"do not fit the TransE.*size mismatch"):
        rebuild(PykeenRecipe("TransE", {"embedding_dim": 3}, *sizes), state)
    with pytest.raises(BadInput, match=r"lacks 'relation_representations\.0\._embeddings\.weight'"):
        rebuild(PykeenRecipe("TransE", {"embedding_dim": 3}, 4, 2, False), state)


def test_building_a_model_draws_no_numbers_from_whoever_asks() -> None:
    recipe = PykeenRecipe("DistMult", {"embedding_dim": 4}, 5, 2, False)
    torch.manual_seed(7)
    state = {
        "entity_representations.0._embeddings.weight": torch.ones(5, 4),
        "relation_representations.0._embeddings.weight": torch.ones(2, 4),
    }
    before = torch.get_rng_state()
    assert float(scores(rebuild(recipe, state), torch.tensor([[0, 1]]))[0, 0]) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_of_pykeens_pipeline_with_inverse_relations_is_traced_by_its_number(run_cli: Console) -> None:
    small = ("--embedding-dim", "8", "--num-epochs", "4", "--device", "cpu")
    own = ("--engine", "pykeen", "--model", "DistMult", "--loss", "kvsall-bce", "--inverse")
    run_cli.must("run", "train", "--dataset", "nations", *own, *small)
    run_cli.must("run", "tracin", "--run", "1", "--max-triples", "2", "--top-k", "3", "--device", "cpu")
    assert "score tracin, loss target" in run_cli("show", "2").out
    assert run_cli("influences", "last", "--json", "--top-k", "1").json()
