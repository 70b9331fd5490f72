"""Settings of a training, validated together, and the number formats they stand for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from kgops.errors import BadJob
from kgops.jobs.on_device import WorkerDevice, training_precision
from kgops.jobs.option import defaults_of, problems_of
from kgops.maths.models.products import allow_tf32
from kgops.maths.train.losses import EntityLoss
from kgops.maths.train.penalties import Penalties
from kgops.workloads.shared_options import LARGEST_GROUP
from kgops.workloads.train.options import DEFAULT_LOSS, LOSS_EVERY, TRAIN_OPTIONS, loss_chunk, one_positive

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """Requested and applied precision; weights, optimizer and sums over entities are float32 under each."""

    requested: str
    applied: str
    reason: str | None

    @property
    def dtype(self) -> torch.dtype:
        return _DTYPES[self.applied]

    @property
    def scaled(self) -> bool:
        """Whether gradients need scaling: only fp16 has too small a range."""
        return self.applied == "fp16"

    def apply(self) -> None:
        """Applies torch's global settings; call once, before the first product."""
        allow_tf32(self.applied == "tf32")
        backends: Any = torch.backends
        # Otherwise partial results of a long fp16 sum may be rounded to fp16.
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def resolve_precision(requested: str, device: torch.device | str) -> Precision:
    return Precision(requested, *training_precision(requested, place_of(device)))


def place_of(device: torch.device | str) -> WorkerDevice:
    """Properties of the device that options depend on."""
    device = torch.device(device)
    if device.type == "cuda":
        return WorkerDevice(torch.cuda.get_device_capability(device))
    return WorkerDevice(has_bf16=cpu_has_bf16())


def cpu_has_bf16() -> bool:
    """Whether bf16 products run in hardware; emulated they are slower than float32."""
    ask = getattr(torch.cpu, "get_capabilities", None)
    known = ask() if ask is not None else {}
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))


_DEFAULTS = defaults_of(TRAIN_OPTIONS)


@dataclass(frozen=True)
class TrainSettings:
    """Training settings. 0 means never for `validate_every` (epochs), `patience` (validations) and
    `checkpoint_frequency` (epochs kept for TracIn); `entity_chunk` None depends on the device."""

    num_epochs: int = _DEFAULTS["num_epochs"]
    batch_size: int = _DEFAULTS["batch_size"]
    loss: str = DEFAULT_LOSS
    group_queries: bool = _DEFAULTS["group_queries"]
    label_smoothing: float = _DEFAULTS["label_smoothing"]
    optimizer: str = _DEFAULTS["optimizer"]
    learning_rate: float = _DEFAULTS["learning_rate"]
    weight_decay: float = _DEFAULTS["weight_decay"]
    regularizer: str = _DEFAULTS["regularizer"]
    regularizer_weight: float = _DEFAULTS["regularizer_weight"]
    relation_prediction: float = _DEFAULTS["relation_prediction"]
    grad_clip: float = _DEFAULTS["grad_clip"]
    schedule: str = _DEFAULTS["schedule"]
    schedule_factor: float = _DEFAULTS["schedule_factor"]
    schedule_patience: int = _DEFAULTS["schedule_patience"]
    lowest_learning_rate: float = 0.0
    warmup_epochs: int = _DEFAULTS["warmup_epochs"]
    precision: str = _DEFAULTS["precision"]
    entity_chunk: int | None = None
    gradient_checkpointing: bool = _DEFAULTS["gradient_checkpointing"]
    compile: str = _DEFAULTS["compile"]
    cuda_graphs: bool = _DEFAULTS["cuda_graphs"]
    seed: int = _DEFAULTS["seed"]
    validate_every: int = _DEFAULTS["validate_every"]
    patience: int = _DEFAULTS["patience"]
    checkpoint_frequency: int = _DEFAULTS["checkpoint_frequency"]
    resume_every: float = _DEFAULTS["resume_every"]
    loss_every: int = LOSS_EVERY

    def __post_init__(self) -> None:
        problems = problems_of(TRAIN_OPTIONS, asdict(self))
        problems += [] if self.loss_every >= 1 else [f"loss_every: {self.loss_every} must be at least 1"]
        if not self.lowest_learning_rate >= 0:
            problems.append(f"lowest_learning_rate: {self.lowest_learning_rate} must be at least 0")
        if problems:
            raise BadJob("the training settings", problems)

    @property
    def one_positive(self) -> bool:
        """Whether every triple is a separate query (1vsAll)."""
        return one_positive(self.loss, self.group_queries)

    def objective(self, inverse: bool) -> str:
        """The training objective, in one sentence."""
        sample = "a triple with one tail" if self.one_positive else "a (head, relation) with all its tails"
        return f"{self.loss} {'with' if inverse else 'without'} inverse relations; a sample is {sample}"

    @property
    def largest_group(self) -> int | None:
        """The most positives of a query, where a (head, relation) with more is several queries."""
        return LARGEST_GROUP if self.group_queries else None

    def build_loss(
        self, dtype: torch.dtype, chunk: int, positives_a_query: float | None = None
    ) -> EntityLoss:
        """`positives_a_query`: mean over the graph, which grouped queries need."""
        return EntityLoss(
            "bce" if self.loss.endswith("bce") else "softmax",
            self.label_smoothing,
            chunk,
            dtype,
            positives_a_query if self.group_queries else None,
        )

    @property
    def penalties(self) -> Penalties | None:
        n3 = self.regularizer_weight if self.regularizer == "n3" else 0.0
        return Penalties(n3, self.relation_prediction) if n3 or self.relation_prediction else None

    def chunk_for(self, device: torch.device) -> int:
        """Entities scored at once: a chunk of scores about as large as the cache of a CPU, or 64 MiB on a GPU."""
        return loss_chunk(self.entity_chunk, self.batch_size, "cuda" if device.type == "cuda" else "cpu")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
