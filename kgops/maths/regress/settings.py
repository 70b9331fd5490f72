"""Settings of a regression, validated together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kgops.errors import BadJob
from kgops.jobs.option import defaults_of, problems_of
from kgops.workloads.regress.options import REGRESS_OPTIONS

_DEFAULTS = defaults_of(REGRESS_OPTIONS)

# Settings that a resumed run may change: OOM fallbacks that keep the network, training length, validation.
MAY_DIFFER = frozenset(
    {
        *("batch_size", "microbatch", "precision", "gradient_checkpointing", "compile"),
        *("epochs", "loo_epochs", "early_stopping_patience", "resume_every"),
    }
)


@dataclass(frozen=True)
class RegressionSettings:
    """Training settings, named as in the job. `early_stopping_patience` 0 turns early stopping off; `microbatch` None
    means the whole batch; `kgops.maths.regress.loop` chooses flights that are None."""

    epochs: int = _DEFAULTS["epochs"]
    loo_epochs: int = _DEFAULTS["loo_epochs"]
    batch_size: int = _DEFAULTS["batch_size"]
    microbatch: int | None = None
    loss_type: str = _DEFAULTS["loss_type"]
    loss_alpha: float = _DEFAULTS["loss_alpha"]
    huber_delta: float = _DEFAULTS["huber_delta"]
    gamma: float = _DEFAULTS["gamma"]
    under_weight: float = _DEFAULTS["under_weight"]
    optimizer: str = _DEFAULTS["optimizer"]
    scheduler: str = _DEFAULTS["scheduler"]
    learning_rate: float = _DEFAULTS["learning_rate"]
    weight_decay: float = _DEFAULTS["weight_decay"]
    warmup_steps: int = _DEFAULTS["warmup_steps"]
    early_stopping_patience: int = _DEFAULTS["early_stopping_patience"]
    early_stopping_min_delta: float = _DEFAULTS["early_stopping_min_delta"]
    precision: str = _DEFAULTS["precision"]
    gradient_checkpointing: bool = _DEFAULTS["gradient_checkpointing"]
    compile: str = _DEFAULTS["compile"]
    augment: bool = _DEFAULTS["augment"]
    flat_field_correction: bool = _DEFAULTS["flat_field_correction"]
    zscore_normalize: bool = _DEFAULTS["zscore_normalize"]
    pretrain: bool = _DEFAULTS["pretrain"]
    pretrain_flight: str | None = None
    final: bool = _DEFAULTS["final"]
    loo: bool = _DEFAULTS["loo"]
    validation_flight: str | None = None
    overweight_flight: str | None = None
    overweight_factor: float = _DEFAULTS["overweight_factor"]
    seed: int = _DEFAULTS["seed"]
    resume_every: float = _DEFAULTS["resume_every"]

    def __post_init__(self) -> None:
        problems = problems_of(REGRESS_OPTIONS, asdict(self))
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
