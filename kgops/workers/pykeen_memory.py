"""What one step of PyKEEN's training loop will hold, by a trace on the `meta` device before the first step.

The model is built once more without memory and stepped as PyKEEN's own loop steps it; on a CPU triples are
ranked as well, which often takes more. On a GPU PyKEEN ranks as many at a time as fit, so there only a step can be
told. What is predicted are tensors that live, weights and the optimizer's state among them: not the triples a run
has read, not a GPU's context or its allocator's rounding. See `meta_trace` for what a trace cannot see.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from pykeen.losses import loss_resolver
from pykeen.optimizers import optimizer_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
from pykeen.triples import CoreTriplesFactory, KGInfo
from pykeen.utils import NoRandomSeedNecessary

from kgops.errors import KgopsError
from kgops.training.meta_trace import Traced, trace_peak
from kgops.workers.report import Reporter

__all__ = ["Untraceable", "predict_ranking", "predict_step", "tell_prediction"]

_LOOK_AT_GRAPH = ("CompGCN", "NodePiece", "RGCN")
_NEGATIVES = 1  # a triple: PyKEEN's default, and the pipeline is told nothing else
_RANKED = 32  # triples at a time: PyKEEN's choice on a CPU, and the pipeline is told nothing else
_MIB = 1 << 20
_Cached = type(lru_cache(lambda: None))


class Untraceable(KgopsError):
    """A model whose step cannot be followed without its values."""


def tell_prediction(pieces: Mapping[str, Any], device: torch.device, report: Reporter) -> None:
    """Of the run that `pipeline(**pieces)` is about to be; where there is none, a note says why. Never raises."""
    try:
        step, ranking = predict_step(pieces, device), predict_ranking(pieces, device)
    except Untraceable as why:
        report.note(f"its memory was not predicted: {why.message}")
    except Exception as error:  # whatever a model does on `meta`, its training may do well
        said = " ".join(str(error).split())
        report.note(f"its memory was not predicted: the trace met {type(error).__name__}: {said[:200]}")
    else:
        most = step if ranking is None else max(step, ranking)
        report.predicted(
            most.peak / _MIB,
            of="tensors in a training step" if most is step else "tensors while triples are ranked",
            by="a trace in the worker",
            operator=most.operator,
            step_mib=step.peak / _MIB,
        )


def predict_step(pieces: Mapping[str, Any], device: torch.device) -> Traced:
    """The most that lives in a step of `pipeline(**pieces)` on `device`. No random number is drawn for it."""
    name, training = pieces["model"].__name__, pieces["training"]
    if name in _LOOK_AT_GRAPH:
        raise Untraceable(f"{name} works on the graph itself, and a trace knows sizes alone.")
    against_all = pieces["training_loop"] == "lcwa"
    there_are = _queries(training) if against_all else _triples(training)
    rows = min(pieces["training_kwargs"]["batch_size"], there_are)
    with _leaving_nothing():
        return trace_peak(lambda: _two_steps(pieces, device, rows, against_all))


def predict_ranking(pieces: Mapping[str, Any], device: torch.device) -> Traced | None:
    """The most that lives while test or validation triples are ranked, beside what training leaves; None on a GPU."""
    if device.type != "cpu":
        return None
    ranked = [len(pieces[name].mapped_triples) for name in ("testing", "validation") if name in pieces]
    rows = min(_RANKED, max(ranked))
    known = sum(ranked) + len(pieces["training"].mapped_triples)
    with _leaving_nothing():
        return trace_peak(lambda: _ranked(pieces, rows, known))


@contextmanager
def _leaving_nothing() -> Iterator[None]:
    """On `meta`, without a trace of it in the run: no random number drawn, no tensor of it in PyKEEN's caches."""
    _forget()  # nor may the trace meet real ones
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            yield
    finally:
        _forget()


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("pykeen."):
            for found in vars(module).values():
                if isinstance(found, _Cached):  # QuatE's table of products is one
                    found.cache_clear()


def _ranked(pieces: Mapping[str, Any], rows: int, known: int) -> None:
    """As PyKEEN's evaluator goes until it looks for values: heads and tails, each among all others."""
    model = _model(pieces)
    optimizer = _optimizer(pieces, model, {})
    for weight in model.get_grad_params():  # a step leaves its state behind, and its gradients are dropped
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


def _two_steps(pieces: Mapping[str, Any], device: torch.device, rows: int, against_all: bool) -> None:
    """As `TrainingLoop._train_epoch` and its optimizer's callback go: those also read values, which `meta` lacks."""
    model, training = _model(pieces).train(), pieces["training"]
    # On GPUs torch updates all tensors at a time unasked, elsewhere one after another.
    optimizer = _optimizer(pieces, model, {"foreach": True} if device.type == "cuda" else {})
    smoothing = pieces["training_kwargs"].get("label_smoothing", 0.0)
    loader = _kept_by_loader(training, device, against_all)
    for _ in range(2):
        # While the one before still lives, as where a loop goes over a loader.
        batch = _labelled(rows, training.num_entities) if against_all else _sampled(rows)
        optimizer.zero_grad(set_to_none=True)
        loss = _loss_against_all(model, batch, smoothing) if against_all else _loss_of_samples(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        del loss
        model.post_forward_pass()
        optimizer.step()
        model.post_parameter_update()
    del loader


def _model(pieces: Mapping[str, Any]) -> Any:
    """As the pipeline builds it: without a loss named it takes PyKEEN's default, whatever the model's is."""
    known = pieces["training"]
    return pieces["model"](
        triples_factory=KGInfo(known.num_entities, known.real_num_relations, known.create_inverse_triples),
        loss=loss_resolver.make(pieces.get("loss")),
        random_seed=NoRandomSeedNecessary,
        **pieces["model_kwargs"],
    )


def _optimizer(pieces: Mapping[str, Any], model: Any, more: Mapping[str, Any]) -> torch.optim.Optimizer:
    settings = {**pieces["optimizer_kwargs"], **more}
    with torch.device("cpu"):  # it reads its counter of steps
        made: torch.optim.Optimizer = optimizer_resolver.make(
            pieces["optimizer"], settings, params=model.get_grad_params()
        )
    return made


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
    """Its copy of the triples with their inverses, in the memory that is asked about."""
    copied = training.create_inverse_triples and not against_all and device.type == "cpu"
    return torch.empty(_triples(training), 3, dtype=torch.long) if copied else None


def _triples(training: CoreTriplesFactory) -> int:
    return len(training.mapped_triples) * (2 if training.create_inverse_triples else 1)


def _queries(training: CoreTriplesFactory) -> int:
    """Different pairs of an entity and a relation: what a loop against all entities goes over."""
    heads, relations, tails = training.mapped_triples.unbind(1)
    sides = (heads, tails) if training.create_inverse_triples else (heads,)
    return sum(len((side * training.real_num_relations + relations).unique()) for side in sides)
