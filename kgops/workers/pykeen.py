"""Any of PyKEEN's models through PyKEEN's own pipeline, told of in kgops' events and kept in kgops' folder."""

from __future__ import annotations

import inspect
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pykeen.models import ERModel, InductiveERModel, LiteralModel, model_resolver
from pykeen.pipeline import pipeline
from pykeen.trackers import ResultTracker
from pykeen.training import NonFiniteLossError
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import TriplesFactory

from kgops.errors import Usage
from kgops.graphs.triples import Graph
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.jobs.keys import nearest
from kgops.jobs.on_device import pykeen_options
from kgops.jobs.train import KEYS
from kgops.training.loop import Diverged
from kgops.training.memory_cleanup import MemoryCleanup
from kgops.training.precision import place_of
from kgops.training.reporter import Progress
from kgops.workers.cleanup import memory_cleanup
from kgops.workers.entry import Stopped, StopRequest
from kgops.workers.outputs import write_config
from kgops.workers.pykeen_kept import Keeping, recipe_of
from kgops.workers.pykeen_memory import tell_prediction
from kgops.workers.report import Reporter, tell_applied

__all__ = ["find_model", "train"]

BATCH_SIZE = 256
_LOSSES = {"kvsall-bce": "bcewithlogits", "kvsall-ce": "crossentropy"}
_NEED_INVERSES = ("ConvE", "CompGCN", "NodePiece")
_MRR = "both.realistic.inverse_harmonic_mean_rank"
_METRICS = {
    "count": "count",
    "mrr": "inverse_harmonic_mean_rank",
    "mean_rank": "arithmetic_mean_rank",
    "hits_at_1": "hits_at_1",
    "hits_at_3": "hits_at_3",
    "hits_at_10": "hits_at_10",
}
_CHECKPOINT = "resume_pykeen.pt"


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
        raise Usage(
            "PyKEEN's pipeline ends with ranking test triples, and there are none.", hint="name them: --test."
        )
    shape = model_settings(model, settings, report)
    tell_applied(job, pykeen_options(job, place_of(device)), report, {"memory_cleanup"})
    checkpoints = results / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    _take_up(checkpoints, report)
    made = factories(graph, model, settings)
    recipe = recipe_of(model, shape, graph, made["training"])
    keeping = Keeping(checkpoints, settings, recipe, graph)
    with memory_cleanup(job, device, report) as cleanup:
        telling = _Telling(settings["num_epochs"], checkpoints / _CHECKPOINT, report, stop, cleanup)
        pieces = {
            **made,
            "model": model,
            "model_kwargs": shape,
            **_optimizer(settings),
            **_loss(settings),
            **_stopper(settings, graph, results),
            "training_kwargs": _training(job, checkpoints, [keeping, telling]),
        }
        tell_prediction(pieces, device, report)
        done = _run(pieces, settings, device, report)
    test = {side: _metrics(done.metric_results, side) for side in ("both", "head", "tail")}
    best = done.stopper.best_epoch if hasattr(done.stopper, "best_epoch") else None
    metrics = {
        "epochs": float(len(done.losses)),
        "train_s": telling.seconds,
        **{f"test_{name}": value for name, value in test["both"].items() if name != "count"},
    }
    if best is not None:
        metrics |= {"best_epoch": float(best), "best_valid_mrr": float(done.stopper.best_metric)}
    report.metric("test_mrr", metrics["test_mrr"], len(done.losses))
    (checkpoints / f"{_CHECKPOINT}.before").unlink(missing_ok=True)
    _write(done, results, test, settings, report)
    facts = {name: value for name, value in asdict(recipe).items() if name != "kwargs"}
    write_config(job, results, {**facts, **shape}, _told(settings), report)
    return metrics


def _run(pieces: dict[str, Any], settings: dict[str, Any], device: torch.device, report: Reporter) -> Any:
    """PyKEEN's pipeline; its words for a loss that is no number are made ours."""
    rate = settings["learning_rate"]
    try:
        return pipeline(
            **pieces,
            result_tracker=_Tracker(report),
            device=device,
            random_seed=settings["seed"],
            use_tqdm=False,
        )
    except NonFiniteLossError as error:
        raise Diverged(
            f"the loss is no number any more (learning rate {rate:.2g}).",
            hint=f"try a learning rate below {rate / 3:.2g}.",
        ) from error


def find_model(name: str) -> Any:
    """The class; names as PyKEEN takes them, large or small."""
    known = {cls.__name__: cls for cls in model_resolver.lookup_dict.values()}
    by_small = {label.lower(): label for label in known}
    if name.lower() not in by_small:
        near = nearest(name.lower(), by_small)
        for small, label in by_small.items():
            near = near.replace(f"'{small}'", f"'{label}'")
        raise Usage(f"PyKEEN has no model {name!r:.60}{near}")
    label = by_small[name.lower()]
    cls = known[label]
    if issubclass(cls, LiteralModel):
        raise Usage(f"{label} learns from literals as well, and a graph of triples has none.")
    if issubclass(cls, InductiveERModel):
        raise Usage(f"{label} needs a second graph to infer on, and here is only one.")
    if not issubclass(cls, ERModel):
        raise Usage(f"{label} has nothing to train: it is a baseline of PyKEEN's.")
    return cls


def model_settings(model: Any, settings: dict[str, Any], report: Reporter) -> dict[str, Any]:
    """Of the job's settings those this model has; one that was changed in vain is told."""
    takes = inspect.signature(model.__init__).parameters
    names = {
        "embedding_dim": "embedding_dim",
        "batch_norm": "apply_batch_normalization",
        **{name: name for name in ("input_channels", "embedding_height", "embedding_width")},
        **{name: name for name in ("output_channels", "kernel_height", "kernel_width")},
        **{name: name for name in ("input_dropout", "feature_map_dropout", "output_dropout")},
        "relation_dropout": "relation_dropout",
    }
    defaults = {key.name: key.default for key in KEYS}
    vain = [name for name, far in names.items() if far not in takes and settings[name] != defaults[name]]
    if vain:
        report.note(f"{model.__name__} has no {', '.join(vain)}: left out.")
    return {far: settings[name] for name, far in names.items() if far in takes and settings[name] is not None}


def factories(graph: Graph, model: Any, settings: dict[str, Any]) -> dict[str, Any]:
    inverse = settings["inverse"]
    if inverse is None:
        inverse = model.__name__ in _NEED_INVERSES
    ids = {"entity_to_id": graph.entities.ids, "relation_to_id": graph.relations.ids}
    made = {"training": TriplesFactory(graph.train, create_inverse_triples=inverse, **ids)}
    made["testing"] = TriplesFactory(graph.test, **ids)
    if len(graph.valid):
        made["validation"] = TriplesFactory(graph.valid, **ids)
    return made


def _loss(settings: dict[str, Any]) -> dict[str, Any]:
    """Named by the person: against all entities. Else the pipeline's way, margin ranking on sampled negatives."""
    if settings["loss"] is None:
        return {"training_loop": "slcwa"}
    return {"training_loop": "lcwa", "loss": _LOSSES[settings["loss"]]}


def _optimizer(settings: dict[str, Any]) -> dict[str, Any]:
    """AdamW by its other name: the pipeline makes an optimizer again from its defaults, and of torch's AdamW those
    have a word that its constructor does not take."""
    name, given = (
        settings["optimizer"],
        {"lr": settings["learning_rate"], "weight_decay": settings["weight_decay"]},
    )
    if name == "adamw":
        return {"optimizer": "adam", "optimizer_kwargs": {**given, "decoupled_weight_decay": True}}
    return {"optimizer": name, "optimizer_kwargs": given}


def _stopper(settings: dict[str, Any], graph: Graph, results: Path) -> dict[str, Any]:
    if not len(graph.valid) or not settings["validate_every"]:
        return {}
    wanted = {
        "metric": _MRR,
        "frequency": settings["validate_every"],
        "patience": settings["patience"] or 1 << 30,
        "relative_delta": 0.0,
        "best_model_path": results / "best_model.pt",
        "clean_up_checkpoint": False,
    }
    return {"stopper": "early", "stopper_kwargs": wanted}


def _training(job: Job, checkpoints: Path, callbacks: list[TrainingCallback]) -> dict[str, Any]:
    settings = job.settings
    more: dict[str, Any] = {}
    if settings["loss"] is not None:
        more["label_smoothing"] = settings["label_smoothing"]
    if job.options.get("num_workers"):
        more["num_workers"] = job.options["num_workers"]
    return {
        "num_epochs": settings["num_epochs"],
        "batch_size": job.options.get("batch_size", BATCH_SIZE),
        "callbacks": callbacks,
        "checkpoint_directory": checkpoints,
        "checkpoint_name": _CHECKPOINT,
        "pin_memory": torch.cuda.is_available(),
        "checkpoint_frequency": int(settings["resume_every"] // 60),  # minutes; 0 is after every epoch
        **more,
    }


def _take_up(checkpoints: Path, report: Reporter) -> None:
    """PyKEEN takes up whatever lies there; a file that a kill cut short must not."""
    newest, before = checkpoints / _CHECKPOINT, checkpoints / f"{_CHECKPOINT}.before"
    for path in (newest, before):
        if not path.exists():
            continue
        try:
            # Written by this run into its own folder: PyKEEN's own loader unpickles it as well.
            epoch = torch.load(path, map_location="cpu", weights_only=False)["epoch"]
        except Exception as error:  # of half a file unpickling may raise anything
            report.note(f"{path.name} was cut short ({type(error).__name__}): left out.")
            path.unlink()
            continue
        path.rename(newest)
        report.note(f"resumed after epoch {epoch}.")
        return


class _Telling(TrainingCallback):  # type: ignore[misc]
    """Progress and loss; heeds the wish to stop; keeps the checkpoint before the newest."""

    def __init__(
        self, epochs: int, checkpoint: Path, report: Reporter, stop: StopRequest, cleanup: MemoryCleanup
    ) -> None:
        super().__init__()
        self._cleanup = cleanup
        self.seconds = 0.0
        self._epochs, self._checkpoint, self._report, self._stop = epochs, checkpoint, report, stop
        self._batches = self._batches_an_epoch = self._held = 0
        self._started = time.monotonic()
        self._progress: Progress | None = None

    def pre_batch(self, **kwargs: Any) -> None:
        if not self._batches:
            self._started = time.monotonic()

    def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
        if self._stop():
            raise Stopped
        self._cleanup.after_step()
        self._batches += 1
        if self._progress is None:
            self._progress = Progress(self._report, "train", "epoch", done=epoch - 1)
        if self._batches_an_epoch:
            share = min(1.0, self._batches / self._batches_an_epoch)
            self._progress(round(epoch - 1 + share, 2), self._epochs)

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        took = time.monotonic() - self._started
        self.seconds += took
        self._batches_an_epoch, self._batches = self._batches, 0
        rate = self.optimizer.param_groups[0]["lr"]
        if self._progress is not None:
            self._progress(epoch, self._epochs)
        self._report.metric("learning_rate", rate, epoch)
        self._report.metric("epoch_seconds", took, epoch)
        self._report.metric("loss", epoch_loss, epoch)
        if self.model.device.type == "cuda" and not self._held:
            # Before anything is evaluated: what was predicted is what training holds.
            self._held = torch.cuda.max_memory_allocated(self.model.device)
            self._report.memory(peak_allocated=self._held / 2**20)
        self._cleanup.between_phases()
        if self._checkpoint.exists():
            # PyKEEN writes over it where it lies: whoever kills us in the middle leaves half a file.
            self._checkpoint.rename(self._checkpoint.with_name(f"{_CHECKPOINT}.before"))


class _Tracker(ResultTracker):  # type: ignore[misc]
    """What the early stopper finds in the validation triples; the loss is told by the callback."""

    def __init__(self, report: Reporter) -> None:
        super().__init__()
        self._report = report

    def log_metrics(self, metrics: Any, step: int | None = None, prefix: str | None = None) -> None:
        if prefix != "validation" or step is None:
            return
        for k in (1, 3, 10):
            self._report.metric(f"valid_hits_at_{k}", metrics[f"both.realistic.hits_at_{k}"], step)
        self._report.metric("valid_mrr", metrics[_MRR], step)


def _metrics(found: Any, side: str) -> dict[str, float]:
    return {name: float(found.get_metric(f"{side}.realistic.{far}")) for name, far in _METRICS.items()}


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


def _told(settings: dict[str, Any]) -> dict[str, Any]:
    names = ("num_epochs", "loss", "label_smoothing", "optimizer", "learning_rate", "weight_decay", "seed")
    return {name: settings[name] for name in (*names, "validate_every", "patience")}
