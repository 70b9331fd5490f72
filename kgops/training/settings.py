"""Settings of a training, validated together."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kgops.errors import BadJob
from kgops.training.compiling import COMPILE_MODES
from kgops.training.losses import LOSSES, EntityLoss
from kgops.training.optimizers import OPTIMIZERS, SCHEDULES
from kgops.training.precision import PRECISIONS

__all__ = ["TrainSettings"]


@dataclass(frozen=True)
class TrainSettings:
    """Training settings. 0 means never for `validate_every` (epochs), `patience` (validations) and
    `checkpoint_every` (epochs kept for TracIn); `entity_chunk` None depends on the device."""

    epochs: int = 100
    batch_size: int = 256
    loss: str = "kvsall-bce"
    label_smoothing: float = 0.0
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    schedule_factor: float = 0.95
    schedule_patience: int = 9
    lowest_learning_rate: float = 0.0
    warmup_epochs: int = 0
    precision: str = "fp32"
    entity_chunk: int | None = None
    gradient_checkpointing: bool = False
    compile: str = "off"
    cuda_graphs: bool = False
    seed: int = 0
    validate_every: int = 5
    patience: int = 0
    checkpoint_every: int = 0
    resume_every_s: float = 60.0
    loss_every: int = 16

    def __post_init__(self) -> None:
        problems = [
            *(_choice("loss", self.loss, LOSSES)),
            *(_choice("optimizer", self.optimizer, OPTIMIZERS)),
            *(_choice("schedule", self.schedule, SCHEDULES)),
            *(_choice("precision", self.precision, PRECISIONS)),
            *(_choice("compile", self.compile, COMPILE_MODES)),
        ]
        for name in ("epochs", "batch_size", "loss_every"):
            problems += _at_least(name, getattr(self, name), 1)
        if self.entity_chunk is not None:
            problems += _at_least("entity_chunk", self.entity_chunk, 1)
        for name in ("validate_every", "patience", "checkpoint_every", "warmup_epochs", "schedule_patience"):
            problems += _at_least(name, getattr(self, name), 0)
        for name in ("weight_decay", "lowest_learning_rate", "resume_every_s"):
            problems += _at_least(name, getattr(self, name), 0)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            problems.append(f"learning_rate: {self.learning_rate} must be a number above 0")
        if not 0 <= self.label_smoothing < 1:
            problems.append(f"label_smoothing: {self.label_smoothing} must be at least 0 and below 1")
        if not 0 < self.schedule_factor < 1:
            problems.append(f"schedule_factor: {self.schedule_factor} must lie between 0 and 1")
        if problems:
            raise BadJob("the training settings", problems)

    @property
    def one_positive(self) -> bool:
        """Whether every triple is a separate query (1vsAll)."""
        return self.loss.startswith("1vsall")

    def build_loss(self, dtype: torch.dtype, chunk: int) -> EntityLoss:
        return EntityLoss(
            "bce" if self.loss.endswith("bce") else "softmax", self.label_smoothing, chunk, dtype
        )

    def chunk_for(self, device: torch.device, processes: int = 1) -> int:
        """Entities scored at once, with the batch spread over ranks: a chunk of scores about as large as the cache of
        a CPU, or 64 MiB on a GPU."""
        if self.entity_chunk is not None:
            return self.entity_chunk
        scores = 1 << 24 if device.type == "cuda" else 1 << 19
        return max(256, scores // -(-self.batch_size // processes))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _choice(name: str, value: str, known: tuple[str, ...]) -> list[str]:
    return [] if value in known else [f"{name}: '{value}' is unknown; choose one of {', '.join(known)}"]


def _at_least(name: str, value: float, least: int) -> list[str]:
    return [] if value >= least else [f"{name}: {value} must be at least {least}"]
