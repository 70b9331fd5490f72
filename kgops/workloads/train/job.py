"""The workload `train`: the sizes of ConvE, its checks and its label."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import PurePath
from typing import Any

from kgops.errors import Usage
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
from kgops.jobs.option import Option, at_least, defaults_of, problems_of
from kgops.jobs.text import on_or_off
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.shared_options import TRIPLES
from kgops.workloads.train.options import GROUPED_LOSS, TRAIN_BATCH, TRAIN_OPTIONS, loss_chunk
from kgops.workloads.workload import Words, Workload

# A run's model is the first that is there: only validation leaves the best one.
MODELS = ("best_model.pt", "final_model.pt")
_LONGEST = 1 << 20
_DEFAULTS = defaults_of(TRAIN_OPTIONS)
_GRAPH = tuple(Option(name, "int", check=at_least(1)) for name in ("num_entities", "num_relations"))


@dataclass(frozen=True)
class ConvEConfig:
    """Sizes and dropout of a ConvE. With `inverse`, relation r has rows 2r and 2r + 1.

    Of `input_channels`, `embedding_height` and `embedding_width` any may be None: channels default to
    1 and the image to the one nearest to a square. `relation_dropout` is LibKGE's and unknown to PyKEEN.
    """

    num_entities: int
    num_relations: int
    inverse: bool = True
    embedding_dim: int = _DEFAULTS["embedding_dim"]
    input_channels: int | None = None
    embedding_height: int | None = None
    embedding_width: int | None = None
    output_channels: int = _DEFAULTS["output_channels"]
    kernel_height: int = _DEFAULTS["kernel_height"]
    kernel_width: int = _DEFAULTS["kernel_width"]
    input_dropout: float = _DEFAULTS["input_dropout"]
    feature_map_dropout: float = _DEFAULTS["feature_map_dropout"]
    output_dropout: float = _DEFAULTS["output_dropout"]
    relation_dropout: float = _DEFAULTS["relation_dropout"]
    batch_norm: bool = _DEFAULTS["batch_norm"]

    def __post_init__(self) -> None:
        channels, height, width = _image(
            self.embedding_dim, self.input_channels, self.embedding_height, self.embedding_width
        )
        object.__setattr__(self, "input_channels", channels)
        object.__setattr__(self, "embedding_height", height)
        object.__setattr__(self, "embedding_width", width)
        problems = problems_of((*_GRAPH, *TRAIN_OPTIONS), vars(self))
        if problems:
            raise Usage("; ".join(problems))
        if self.map_height < 1 or self.map_width < 1:
            raise Usage(
                f"a {self.kernel_height}x{self.kernel_width} kernel does not fit into the image of "
                f"{2 * height}x{width} that head and relation make.",
                hint="choose a smaller kernel, or another embedding height and width.",
            )

    @property
    def channels(self) -> int:
        assert self.input_channels is not None
        return self.input_channels

    @property
    def height(self) -> int:
        assert self.embedding_height is not None
        return self.embedding_height

    @property
    def width(self) -> int:
        assert self.embedding_width is not None
        return self.embedding_width

    @property
    def map_height(self) -> int:
        return 2 * self.height - self.kernel_height + 1

    @property
    def map_width(self) -> int:
        return self.width - self.kernel_width + 1

    @property
    def features(self) -> int:
        """Numbers in the flattened feature maps of one (head, relation)."""
        return self.output_channels * self.map_height * self.map_width

    @property
    def relation_rows(self) -> int:
        return self.num_relations * (2 if self.inverse else 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _image(dim: int, channels: int | None, height: int | None, width: int | None) -> tuple[int, int, int]:
    if dim < 1:
        raise Usage(f"embedding_dim is {dim}; it must be at least 1.")
    if dim > _LONGEST:  # looking for the factors of a number takes its root's time
        raise Usage(f"embedding_dim is {dim}; it must be at most {_LONGEST:,}.")
    if channels is None:
        channels = dim // (height * width) if height and width else 1
    area = dim // max(channels, 1)
    if height is None and width is None:
        height = max(factor for factor in range(1, math.isqrt(max(area, 1)) + 1) if area % factor == 0)
        width = area // height
    elif height is None:
        height = area // width if width else 0
    elif width is None:
        width = area // height if height else 0
    assert height is not None and width is not None
    if channels < 1 or channels * height * width != dim:
        raise Usage(
            f"embedding_dim {dim} is not channels x height x width = {channels} x {height} x {width}.",
            hint="leave out embedding height and width, or give factors of embedding_dim.",
        )
    return channels, height, width


def _check(settings: dict[str, Any]) -> list[str]:
    given = [name for name in TRIPLES if settings[name]]
    problems = []
    if settings["dataset"] and given:
        problems.append(f"train.dataset: given together with {', '.join(given)}; choose one or the other")
    if not settings["dataset"] and not settings["train"]:
        problems.append("train.dataset: missing, and so is train.train; name a dataset or a file of triples")
    model, loss = settings["model"], settings["loss"] or ""
    if settings["engine"] == "kgops" and model.lower() != "conve":
        problems.append(f"train.model: kgops trains ConvE itself; for {model!r:.60} choose the engine pykeen")
    if settings["engine"] == "pykeen" and loss.startswith("1vsall"):
        problems.append("train.loss: PyKEEN has no 1vsAll; choose kvsall-bce or kvsall-ce, or leave it out")
    if settings["group_queries"] and (settings["engine"] != "kgops" or loss != GROUPED_LOSS):
        problems.append(f"train.group_queries: only for kgops' engine and the loss {GROUPED_LOSS}")
    if settings["engine"] == "pykeen":
        problems += _pykeen_problems(settings)
    return problems + _check_validations(settings)


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
    return data if settings["engine"] == "kgops" else f"{data} {settings['model']}"


def _notes(settings: Mapping[str, Any]) -> list[str]:
    if not settings["train"] or settings["test"]:
        return []
    return [
        "without --test there is no test MRR"
        + ("." if settings["valid"] else ", and without --valid no best model.")
    ]


def _implied(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`--model RotatE` needs no `--engine pykeen`: kgops trains ConvE only."""
    model = settings.get("model")
    return {"engine": "pykeen"} if model and model.lower() != "conve" else {}


WORDS = Words(
    help="""Train and evaluate ConvE, or any PyKEEN model, on a PyKEEN dataset or on files of triples.

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
    """Applied options of a training by kgops' own engine."""
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
    for name in requested:
        if name == "num_workers":
            yield Applied(name, 0, NOTHING_TO_LOAD)
        elif name == "grad_clip":
            yield Applied(name, requested[name])
        elif name not in TRAIN.optimizations:
            yield Applied(name, "off", "training has no such option")


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
        if name in ("num_workers", "grad_clip"):
            yield Applied(name, value)
        elif name not in ("batch_size", "precision", "memory_cleanup"):
            is_off = value in (False, "off")
            yield Applied(name, "off", None if is_off else "PyKEEN's pipeline has no such option")


_MODEL_KEYS = {field.name for field in fields(ConvEConfig)}


def model_of_settings(settings: Mapping[str, Any], counts: Counts) -> ConvEConfig:
    """The model that the worker builds."""
    sizes = {name: settings[name] for name in _MODEL_KEYS & settings.keys() if settings[name] is not None}
    return ConvEConfig(num_entities=counts.entities, num_relations=counts.relations, **sizes)


def model_of_config(config: Mapping[str, Any]) -> ConvEConfig | None:
    """From the `config.json` that a training leaves next to its models; None where it is of another model."""
    sizes = config.get("model")
    if not isinstance(sizes, Mapping) or not {"num_entities", "num_relations"} <= sizes.keys() <= _MODEL_KEYS:
        return None
    counts = [value for name, value in sizes.items() if not name.endswith("dropout")]
    if not all(value is None or isinstance(value, int) for value in counts):
        return None
    try:
        return ConvEConfig(**sizes)
    except (Usage, TypeError, ValueError, ArithmeticError):  # changed since, or of another kgops
        return None


@functools.lru_cache(maxsize=64)
def weight_sizes(c: ConvEConfig) -> tuple[int, ...]:
    """Of every parameter, in float32."""
    kernel = c.output_channels * c.channels * c.kernel_height * c.kernel_width
    numbers = [
        c.num_entities * c.embedding_dim,
        c.num_entities,
        c.relation_rows * c.embedding_dim,
        kernel,
        c.output_channels,
        c.embedding_dim * c.features,
        c.embedding_dim,
    ]
    if c.batch_norm:
        numbers += [width for width in _widths(c) for _ in ("weight", "bias")]
    return tuple(4 * n for n in numbers)


def weight_bytes(c: ConvEConfig) -> int:
    return sum(weight_sizes(c))


def buffer_bytes(c: ConvEConfig) -> int:
    """Of running statistics, which have no gradient: two vectors and a counter for each norm."""
    return sum(8 * width + 8 for width in _widths(c)) if c.batch_norm else 0


def _widths(c: ConvEConfig) -> tuple[int, int, int]:
    return c.channels, c.output_channels, c.embedding_dim


def kernel(model: ConvEConfig) -> int:
    return model.channels * model.kernel_height * model.kernel_width


# Below this a thread waits longer than it computes.
GFLOP_A_THREAD = 0.5


def step_gflop(config: ConvEConfig, batch_size: int) -> float:
    """Gflop of a step's products: once forward, twice backward."""
    kernel = config.channels * config.kernel_height * config.kernel_width
    a_query = config.features * (kernel + config.embedding_dim) + config.num_entities * config.embedding_dim
    return 6 * batch_size * a_query / 1e9


def threads_for(gflop: float, cores: int) -> int:
    return max(1, min(cores, int(gflop / GFLOP_A_THREAD)))
