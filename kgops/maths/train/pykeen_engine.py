"""Trains any PyKEEN model with PyKEEN's pipeline, and reports it as kgops events and files."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pykeen.models import ERModel, InductiveERModel, LiteralModel, model_resolver
from pykeen.pipeline import pipeline
from pykeen.training import NonFiniteLossError
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import TriplesFactory

from kgops.errors import Usage
from kgops.jobs.data_digests import text_table
from kgops.jobs.files import read_json, write_json
from kgops.jobs.job import Job
from kgops.jobs.option import defaults_of
from kgops.jobs.option_reading import nearest
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.pykeen_models import PykeenRecipe
from kgops.maths.train.evaluate import quality_table
from kgops.maths.train.loop import Diverged
from kgops.maths.train.pykeen_callbacks import (
    CHECKPOINT,
    MRR,
    KeepForTracin,
    KeepRanks,
    ReportEpochs,
    Tracker,
)
from kgops.maths.train.saved_models import refuse_other_data
from kgops.maths.train.settings import place_of
from kgops.maths.worker.devices import memory_cleanup
from kgops.maths.worker.entry import StopRequest
from kgops.maths.worker.outputs import NOTHING_BEST, write_config
from kgops.maths.worker.report import Reporter, report_applied
from kgops.workloads.registry import values_of
from kgops.workloads.train.job import TRAIN, pykeen_options
from kgops.workloads.train.options import CONVE_LAYERS

_LOSSES = {"kvsall-bce": "bcewithlogits", "kvsall-ce": "crossentropy"}
_NEED_INVERSES = ("ConvE", "CompGCN", "NodePiece")
_METRICS = {
    "count": "count",
    "mrr": "inverse_harmonic_mean_rank",
    "mean_rank": "arithmetic_mean_rank",
    "hits_at_1": "hits_at_1",
    "hits_at_3": "hits_at_3",
    "hits_at_10": "hits_at_10",
}
_DATA = "resume_pykeen.json"  # digests of the data that the training began with


def train(
    job: Job,
    graph: Graph,
    device: torch.device,
    results: Path,
    report: Reporter,
    stop: StopRequest,
) -> dict[str, float]:
    settings = job.settings
    model = find_model(settings["model"])
    if not len(graph.test):
        raise Usage("PyKEEN's pipeline ranks test triples, and there are none.", hint="give a file: --test.")
    model_kwargs = model_settings(model, settings, report)
    report_applied(job, pykeen_options(job, place_of(device)), report, {"memory_cleanup"})
    checkpoints = results / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    _resume(checkpoints, graph, report)
    triples = factories(graph, model, settings)
    recipe = recipe_of(model, model_kwargs, graph, triples["training"])
    checkpointing = KeepForTracin(checkpoints, settings, recipe, graph)
    with memory_cleanup(job, device, report) as cleanup:
        progress = ReportEpochs(settings["num_epochs"], checkpoints / CHECKPOINT, report, stop, cleanup)
        evaluator = KeepRanks()
        pipeline_kwargs = {
            **triples,
            "evaluator": evaluator,
            "model": model,
            "model_kwargs": model_kwargs,
            **_optimizer(settings),
            **_loss(settings),
            **_stopper(settings, graph, results),
            "training_kwargs": _training(job, checkpoints, [checkpointing, progress]),
        }
        done = _run(pipeline_kwargs, settings, device, report)
    _keep_best(done, results, report, validates="stopper" in pipeline_kwargs)
    test: dict[str, Any] = {side: _metrics(done.metric_results, side) for side in ("both", "head", "tail")}
    test |= quality_table(evaluator.newest(), graph)
    best = done.stopper.best_epoch if hasattr(done.stopper, "best_epoch") else None
    metrics = {
        "epochs": float(len(done.losses)),
        "train_s": progress.seconds,
        **{f"test_{name}": value for name, value in test["both"].items() if name != "count"},
    }
    if best is not None:
        metrics |= {"best_epoch": float(best), "best_valid_mrr": float(done.stopper.best_metric)}
    report.metric("test_mrr", metrics["test_mrr"], len(done.losses))
    (checkpoints / f"{CHECKPOINT}.before").unlink(missing_ok=True)
    _write(done, results, test, settings, report)
    facts = {name: value for name, value in asdict(recipe).items() if name != "kwargs"}
    write_config(job, results, {**facts, **model_kwargs}, _training_config(settings), graph.digests, report)
    return metrics


def _run(
    pipeline_kwargs: dict[str, Any], settings: dict[str, Any], device: torch.device, report: Reporter
) -> Any:
    """Runs PyKEEN's pipeline; translates its error for a loss that is not a number."""
    rate = settings["learning_rate"]
    try:
        return pipeline(
            **pipeline_kwargs,
            result_tracker=Tracker(report),
            device=device,
            random_seed=settings["seed"],
            use_tqdm=False,
        )
    except NonFiniteLossError as error:
        raise Diverged(
            f"the loss is not a number any more (learning rate {rate:.2g}).",
            hint=f"try a learning rate below {rate / 3:.2g}.",
        ) from error


def find_model(name: str) -> Any:
    """The model class by PyKEEN's name, in upper or lower case."""
    known = {cls.__name__: cls for cls in model_resolver.lookup_dict.values()}
    by_small = {label.lower(): label for label in known}
    if name.lower() not in by_small:
        suggestion = nearest(name.lower(), by_small)
        for small, label in by_small.items():
            suggestion = suggestion.replace(f"'{small}'", f"'{label}'")
        raise Usage(f"PyKEEN has no model {name!r:.60}{suggestion}")
    label = by_small[name.lower()]
    cls = known[label]
    if issubclass(cls, LiteralModel):
        raise Usage(f"{label} needs literals, and a graph of triples has none.")
    if issubclass(cls, InductiveERModel):
        raise Usage(f"{label} is inductive: it needs a second graph.")
    if not issubclass(cls, ERModel):
        raise Usage(f"{label} cannot be trained: it is one of PyKEEN's baselines.")
    return cls


def model_settings(model: Any, settings: dict[str, Any], report: Reporter) -> dict[str, Any]:
    """The job's settings that this model takes; a note lists changed ones that it lacks."""
    takes = inspect.signature(model.__init__).parameters
    names = {name: name for name in ("embedding_dim", *CONVE_LAYERS)}
    names["batch_norm"] = "apply_batch_normalization"
    defaults = defaults_of(TRAIN.settings)
    unused = [
        name
        for name, pykeen_name in names.items()
        if pykeen_name not in takes and settings[name] != defaults[name]
    ]
    if unused:
        report.note(f"{model.__name__} has no {', '.join(unused)}: left out.")
    return {
        pykeen_name: settings[name]
        for name, pykeen_name in names.items()
        if pykeen_name in takes and settings[name] is not None
    }


def factories(graph: Graph, model: Any, settings: dict[str, Any]) -> dict[str, Any]:
    inverse = settings["inverse"]
    if inverse is None:
        inverse = model.__name__ in _NEED_INVERSES
    ids = {"entity_to_id": graph.entities.ids, "relation_to_id": graph.relations.ids}
    triples = {"training": TriplesFactory(graph.train, create_inverse_triples=inverse, **ids)}
    triples["testing"] = TriplesFactory(graph.test, **ids)
    if len(graph.valid):
        triples["validation"] = TriplesFactory(graph.valid, **ids)
    return triples


def recipe_of(
    model: Any, model_kwargs: dict[str, Any], graph: Graph, training: TriplesFactory
) -> PykeenRecipe:
    sizes = (graph.num_entities, graph.num_relations, bool(training.create_inverse_triples))
    return PykeenRecipe(model.__name__, model_kwargs, *sizes)


def _loss(settings: dict[str, Any]) -> dict[str, Any]:
    """A requested loss is computed against all entities (LCWA); the default is PyKEEN's, on sampled negatives."""
    if settings["loss"] is None:
        return {"training_loop": "slcwa"}
    return {"training_loop": "lcwa", "loss": _LOSSES[settings["loss"]]}


def _optimizer(settings: dict[str, Any]) -> dict[str, Any]:
    """AdamW as Adam with decoupled weight decay. The pipeline rebuilds an optimizer from its defaults. The defaults of
    torch's AdamW have a key that its constructor does not take."""
    name, optimizer_kwargs = (
        settings["optimizer"],
        {"lr": settings["learning_rate"], "weight_decay": settings["weight_decay"]},
    )
    if name == "adamw":
        return {"optimizer": "adam", "optimizer_kwargs": {**optimizer_kwargs, "decoupled_weight_decay": True}}
    return {"optimizer": name, "optimizer_kwargs": optimizer_kwargs}


def _stopper(settings: dict[str, Any], graph: Graph, results: Path) -> dict[str, Any]:
    if not len(graph.valid) or not settings["validate_every"]:
        return {}
    wanted = {
        "metric": MRR,
        "frequency": settings["validate_every"],
        "patience": settings["patience"] or 1 << 30,
        "relative_delta": 0.0,
        "best_model_path": results / "best_model.pt",
        "clean_up_checkpoint": False,
    }
    return {"stopper": "early", "stopper_kwargs": wanted}


def _training(job: Job, checkpoints: Path, callbacks: list[TrainingCallback]) -> dict[str, Any]:
    settings = job.settings
    extra: dict[str, Any] = {}
    if settings["loss"] is not None:
        extra["label_smoothing"] = settings["label_smoothing"]
    if job.options.get("grad_clip"):
        extra["gradient_clipping_max_norm"] = job.options["grad_clip"]
    if job.options.get("num_workers"):
        extra["num_workers"] = job.options["num_workers"]
    return {
        "num_epochs": settings["num_epochs"],
        "batch_size": values_of(job)["batch_size"],
        "callbacks": callbacks,
        "checkpoint_directory": checkpoints,
        "checkpoint_name": CHECKPOINT,
        "pin_memory": torch.cuda.is_available(),
        "checkpoint_frequency": int(settings["resume_every"] // 60),  # minutes; 0 is after every epoch
        **extra,
    }


def _resume(checkpoints: Path, graph: Graph, report: Reporter) -> None:
    """Leaves PyKEEN a complete checkpoint to resume from; removes truncated ones. Refuses to go on with other data."""
    data = checkpoints / _DATA
    newest, before = checkpoints / CHECKPOINT, checkpoints / f"{CHECKPOINT}.before"
    for path in (newest, before):
        if not path.exists():
            continue
        try:
            # Written by this run to its folder: PyKEEN's loader unpickles it as well.
            epoch = torch.load(path, map_location="cpu", weights_only=False)["epoch"]
        except Exception as error:  # unpickling a truncated file may raise anything
            report.note(f"{path.name} is truncated ({type(error).__name__}): not used.")
            path.unlink()
            continue
        refuse_other_data(graph, text_table(read_json(data)))
        path.rename(newest)
        report.note(f"resumed after epoch {epoch}.")
        return
    write_json(data, graph.digests)


def _metrics(metric_results: Any, side: str) -> dict[str, float]:
    return {
        name: float(metric_results.get_metric(f"{side}.realistic.{pykeen_name}"))
        for name, pykeen_name in _METRICS.items()
    }


def _keep_best(done: Any, results: Path, report: Reporter, *, validates: bool) -> None:
    """Writes the last weights as the best, where the training ended before its first validation."""
    best = results / "best_model.pt"
    if not validates:
        report.note(NOTHING_BEST)
    elif not best.exists():
        torch.save(done.model.state_dict(), best)
        report.note("best_model.pt has the last weights: the training ended before its first validation.")


def _write(
    done: Any, results: Path, test: dict[str, Any], settings: dict[str, Any], report: Reporter
) -> None:
    done.save_to_directory(results / "pykeen")
    torch.save(done.model.state_dict(), results / "final_model.pt")
    history: list[dict[str, Any]] = [{"epoch": n, "loss": loss} for n, loss in enumerate(done.losses, 1)]
    for n, mrr in enumerate(getattr(done.stopper, "results", []), 1):
        history[n * settings["validate_every"] - 1]["valid"] = {"both": {"mrr": mrr}}
    write_json(results / "training_history.json", history)
    write_json(results / "test_results.json", test)
    for path, kind in (
        (results / "best_model.pt", "best_model"),
        (results / "final_model.pt", "model"),
        (results / "pykeen" / "trained_model.pkl", "model"),
        (results / "training_history.json", "history"),
        (results / "test_results.json", "metrics"),
    ):
        if path.exists():
            report.artifact(path, kind)


def _training_config(settings: dict[str, Any]) -> dict[str, Any]:
    names = [
        "num_epochs",
        "loss",
        "optimizer",
        "learning_rate",
        "weight_decay",
        "seed",
        "validate_every",
        "patience",
    ]
    if settings["loss"] is not None:  # the model's own takes no smoothing
        names.append("label_smoothing")
    return {name: settings[name] for name in names}
