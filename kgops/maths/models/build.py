"""The torch module of a model's sizes."""

from __future__ import annotations

from kgops.maths.models.conve import ConvE
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.vectors import ComplEx, DistMult, VectorModel
from kgops.workloads.train.models import ModelConfig, VectorConfig

VECTOR_MODELS: dict[str, type[VectorModel]] = {"ComplEx": ComplEx, "DistMult": DistMult}


def build_model(config: ModelConfig) -> EntityModel:
    return VECTOR_MODELS[config.model](config) if isinstance(config, VectorConfig) else ConvE(config)
