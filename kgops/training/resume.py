"""Where a training stands, and whether a checkpoint is of this training at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kgops.errors import BadInput
from kgops.graphs.triples import Graph
from kgops.models.conve import ConvE
from kgops.training.checkpoints import Checkpoint
from kgops.training.settings import TrainSettings

__all__ = ["MAY_DIFFER", "TrainState", "refuse_foreign"]

# What the OOM fallbacks changes, how long to go on, and how often to look: everything else makes another training.
MAY_DIFFER = frozenset(
    {
        *("batch_size", "precision", "entity_chunk", "gradient_checkpointing", "compile", "cuda_graphs"),
        *("epochs", "patience", "validate_every", "checkpoint_every", "resume_every_s", "loss_every"),
    }
)


@dataclass
class TrainState:
    """All of it goes into a checkpoint, so all of it is numbers, lists and dicts."""

    epoch: int = 0  # completed
    batch: int = 0  # done of the next one
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


def refuse_foreign(found: Checkpoint, graph: Graph, model: ConvE, settings: TrainSettings) -> None:
    """More epochs, smaller batches or another precision are fine: a run that was out of memory comes
    back with less. Another graph, model or data order is not."""
    theirs = found.settings
    ours = settings.to_dict()
    same = {
        "entities": found.entities_digest == graph.entities.digest,
        "relations": found.relations_digest == graph.relations.digest,
        "model": dict(found.config) == model.config.to_dict(),
        **{name: theirs.get(name, ours[name]) == ours[name] for name in ours if name not in MAY_DIFFER},
    }
    differs = [name for name, agrees in same.items() if not agrees]
    if differs:
        raise BadInput(
            f"the checkpoint of epoch {found.epoch} is of another training: "
            f"its {', '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}.",
            hint="resume with the settings and files it was started with, or start anew.",
        )
