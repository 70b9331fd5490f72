"""PyKEEN's models come back from what a training run of ours kept, with the scores they had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console
from test_pykeen_engine import assert_told_like_our_own, job, train_here

from kgops.errors import BadInput
from kgops.maths.graphs.triples import read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.models.pykeen_bridge import PykeenCheckpoint, load_saved
from kgops.maths.models.pykeen_models import PykeenRecipe, model_of, rebuild
from kgops.maths.tracin.blocks import TracinCheckpoint
from kgops.maths.tracin.checkpoint_set import load_checkpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET
from kgops.maths.tracin.scan import Scoring

# PyKEEN and what it loads warn of their own affairs, which are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

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


@pytest.mark.parametrize(
    ("model", "more"), [("RotatE", ()), ("DistMult", ("--loss", "kvsall-bce", "--inverse"))]
)
def test_a_run_of_pykeens_pipeline_is_traced_by_its_number(
    run_cli: Console, model: str, more: tuple[str, ...]
) -> None:
    small = ("--dataset", "nations", "--embedding-dim", "8", "--num-epochs", "4", "--device", "cpu")
    run_cli.must("run", "train", "--engine", "pykeen", "--model", model, *small, *more)
    run_cli.must("run", "tracin", "--run", "1", "--max-triples", "2", "--top-k", "3", "--device", "cpu")
    assert "score tracin, loss target" in run_cli("show", "2").out
    found = json.loads(run_cli("influences", "last", "--json", "--top-k", "1").out)
    assert found
