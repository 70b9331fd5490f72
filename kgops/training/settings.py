"""Settings of a training, validated together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from kgops.errors import BadJob
from kgops.jobs.chunk_sizes import loss_chunk
from kgops.options.option import defaults_of
from kgops.options.reading import problems_of
from kgops.options.train import DEFAULT_LOSS, TRAIN_OPTIONS
from kgops.training.losses import EntityLoss

__all__ = ["TrainSettings"]

_DEFAULTS = defaults_of(TRAIN_OPTIONS)


@dataclass(frozen=True)
class TrainSettings:
    """Training settings. 0 means never for `validate_every` (epochs), `patience` (validations) and
    `checkpoint_frequency` (epochs kept for TracIn); `entity_chunk` None depends on the device."""

    num_epochs: int = _DEFAULTS["num_epochs"]
    batch_size: int = _DEFAULTS["batch_size"]
    loss: str = DEFAULT_LOSS
    label_smoothing: float = 0.0
    optimizer: str = _DEFAULTS["optimizer"]
    learning_rate: float = _DEFAULTS["learning_rate"]
    weight_decay: float = _DEFAULTS["weight_decay"]
    grad_clip: float = _DEFAULTS["grad_clip"]
    schedule: str = _DEFAULTS["schedule"]
    schedule_factor: float = _DEFAULTS["schedule_factor"]
    schedule_patience: int = _DEFAULTS["schedule_patience"]
    lowest_learning_rate: float = 0.0
    warmup_epochs: int = 0
    precision: str = "fp32"
    entity_chunk: int | None = None
    gradient_checkpointing: bool = False
    compile: str = "off"
    cuda_graphs: bool = False
    seed: int = 0
    validate_every: int = _DEFAULTS["validate_every"]
    patience: int = 0
    checkpoint_frequency: int = 0
    resume_every: float = _DEFAULTS["resume_every"]
    loss_every: int = 16

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
        return self.loss.startswith("1vsall")

    def build_loss(self, dtype: torch.dtype, chunk: int) -> EntityLoss:
        return EntityLoss(
            "bce" if self.loss.endswith("bce") else "softmax", self.label_smoothing, chunk, dtype
        )

    def chunk_for(self, device: torch.device, processes: int = 1) -> int:
        """Entities scored at once, with the batch spread over ranks: a chunk of scores about as large as the cache of
        a CPU, or 64 MiB on a GPU."""
        rows = -(-self.batch_size // processes)
        return loss_chunk(self.entity_chunk, rows, "cuda" if device.type == "cuda" else "cpu")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
