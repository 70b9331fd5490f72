"""PyKEEN's models: predicted memory, and what is kept of them for TracIn."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from pykeen.losses import loss_resolver
from pykeen.optimizers import optimizer_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import CoreTriplesFactory, KGInfo, TriplesFactory
from pykeen.utils import NoRandomSeedNecessary

from kgops.errors import KgopsError
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.pykeen_models import PykeenRecipe, write_kept_pykeen
from kgops.maths.train.meta_trace import Traced, trace_peak
from kgops.maths.worker.report import Reporter


def recipe_of(
    model: Any, model_kwargs: dict[str, Any], graph: Graph, training: TriplesFactory
) -> PykeenRecipe:
    sizes = (graph.num_entities, graph.num_relations, bool(training.create_inverse_triples))
    return PykeenRecipe(model.__name__, model_kwargs, *sizes)


class KeepForTracin(TrainingCallback):  # type: ignore[misc]
    """Writes a checkpoint for TracIn every `checkpoint_frequency` epochs, with all that rebuilds the model."""

    def __init__(
        self, checkpoints: Path, settings: dict[str, Any], recipe: PykeenRecipe, graph: Graph
    ) -> None:
        super().__init__()
        self._folder, self._every, self._recipe = checkpoints, settings["checkpoint_frequency"], recipe
        smoothing = settings["label_smoothing"]
        self._loss = settings["loss"] and {"name": settings["loss"], "label_smoothing": smoothing}
        self._digests: dict[str, Any] = {
            "entities_digest": graph.entities.digest,
            "relations_digest": graph.relations.digest,
            "data": graph.digests,
        }

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        if not self._every or epoch % self._every:
            return
        write_kept_pykeen(
            self._folder / f"checkpoint_epoch_{epoch:07}.pt",
            self.model,
            self._recipe,
            epoch=epoch,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            loss=self._loss,
            **self._digests,
        )


_LOOK_AT_GRAPH = ("CompGCN", "NodePiece", "RGCN")
_NEGATIVES = 1  # per triple: PyKEEN's default
_RANKED = 32  # triples at a time: PyKEEN's default on a CPU
_MIB = 1 << 20
_Cached = type(lru_cache(lambda: None))


class Untraceable(KgopsError):
    """A model whose step cannot be traced without values."""


def report_prediction(pipeline_kwargs: Mapping[str, Any], device: torch.device, report: Reporter) -> None:
    """Predicts the memory of `pipeline(**pipeline_kwargs)`, or notes why not. Never raises."""
    try:
        step, ranking = predict_step(pipeline_kwargs, device), predict_ranking(pipeline_kwargs, device)
    except Untraceable as why:
        report.note(f"memory not predicted: {why.message}")
    except Exception as error:  # a model may fail on `meta` and still train
        message = " ".join(str(error).split())
        report.note(f"memory not predicted: the trace met {type(error).__name__}: {message[:200]}")
    else:
        most = step if ranking is None else max(step, ranking)
        report.predicted(
            most.peak / _MIB,
            of="tensors in a training step" if most is step else "tensors while triples are ranked",
            by="a trace in the worker",
            operator=most.operator,
            step_mib=step.peak / _MIB,
        )


def predict_step(pipeline_kwargs: Mapping[str, Any], device: torch.device) -> Traced:
    """Peak memory of a training step of `pipeline(**pipeline_kwargs)` on `device`. Draws no random number."""
    name, training = pipeline_kwargs["model"].__name__, pipeline_kwargs["training"]
    if name in _LOOK_AT_GRAPH:
        raise Untraceable(f"{name} reads the graph's values, and a trace knows only sizes.")
    against_all = pipeline_kwargs["training_loop"] == "lcwa"
    available = _queries(training) if against_all else _triples(training)
    rows = min(pipeline_kwargs["training_kwargs"]["batch_size"], available)
    with _isolated():
        return trace_peak(lambda: _two_steps(pipeline_kwargs, device, rows, against_all))


def predict_ranking(pipeline_kwargs: Mapping[str, Any], device: torch.device) -> Traced | None:
    """Peak memory while test or validation triples are ranked after training; None on a GPU."""
    if device.type != "cpu":
        return None
    ranked = [
        len(pipeline_kwargs[name].mapped_triples)
        for name in ("testing", "validation")
        if name in pipeline_kwargs
    ]
    rows = min(_RANKED, max(ranked))
    known = sum(ranked) + len(pipeline_kwargs["training"].mapped_triples)
    with _isolated():
        return trace_peak(lambda: _ranked(pipeline_kwargs, rows, known))


@contextmanager
def _isolated() -> Iterator[None]:
    """On `meta`, without effect on the run: random state and PyKEEN's caches are restored."""
    _forget()  # the trace must not meet cached real tensors
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            yield
    finally:
        _forget()


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("pykeen."):
            for cached in vars(module).values():
                if isinstance(cached, _Cached):  # QuatE's table of products is one
                    cached.cache_clear()


def _ranked(pipeline_kwargs: Mapping[str, Any], rows: int, known: int) -> None:
    """PyKEEN's evaluator up to where it reads values: ranks heads and tails among all entities."""
    model = _model(pipeline_kwargs)
    optimizer = _optimizer(pipeline_kwargs, model, {})
    for weight in model.get_grad_params():  # the optimizer state stays, the gradients are freed
        weight.grad = torch.empty_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    batch, triples = torch.empty(rows, 3, dtype=torch.long), torch.empty(known, 3, dtype=torch.long)
    with torch.no_grad():
        relations = None
        for target, other in (("head", 2), ("tail", 0)):
            scores = model.predict(hrt_batch=batch, target=target)
            relations = triples[:, 1:2].view(1, -1) == batch[:, 1:2] if relations is None else relations
            positives = (triples[:, other : other + 1].view(1, -1) == batch[:, other : other + 1]) & relations
            del scores, positives


def _two_steps(
    pipeline_kwargs: Mapping[str, Any], device: torch.device, rows: int, against_all: bool
) -> None:
    """`TrainingLoop._train_epoch` and its optimizer callback, without reading values, which `meta` lacks."""
    model, training = _model(pipeline_kwargs).train(), pipeline_kwargs["training"]
    # On GPUs torch uses foreach by default, on CPUs not.
    optimizer = _optimizer(pipeline_kwargs, model, {"foreach": True} if device.type == "cuda" else {})
    smoothing = pipeline_kwargs["training_kwargs"].get("label_smoothing", 0.0)
    loader = _kept_by_loader(training, device, against_all)
    for _ in range(2):
        # While the previous batch is still alive, as in a loop over a loader.
        batch = _labelled(rows, training.num_entities) if against_all else _sampled(rows)
        optimizer.zero_grad(set_to_none=True)
        loss = _loss_against_all(model, batch, smoothing) if against_all else _loss_of_samples(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        del loss
        model.post_forward_pass()
        optimizer.step()
        model.post_parameter_update()
    del loader


def _model(pipeline_kwargs: Mapping[str, Any]) -> Any:
    """As the pipeline builds it: without a requested loss, with PyKEEN's default, not the model's."""
    known = pipeline_kwargs["training"]
    return pipeline_kwargs["model"](
        triples_factory=KGInfo(known.num_entities, known.real_num_relations, known.create_inverse_triples),
        loss=loss_resolver.make(pipeline_kwargs.get("loss")),
        random_seed=NoRandomSeedNecessary,
        **pipeline_kwargs["model_kwargs"],
    )


def _optimizer(
    pipeline_kwargs: Mapping[str, Any], model: Any, more: Mapping[str, Any]
) -> torch.optim.Optimizer:
    settings = {**pipeline_kwargs["optimizer_kwargs"], **more}
    with torch.device("cpu"):  # it reads its step counter
        optimizer: torch.optim.Optimizer = optimizer_resolver.make(
            pipeline_kwargs["optimizer"], settings, params=model.get_grad_params()
        )
    return optimizer


def _sampled(rows: int) -> dict[str, torch.Tensor]:
    return {
        "positives": torch.empty(rows, 3, dtype=torch.long),
        "negatives": torch.empty(rows, _NEGATIVES, 3, dtype=torch.long),
    }


def _labelled(rows: int, entities: int) -> dict[str, torch.Tensor]:
    return {"pairs": torch.empty(rows, 2, dtype=torch.long), "target": torch.empty(rows, entities)}


def _loss_of_samples(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    how = {"model": model, "loss": model.loss, "mode": None, "start": 0, "stop": len(batch["positives"])}
    loss: torch.Tensor = SLCWATrainingLoop._process_batch_static(batch=batch, **how)
    return loss


def _loss_against_all(model: Any, batch: Mapping[str, torch.Tensor], smoothing: float) -> torch.Tensor:
    how = {"model": model, "loss": model.loss, "mode": None, "start": 0, "stop": len(batch["pairs"])}
    how |= {"score_method": model.score_t, "num_targets": model.num_entities, "label_smoothing": smoothing}
    loss: torch.Tensor = LCWATrainingLoop._process_batch_static(batch=batch, **how)
    return loss


def _kept_by_loader(
    training: CoreTriplesFactory, device: torch.device, against_all: bool
) -> torch.Tensor | None:
    """The loader's copy of the triples with inverses, if it is in the predicted memory."""
    copied = training.create_inverse_triples and not against_all and device.type == "cpu"
    return torch.empty(_triples(training), 3, dtype=torch.long) if copied else None


def _triples(training: CoreTriplesFactory) -> int:
    return len(training.mapped_triples) * (2 if training.create_inverse_triples else 1)


def _queries(training: CoreTriplesFactory) -> int:
    """Number of distinct (entity, relation) pairs, which an LCWA loop iterates over."""
    heads, relations, tails = training.mapped_triples.unbind(1)
    sides = (heads, tails) if training.create_inverse_triples else (heads,)
    return sum(len((side * training.real_num_relations + relations).unique()) for side in sides)
