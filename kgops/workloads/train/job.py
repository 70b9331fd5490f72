"""The workload `train`: its checks, its label and the options that it applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from kgops.jobs.job import Job
from kgops.jobs.on_device import (
    NO_GPU,
    NOTHING_TO_LOAD,
    Applied,
    ValueAndReason,
    WorkerDevice,
    applied_cleanup,
    gradient_scaling,
    training_compile,
    training_precision,
)
from kgops.jobs.option import defaults_of
from kgops.jobs.text import on_or_off
from kgops.workloads.shared_options import TRIPLES
from kgops.workloads.train.options import (
    CONVE,
    CONVE_LAYERS,
    GROUPED_LOSS,
    OF_PYKEEN,
    OWN_MODELS,
    TRAIN_BATCH,
    TRAIN_OPTIONS,
    VECTOR_MODELS,
    loss_chunk,
)
from kgops.workloads.workload import Words, Workload

# A run's model is the first that is there: only validation leaves the best one.
MODELS = ("best_model.pt", "final_model.pt")
_DEFAULTS = defaults_of(TRAIN_OPTIONS)


def _check(settings: dict[str, Any]) -> list[str]:
    given = [name for name in TRIPLES if settings[name]]
    problems = []
    if settings["dataset"] and given:
        problems.append(f"train.dataset: given together with {', '.join(given)}; choose one or the other")
    if not settings["dataset"] and not settings["train"]:
        problems.append("train.dataset: missing, and so is train.train; name a dataset or a file of triples")
    model, loss = settings["model"], settings["loss"] or ""
    if settings["engine"] == "kgops" and model.lower() not in OWN_MODELS:
        own = ", ".join(OWN_MODELS.values())
        problems.append(f"train.model: kgops trains {own}; for {model!r:.60} choose the engine pykeen")
    problems += _problems_of_model(settings)
    if settings["engine"] == "pykeen" and loss.startswith("1vsall"):
        problems.append("train.loss: PyKEEN has no 1vsAll; choose kvsall-bce or kvsall-ce, or leave it out")
    if settings["group_queries"] and (settings["engine"] != "kgops" or loss != GROUPED_LOSS):
        problems.append(f"train.group_queries: only for kgops' engine and the loss {GROUPED_LOSS}")
    if settings["engine"] == "pykeen":
        problems += _pykeen_problems(settings)
    return problems + _check_validations(settings)


_ONLY_VECTORS = ("regularizer", "regularizer_weight", "relation_prediction")


def _problems_of_model(settings: Mapping[str, Any]) -> list[str]:
    """Settings that this model has no use for."""
    own = OWN_MODELS.get(settings["model"].lower()) if settings["engine"] == "kgops" else None
    if own in VECTOR_MODELS:
        changed = [name for name in CONVE_LAYERS if settings[name] != _DEFAULTS[name]]
        problems = [f"train.{name}: {own} has no layers; leave it out" for name in changed]
        weight = settings["regularizer_weight"]
        if settings["regularizer"] == "none" and weight != _DEFAULTS["regularizer_weight"]:
            problems.append("train.regularizer_weight: only with a regularizer, such as n3")
        return problems
    changed = [name for name in _ONLY_VECTORS if settings[name] != _DEFAULTS[name]]
    return [f"train.{name}: only for {' and '.join(VECTOR_MODELS)} of kgops' engine" for name in changed]


def _pykeen_problems(settings: dict[str, Any]) -> list[str]:
    """Problems of settings that PyKEEN's pipeline has no use for."""
    changed = [name for name in ("schedule", "warmup_epochs") if settings[name] != _DEFAULTS[name]]
    problems = [f"train.{name}: only kgops' own engine changes the learning rate" for name in changed]
    if settings["loss"] is None and settings["label_smoothing"] != _DEFAULTS["label_smoothing"]:
        problems.append("train.label_smoothing: the model's own loss in PyKEEN has none; choose a loss")
    return problems


def _check_validations(settings: dict[str, Any]) -> list[str]:
    """Problems of options that count validations, or plateaus, where there are none."""
    problems, plateau = [], settings["schedule"] == "plateau"
    if not settings["validate_every"]:
        asked = [*(["patience"] if settings["patience"] else []), *(["schedule"] if plateau else [])]
        problems += [f"train.{name}: counts validations, and validate_every is 0: never" for name in asked]
    for name in ("schedule_factor", "schedule_patience"):
        if not plateau and settings[name] != _DEFAULTS[name]:
            problems.append(f"train.{name}: only for the schedule plateau")
    return problems


def _label(settings: dict[str, Any]) -> str:
    path = PurePath(settings["train"] or "")
    data = str(settings["dataset"] or path.parent.name or path.stem)
    own = OWN_MODELS.get(settings["model"].lower()) if settings["engine"] == "kgops" else None
    return data if own == CONVE else f"{data} {own or settings['model']}"


def _notes(settings: Mapping[str, Any]) -> list[str]:
    if not settings["train"] or settings["test"]:
        return []
    return [
        "without --test there is no test MRR"
        + ("." if settings["valid"] else ", and without --valid no best model.")
    ]


def _implied(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`--model RotatE` needs no `--engine pykeen`: kgops does not train it."""
    model = settings.get("model")
    return {"engine": "pykeen"} if model and model.lower() not in OWN_MODELS else {}


WORDS = Words(
    help="""Train and evaluate ConvE, ComplEx, DistMult, or any PyKEEN model, on a dataset or files of triples.

    Every flag of train_pytorch.py is accepted. The default trains another objective: a sample is a (head, relation)
    with all its tails. Inverse relations are added. --recipe script trains the objective of the script.
    """,
    example="--dataset nations --num-epochs 20",
    plan_example="--dataset umls --gpu t4",
    shown=(
        *("recipe", "dataset", "train", "valid", "test", "output_dir", "engine", "model", "embedding_dim"),
        *("num_epochs", "batch_size", "learning_rate", "loss", "seed", "precision"),
    ),
    paths=(*TRIPLES, "output_dir"),
    starts_from="kgops.workloads.train.recipes",
    notes=_notes,
    implied=_implied,
)


TRAIN = Workload(
    name="train",
    summary="ConvE, or any model of PyKEEN's, on a knowledge graph",
    options=TRAIN_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # it resumes bit for bit, so a lost worker costs a minute
    module="kgops.maths.train.worker",
    inputs=TRIPLES,
    epochs="num_epochs",
    smaller=("a smaller model (--embedding-dim, --output-channels)",),
    words=WORDS,
)


def training_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of a training by kgops' own engine; those that nothing decides are applied as requested."""
    decided = list(_decided_options(job, device))
    yield from decided
    names = {one.option for one in decided}
    for name, value in job.options.items():
        if name == "num_workers":
            yield Applied(name, 0, NOTHING_TO_LOAD)
        elif name not in TRAIN.optimizations:
            yield Applied(name, "off", "training has no such option")
        elif name not in names:
            yield Applied(name, value)


def _decided_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    requested = job.options
    precision, precision_reason = training_precision(requested.get("precision", "fp32"), device)
    batch, chunk = requested.get("batch_size", TRAIN_BATCH), requested.get("entity_chunk", "auto")
    checkpointing = bool(requested.get("gradient_checkpointing", False))
    yield Applied("precision", precision, precision_reason)
    yield Applied("batch_size", batch)
    if chunk != "auto":
        yield Applied("entity_chunk", chunk)
    else:
        default_chunk = loss_chunk(None, batch, device.kind)
        yield Applied("entity_chunk", default_chunk, "by device and batch size")
    yield Applied("gradient_checkpointing", on_or_off(checkpointing))
    yield Applied("compile", *training_compile(job, device, checkpointing))
    yield Applied("cuda_graphs", *_cuda_graphs(requested.get("cuda_graphs", False), device))
    yield gradient_scaling(requested, precision)
    plain = device.kind == "cuda" and job.settings["optimizer"] == "adagrad"
    fused = "training uses torch's fused optimizer step where it exists"
    yield Applied(
        "optimizer_kernel",
        "plain" if plain else "fused",
        fused if requested.get("optimizer_kernel") == "plain" else None,
    )
    yield applied_cleanup(job, device)


def _cuda_graphs(is_requested: bool, device: WorkerDevice) -> ValueAndReason:
    if not is_requested:
        return "off", None
    return ("on", None) if device.kind == "cuda" else ("off", NO_GPU)


def pykeen_options(job: Job, device: WorkerDevice) -> Iterator[Applied]:
    """Applied options of PyKEEN's pipeline."""
    requested = job.options
    precision = requested.get("precision", "fp32")
    yield Applied("batch_size", requested.get("batch_size", TRAIN_BATCH))
    yield Applied("precision", "fp32", None if precision == "fp32" else "PyKEEN's pipeline trains in float32")
    yield applied_cleanup(job, device)
    for name, value in {"gradient_checkpointing": False, **requested}.items():
        if name in OF_PYKEEN:
            yield Applied(name, value)
        elif name not in ("batch_size", "precision", "memory_cleanup"):
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "PyKEEN's pipeline has no such option")
