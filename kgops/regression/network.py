"""The network that reads a cloud-base height from a window of frames and the sun's angles.

`RegressionConfig` documents layers and parameter names, and memory estimates are computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kgops.errors import BadInput
from kgops.jobs.regress import RegressionConfig
from kgops.regression.mixers import build_mixer

__all__ = ["RegressionConfig", "RegressionModel", "load_weights", "plain_names"]

_WRAPPINGS = ("_orig_mod.", "module.")  # prefixes of torch.compile and data parallelism


class RegressionModel(nn.Module):
    """Standardised heights (batch,) from images (batch, frames, height, width) and angles (batch, frames, 2).

    With `checkpointing` frames go through the encoder one by one, and activations are recomputed in the backward
    pass, so that those of one frame live at a time; also without a backward pass.
    """

    # The compiled encoder, called instead of the encoder where set.
    run_encoder: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None

    def __init__(self, config: RegressionConfig, *, checkpointing: bool = False) -> None:
        super().__init__()
        self.config, self.checkpointing = config, checkpointing
        self.encoder = Encoder(config)
        self.mixer = build_mixer(config)
        self.head = Head(config)

    def forward(self, images: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        heights: torch.Tensor = self.head(self.mixer(self.encode(images, self.sun(angles))).mean(1))
        return heights

    def sun(self, angles: torch.Tensor) -> torch.Tensor:
        """Angle features from zenith and azimuth in degrees: sine and cosine of those that `angles_mode` allows."""
        seen = {"both": angles, "sza_only": angles[..., :1], "saa_only": angles[..., 1:]}
        chosen = seen.get(self.config.angles_mode, angles[..., :0])
        turned = torch.deg2rad(chosen)
        return torch.stack([turned.sin(), turned.cos()], dim=-1).flatten(-2)

    def encode(self, images: torch.Tensor, sun: torch.Tensor) -> torch.Tensor:
        """One vector for each frame: (batch, frames, features)."""
        encoder = self.run_encoder or self.encoder
        if self.checkpointing:
            again = self.training and torch.is_grad_enabled()
            alone = [
                # The encoder draws no random numbers, so recomputation needs no random state.
                checkpoint(encoder, frame, light, use_reentrant=False, preserve_rng_state=False)
                if again
                else encoder(frame, light)
                for frame, light in zip(images.unbind(1), sun.unbind(1), strict=True)
            ]
            return torch.stack([vectors for vectors in alone if vectors is not None], dim=1)
        together: torch.Tensor = encoder(images.flatten(0, 1), sun.flatten(0, 1))
        return together.view(*images.shape[:2], -1)


class Encoder(nn.Module):
    """A vector for each frame (n, height, width) with its angle features (n, features)."""

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        self.stages = nn.ModuleList(_Stage(config, stage) for stage in range(len(config.channels)))
        self.attention = nn.Conv2d(config.features, 1, 1) if config.use_spatial_attention else None

    def forward(self, frames: torch.Tensor, sun: torch.Tensor) -> torch.Tensor:
        maps = frames[:, None]
        for stage in self.stages:
            maps = stage(maps, sun)
        if self.attention is None:
            return maps.mean((2, 3))
        weights = self.attention(maps).flatten(1).softmax(1).to(maps.dtype)
        return torch.bmm(maps.flatten(2), weights[:, :, None])[:, :, 0]


class _Stage(nn.Module):
    def __init__(self, config: RegressionConfig, stage: int) -> None:
        super().__init__()
        entering, channels = (1, *config.channels)[stage], config.channels[stage]
        self.conv = nn.Conv2d(entering, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(config.groups(stage), channels)
        self.film = _film(config, channels) if config.angle_features else None

    def forward(self, maps: torch.Tensor, sun: torch.Tensor) -> torch.Tensor:
        maps = self.norm(self.conv(maps))
        if self.film is not None:
            scale, shift = self.film(sun).to(maps.dtype)[:, :, None, None].chunk(2, dim=1)
            maps = torch.addcmul(shift, maps, 1 + scale)
        return F.max_pool2d(F.relu(maps), 2)


def _film(config: RegressionConfig, channels: int) -> nn.Sequential:
    film = nn.Sequential(
        nn.Linear(config.angle_features, config.film_width),
        nn.ReLU(),
        nn.Linear(config.film_width, 2 * channels),
    )
    # Starts with a small modulation by the sun: a random one would drown the frames' features.
    with torch.no_grad():
        for parameter in film[2].parameters():
            parameter.mul_(0.1)
    return film


class Head(nn.Module):
    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        self.hidden = nn.Linear(config.features, config.hidden)
        self.height = nn.Linear(config.hidden, 1)
        self.dropout = config.dropout

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(F.relu(self.hidden(vectors)), self.dropout, self.training)
        height: torch.Tensor = self.height(hidden)
        return height[:, 0]


def plain_names(state: Mapping[str, Any]) -> dict[str, Any]:
    """Weights by this network's names, without prefixes of wrappers."""
    return {_unwrapped(name): value for name, value in state.items()}


def load_weights(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Loads weights saved from a compiled or plain model into either."""
    own = {_unwrapped(name): name for name in model.state_dict()}
    given = plain_names(state)
    if own.keys() != given.keys():
        lacking, strange = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        raise BadInput(
            f"these weights belong to another network: {len(lacking)} missing"
            f"{_such_as(lacking)}, {len(strange)} unknown{_such_as(strange)}.",
            hint="architecture, attentions and angles_mode must be those of its training.",
        )
    model.load_state_dict({own[name]: value for name, value in given.items()})


def _unwrapped(name: str) -> str:
    for wrapping in _WRAPPINGS:
        name = name.replace(wrapping, "")
    return name


def _such_as(names: list[str]) -> str:
    return f" (such as {names[0]})" if names else ""
