"""Checkpoints of PyKEEN's pipeline for TracIn, from which the model can be rebuilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import TriplesFactory

from kgops.graphs.triples import Graph
from kgops.models.pykeen_models import PykeenRecipe, write_kept_pykeen

__all__ = ["KeepForTracin", "recipe_of"]


def recipe_of(
    model: Any, model_kwargs: dict[str, Any], graph: Graph, training: TriplesFactory
) -> PykeenRecipe:
    sizes = (graph.num_entities, graph.num_relations, bool(training.create_inverse_triples))
    return PykeenRecipe(model.__name__, model_kwargs, *sizes)


class KeepForTracin(TrainingCallback):  # type: ignore[misc]
    """Writes a checkpoint for TracIn every `checkpoint_frequency` epochs, with all that rebuilds the model."""

    def __init__(
        self, checkpoints: Path, settings: dict[str, Any], recipe: PykeenRecipe, graph: Graph
    ) -> None:
        super().__init__()
        self._folder, self._every, self._recipe = checkpoints, settings["checkpoint_frequency"], recipe
        smoothing = settings["label_smoothing"]
        self._loss = settings["loss"] and {"name": settings["loss"], "label_smoothing": smoothing}
        self._digests = {
            "entities_digest": graph.entities.digest,
            "relations_digest": graph.relations.digest,
        }

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        if not self._every or epoch % self._every:
            return
        write_kept_pykeen(
            self._folder / f"checkpoint_epoch_{epoch:07}.pt",
            self.model,
            self._recipe,
            epoch=epoch,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            loss=self._loss,
            **self._digests,
        )
