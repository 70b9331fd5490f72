"""Settings of a regression, validated together."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from kgops.errors import BadJob
from kgops.options.regress import LOSSES, OPTIMIZERS, SCHEDULES
from kgops.training.compiling import COMPILE_MODES
from kgops.training.precision import PRECISIONS

__all__ = ["MAY_DIFFER", "RegressionSettings"]

# Settings that a resumed run may change: OOM fallbacks that keep the network, training length, validation.
MAY_DIFFER = frozenset(
    {
        *("batch_size", "microbatch", "precision", "gradient_checkpointing", "compile"),
        *("epochs", "loo_epochs", "patience", "resume_every_s"),
    }
)


@dataclass(frozen=True)
class RegressionSettings:
    """Training settings, named as in the job. `patience` 0 turns early stopping off; `microbatch` None means the whole
    batch; `kgops.regression.loop` chooses flights that are None."""

    epochs: int = 50
    loo_epochs: int = 30
    batch_size: int = 16
    microbatch: int | None = None
    loss: str = "huber"
    loss_alpha: float = 0.5
    huber_delta: float = 1.0
    gamma: float = 1.5
    under_weight: float = 1.0
    optimizer: str = "adamw"
    scheduler: str = "plateau"
    learning_rate: float = 1e-3
    weight_decay: float = 0.04
    warmup_steps: int = 0
    patience: int = 15
    min_delta: float = 0.0
    precision: str = "fp32"
    gradient_checkpointing: bool = False
    compile: str = "off"
    augment: bool = False
    flat_field_correction: bool = False
    zscore_normalize: bool = True
    pretrain: bool = True
    pretrain_flight: str | None = None
    final: bool = True
    loo: bool = False
    validation_flight: str | None = None
    overweight_flight: str | None = None
    overweight_factor: float = 1.0
    seed: int = 0
    resume_every_s: float = 60.0

    def __post_init__(self) -> None:
        problems = [
            f"{name}: {getattr(self, name)!r} is unknown; choose one of {', '.join(known)}"
            for name, known in _CHOICES.items()
            if getattr(self, name) not in known
        ]
        for least, names in _LEAST.items():
            problems += [
                f"{name}: {getattr(self, name)} must be at least {least}"
                for name in names
                if getattr(self, name) is not None and not getattr(self, name) >= least
            ]
        for name in ("learning_rate", "overweight_factor", "huber_delta", "gamma", "under_weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                problems.append(f"{name}: {value} must be a number above 0")
        if not 0 <= self.loss_alpha <= 1:
            problems.append(f"loss_alpha: {self.loss_alpha} must be from 0 to 1")
        if not (self.pretrain or self.final or self.loo):
            problems.append("final, pretrain and loo are all off: there is nothing to train")
        if problems:
            raise BadJob("the settings of the regression", problems)

    @property
    def at_once(self) -> int:
        """Windows whose gradients are computed together."""
        return min(self.microbatch or self.batch_size, self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_CHOICES = {
    "loss": LOSSES,
    "optimizer": OPTIMIZERS,
    "scheduler": SCHEDULES,
    "precision": PRECISIONS,
    "compile": COMPILE_MODES,
}
_LEAST: dict[int, tuple[str, ...]] = {
    1: ("epochs", "loo_epochs", "batch_size", "microbatch"),
    0: ("weight_decay", "warmup_steps", "patience", "min_delta", "seed", "resume_every_s"),
}
