"""The torch module of a model's sizes."""

from __future__ import annotations

from kgops.maths.models import vectors
from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.workloads.train.models import ModelConfig, VectorConfig


def build_model(config: ModelConfig) -> EntityModel:
    if not isinstance(config, VectorConfig):
        return ConvE(config)
    kind: type[vectors.VectorModel] = getattr(vectors, config.model)
    return kind(config)
