"""The training loop: it learns, stops when asked, and resumes as if it had never stopped."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recording import Killed, Recorder, Stop, assert_identical
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kgops.errors import BadInput, BadJob
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.build import build_model
from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.train import checkpoints
from kgops.maths.train.batches import Batch, Batches
from kgops.maths.train.evaluate import Evaluator
from kgops.maths.train.loop import Diverged, fit
from kgops.maths.train.losses import EntityLoss
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.workloads.train.models import ConvEConfig, VectorConfig

QUICK = TrainSettings(num_epochs=3, batch_size=64, validate_every=1, seed=5, loss_every=4)


def small(graph: Graph, device: str = "cpu", **change: Any) -> ConvE:
    torch.manual_seed(9)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=32, output_channels=8)
    return ConvE(replace(config, **change)).to(device)


def of_vectors(graph: Graph) -> EntityModel:
    torch.manual_seed(9)
    return build_model(VectorConfig(graph.num_entities, graph.num_relations, rank=8))


@pytest.mark.parametrize("loss", ["kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce", "grouped"])
def test_training_learns_nations(nations: Graph, tmp_path: Path, loss: str) -> None:
    chosen = {"loss": "1vsall-ce", "group_queries": True} if loss == "grouped" else {"loss": loss}
    settings = replace(QUICK, num_epochs=12, learning_rate=0.003, validate_every=4, **chosen)
    model, report = small(nations), Recorder()
    known = torch.cat([nations.train, nations.valid, nations.test])
    before = Evaluator(known, nations.num_entities)(model, nations.test)
    result = fit(model, nations, settings, tmp_path, report)
    after = Evaluator(known, nations.num_entities)(model, nations.test)
    assert before is not None and after is not None
    assert (after.both.mrr or 0) > (before.both.mrr or 0) + 0.15
    losses = [value for name, value, _ in report.metrics if name == "loss"]
    assert losses[-1] < losses[0]
    assert (result.stopped, result.epochs) == ("finished", 12)
    assert [entry["epoch"] for entry in result.history] == list(range(1, 13))
    assert report.done[-1] == 1


def test_a_step_is_the_step_of_autograd_and_adam(nations: Graph) -> None:
    """One update by the fused step, beside the same update by the plain model and torch."""
    model, plain = small(nations).double(), small(nations).double()
    for m in (model, plain):
        m.config = replace(m.config, input_dropout=0.0, feature_map_dropout=0.0, output_dropout=0.0)
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=50, seed=1)
    step = TrainStep(model, EntityLoss("bce", 0.1, 5, torch.float64), build_optimizer("adam", model, 0.01))
    trained = [weight for name, weight in plain.named_parameters() if name not in plain.untrained]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    for batch in list(batches.epoch(1))[:4]:
        value = step(batch)
        labels = torch.zeros(len(batch), nations.num_entities, dtype=torch.float64)
        labels[batch.positives.rows, batch.positives.entities] = 1
        labels = 0.9 * labels + 0.1 / nations.num_entities
        optimizer.zero_grad()
        expected = F.binary_cross_entropy_with_logits(plain(batch.heads, batch.relations), labels)
        expected.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=1e-12)
    for (name, ours), theirs in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        if name != "conv.bias":  # its true gradient is 0; autograd's rounding is what Adam then scales up
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize("largest", [1e-3, 1e3])
def test_grad_clip_scales_larger_gradients_down(nations: Graph, tmp_path: Path, largest: float) -> None:
    """The first update of plain SGD is as long as the learning rate times the norm of the gradients it used."""
    settings = replace(QUICK, optimizer="sgd", learning_rate=1.0, num_epochs=1, batch_size=10**6)
    lengths = []
    for clip in (0.0, largest):
        model = small(nations)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        fit(model, nations, replace(settings, grad_clip=clip), tmp_path / str(clip), Recorder())
        moved = [(a - b).flatten() for a, b in zip(model.parameters(), before, strict=True)]
        lengths.append(float(torch.cat(moved).norm().detach()) / settings.learning_rate)
    plain, clipped = lengths
    assert clipped == pytest.approx(min(plain, largest), rel=1e-3)


@pytest.mark.parametrize(
    ("nth", "optimizer"),
    [(1, "adam"), (7, "adam"), (23, "adam"), (20, "adamw"), (20, "adagrad"), (20, "sgd")],
)
def test_a_run_killed_anywhere_and_resumed_has_the_weights_of_one_never_killed(
    nations: Graph, tmp_path: Path, nth: int, optimizer: str
) -> None:
    settings = replace(QUICK, resume_every=0.0, optimizer=optimizer, schedule="plateau", schedule_patience=0)
    whole = small(nations)
    fit(whole, nations, settings, tmp_path / "whole", Recorder())
    with pytest.raises(Killed):
        fit(small(nations), nations, settings, tmp_path / "cut", Recorder(), Stop(nth, die=True))
    torch.manual_seed(12345)  # another process has other random states
    again = small(nations)
    result = fit(again, nations, settings, tmp_path / "cut", Recorder(), resume=True)
    assert_identical(again.state_dict(), whole.state_dict())
    assert result.stopped == "finished"


@pytest.mark.parametrize(
    "chosen", [{}, {"loss": "1vsall-ce", "group_queries": True}], ids=["plain", "grouped"]
)
@pytest.mark.parametrize("nth", [1, 20, 25])
@pytest.mark.parametrize("small", [small, of_vectors])
def test_a_run_asked_to_stop_saves_and_resumes_bit_identically(
    nations: Graph, tmp_path: Path, nth: int, chosen: dict[str, Any], small: Callable[[Graph], EntityModel]
) -> None:
    settings = replace(QUICK, resume_every=1e9, **chosen)
    if small is of_vectors:
        settings = replace(settings, regularizer="n3", relation_prediction=0.5, optimizer="adagrad")
    whole, half = small(nations), small(nations)
    expected = fit(whole, nations, settings, tmp_path / "whole", Recorder())
    stopped = fit(half, nations, settings, tmp_path / "half", Recorder(), Stop(nth))
    assert stopped.stopped == "requested"
    again, report = small(nations), Recorder()
    result = fit(again, nations, settings, tmp_path / "half", report, resume=True)
    assert_identical(again.state_dict(), whole.state_dict())
    assert any("resumed after epoch" in note for note in report.notes)
    assert (result.best_epoch, result.best_mrr) == (expected.best_epoch, expected.best_mrr)
    assert [e["loss"] for e in result.history] == [e["loss"] for e in expected.history]


def test_a_checkpoint_of_another_training_is_refused(nations: Graph, tmp_path: Path) -> None:
    fit(small(nations), nations, replace(QUICK, num_epochs=1), tmp_path, Recorder())
    with pytest.raises(BadInput, match="its seed differs"):
        fit(small(nations), nations, replace(QUICK, seed=6), tmp_path, Recorder(), resume=True)
    with pytest.raises(BadInput, match="its model, loss differ"):
        other = small(nations, output_channels=4)
        fit(other, nations, replace(QUICK, loss="1vsall-ce"), tmp_path, Recorder(), resume=True)


def test_a_training_begun_anew_is_never_resumed_from_the_one_before_it(
    nations: Graph, tmp_path: Path
) -> None:
    fit(small(nations), nations, replace(QUICK, checkpoint_frequency=2), tmp_path, Recorder())
    report = Recorder()
    fit(small(nations), nations, QUICK, tmp_path, report, Stop(5))
    assert "earlier training" in report.notes[0]
    assert "1 TracIn checkpoints of an earlier training" in report.notes[1]
    found = checkpoints.newest_resumable(tmp_path / "checkpoints", torch.device("cpu"), report.note)
    assert found is not None
    assert found.epoch == 0


def test_resuming_where_nothing_is_starts_anew_and_says_so(nations: Graph, tmp_path: Path) -> None:
    report = Recorder()
    fit(small(nations), nations, replace(QUICK, num_epochs=1), tmp_path, report, resume=True)
    assert "no checkpoint to resume from" in report.notes[0]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(nations: Graph, tmp_path: Path) -> None:
    runs = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        model = small(nations)
        fit(model, nations, replace(QUICK, num_epochs=1, seed=seed), tmp_path / name, Recorder())
        runs.append(model.state_dict())
    assert_identical(runs[0], runs[1])
    assert not torch.equal(runs[0]["entities"], runs[2]["entities"])


@pytest.mark.parametrize("change", [{"entity_chunk": 3}, {"gradient_checkpointing": True}])
def test_a_memory_option_changes_the_weights_by_rounding_only(
    nations: Graph, tmp_path: Path, change: dict[str, Any]
) -> None:
    plain, levered = small(nations).double(), small(nations).double()
    fit(plain, nations, QUICK, tmp_path / "plain", Recorder())
    fit(levered, nations, replace(QUICK, **change), tmp_path / "levered", Recorder())
    for a, b in zip(plain.state_dict().values(), levered.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_divergence_stops_the_run_and_says_what_to_try(nations: Graph, tmp_path: Path) -> None:
    model = small(nations, batch_norm=False)
    settings = replace(QUICK, optimizer="sgd", learning_rate=1e12, loss_every=1)
    with pytest.raises(Diverged, match=r"the loss of epoch \d is NaN or infinite") as caught:
        fit(model, nations, settings, tmp_path, Recorder())
    assert "a learning rate below 3.3e+11" in (caught.value.hint or "")
    assert "batch norm" in (caught.value.hint or "")
    assert not (tmp_path / "final_model.pt").exists()


def test_early_stopping_keeps_the_best_model(nations: Graph, tmp_path: Path) -> None:
    settings = replace(QUICK, num_epochs=200, learning_rate=0.02, patience=2)
    model, report = small(nations), Recorder()
    result = fit(model, nations, settings, tmp_path, report)
    assert result.stopped == "early"
    assert result.best_epoch == result.epochs - 2
    best = checkpoints.read_checkpoint(tmp_path / "best_model.pt")
    assert best.epoch == result.best_epoch
    known = torch.cat([nations.train, nations.valid])
    evaluation = Evaluator(known, nations.num_entities)(best.build_model(), nations.valid)
    assert evaluation is not None
    assert evaluation.both.mrr == result.best_mrr
    assert checkpoints.read_checkpoint(tmp_path / "final_model.pt").epoch == result.epochs


def test_checkpoints_for_tracin_are_kept_every_k_epochs_with_their_learning_rate(
    nations: Graph, tmp_path: Path
) -> None:
    settings = replace(QUICK, num_epochs=5, checkpoint_frequency=2, schedule="cosine", validate_every=0)
    report = Recorder()
    fit(small(nations), nations, settings, tmp_path, report)
    kept = [checkpoints.read_checkpoint(p) for p in checkpoints.kept_checkpoints(tmp_path / "checkpoints")]
    assert [c.epoch for c in kept] == [2, 4]
    assert kept[0].learning_rate > kept[1].learning_rate > 0
    recorded = {"name": "kvsall-bce", "label_smoothing": 0.1, "smoothed_over": "all entities"}
    assert kept[0].loss == recorded
    assert kept[0].entities_digest == nations.entities.digest
    assert [kind for _, kind in report.artifacts] == ["checkpoint", "checkpoint", "model"]
    assert not (tmp_path / "best_model.pt").exists()


def test_every_option_is_reported_with_what_came_of_it(nations: Graph, tmp_path: Path) -> None:
    report = Recorder()
    fit(small(nations), nations, replace(QUICK, num_epochs=1, precision="tf32"), tmp_path, report)
    why = "TF32 is a number format of CUDA GPUs; no CUDA device"
    assert report.options["precision"] == ("tf32", "fp32", why)
    assert report.options["batch_size"] == (64, 64, None)
    assert report.options["entity_chunk"][0] == "auto"
    assert report.options["gradient_checkpointing"] == ("off", "off", None)
    assert report.mib["weights"] == report.mib["gradients"] > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_products_train_like_float32(nations: Graph, dtype: torch.dtype) -> None:
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1)

    def train(dtype: torch.dtype) -> float:
        torch.manual_seed(0)
        model = small(nations).train()
        step = TrainStep(model, EntityLoss("bce", dtype=dtype), build_optimizer("adam", model, 0.003))
        values: list[float] = []
        for epoch in range(6):
            values = [float(v) for batch in batches.epoch(epoch) if (v := step(batch)) is not None]
        assert step.overflows == 0
        return sum(values) / len(values)

    assert train(dtype) == pytest.approx(train(torch.float32), rel=0.05)


@pytest.mark.parametrize("loss", ["kvsall-bce", "1vsall-ce"])
def test_neither_batches_nor_steps_wait_for_an_answer_from_the_device(nations: Graph, loss: str) -> None:
    """What a GPU would have to finish first, and what no CUDA graph can record."""
    asked: set[str] = set()

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            asked.add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    model, settings = small(nations).train(), replace(QUICK, loss=loss)
    step = TrainStep(model, settings.build_loss(torch.float32, 4), build_optimizer("adam", model, 0.01))
    source = Batches(nations.train, inverse=True, one_positive=settings.one_positive, batch_size=64, seed=1)
    batches = source.epoch(1)
    next(batches)  # the sizes of a whole epoch are worked out here, on the host
    with Watch():  # type: ignore[no-untyped-call]
        step.gradients(next(batches))
    assert "index_add_" in asked
    assert not asked & {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "masked_select"}


def test_a_step_whose_fp16_gradients_overflow_changes_no_weight_and_is_counted(nations: Graph) -> None:
    model = small(nations).train()
    step = TrainStep(model, EntityLoss("bce", dtype=torch.float16), build_optimizer("adam", model, 0.003))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        model.project.weight[0, 0] = before["project.weight"][0, 0] = 1e6  # infinite in fp16
    batches = Batches(nations.train, inverse=True, one_positive=False, batch_size=64, seed=1)
    batch: Batch = next(iter(batches.epoch(1)))
    step(batch)
    assert step.overflows == 1
    assert_identical(dict(model.named_parameters()), before)


def test_a_batch_of_one_is_refused_under_batch_norm_and_allowed_without(
    nations: Graph, tmp_path: Path
) -> None:
    settings = replace(QUICK, batch_size=1, num_epochs=1, validate_every=0)
    with pytest.raises(BadJob, match="batch of one"):
        fit(small(nations), nations, settings, tmp_path, Recorder())
    few = replace(nations, train=nations.train[:5])
    model = small(nations, batch_norm=False)
    assert fit(model, few, settings, tmp_path, Recorder()).stopped == "finished"
