"""Training state in a checkpoint, and the check that a checkpoint belongs to this training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kgops.errors import BadInput
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvE
from kgops.training.checkpoints import Checkpoint
from kgops.training.settings import TrainSettings

__all__ = ["MAY_DIFFER", "TrainState", "refuse_foreign"]

# Settings that OOM fallbacks change, and how long to train and how often to validate: any other change is refused.
MAY_DIFFER = frozenset(
    {
        *("batch_size", "precision", "entity_chunk", "gradient_checkpointing", "compile", "cuda_graphs"),
        *("num_epochs", "patience", "validate_every", "checkpoint_frequency", "resume_every", "loss_every"),
    }
)


@dataclass
class TrainState:
    """Saved in every checkpoint, so it holds only numbers, lists and dicts."""

    epoch: int = 0  # completed
    batch: int = 0  # done in the next epoch
    owed: bool = False  # the validation and checkpoints that follow a completed epoch
    loss_sum: float = 0.0
    losses: int = 0
    first_loss: float | None = None  # of all
    seconds: float = 0.0  # in steps, by all attempts
    best_epoch: int | None = None
    best_mrr: float | None = None
    waited: int = 0
    early: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


def refuse_foreign(checkpoint: Checkpoint, graph: Graph, model: ConvE, settings: TrainSettings) -> None:
    """Raises if the checkpoint has another graph, model or data order. More epochs, smaller batches or another
    precision are allowed, since OOM fallbacks change them."""
    saved = checkpoint.settings
    current = settings.to_dict()
    same = {
        "entities": checkpoint.entities_digest == graph.entities.digest,
        "relations": checkpoint.relations_digest == graph.relations.digest,
        "model": dict(checkpoint.config) == model.config.to_dict(),
        **{
            name: saved.get(name, current[name]) == current[name]
            for name in current
            if name not in MAY_DIFFER
        },
    }
    differs = [name for name, agrees in same.items() if not agrees]
    if differs:
        raise BadInput(
            f"the checkpoint of epoch {checkpoint.epoch} belongs to another training: "
            f"its {', '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}.",
            hint="resume with the original settings and files, or start a new run.",
        )
