"""The network that reads a cloud-base height from a window of frames and the sun's angles.

Frames are mixed by attention, message passing, a state-space scan, or not at all. Each layer maps (batch, frames,
features) to the same shape, with residual connections. `RegressionConfig` counts the parameters for memory estimates.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kgops.workloads.regress.job import Mixer, RegressionConfig


class RegressionModel(nn.Module):
    """Standardised heights (batch,) from images (batch, frames, height, width) and angles (batch, frames, 2).

    With `checkpointing` frames go through the encoder one by one, also without a backward pass. The backward pass
    recomputes activations, so that only one frame's are alive at a time.
    """

    # The compiled encoder, called instead of the encoder where set.
    run_encoder: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None

    def __init__(self, config: RegressionConfig, *, checkpointing: bool = False) -> None:
        super().__init__()
        self.config, self.checkpointing = config, checkpointing
        self.encoder = Encoder(config)
        self.mixer = _build_mixer(config)
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


class Attention(nn.Module):
    """Self-attention over frames, then a perceptron per frame."""

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        size = config.features
        self.heads = config.attention_heads
        self.positions = nn.Parameter(0.02 * torch.randn(config.temporal_frames, size))
        self.attention_norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.perceptron_norm = nn.LayerNorm(size)
        self.wide = nn.Linear(size, 2 * size)
        self.narrow = nn.Linear(2 * size, size)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        frames = frames + self.positions
        frames = frames + self.out(self.attend(self.attention_norm(frames)))
        wide = F.relu(self.wide(self.perceptron_norm(frames)))
        mixed: torch.Tensor = frames + self.narrow(wide)
        return mixed

    def attend(self, frames: torch.Tensor) -> torch.Tensor:
        """Attention output of each frame, heads concatenated."""
        batch, length, size = frames.shape
        apart = self.qkv(frames).view(batch, length, 3, self.heads, size // self.heads)
        query, key, value = apart.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value)
        return seen.transpose(1, 2).reshape(batch, length, size)


class Messages(nn.Module):
    """Message-passing rounds: each frame gets the mean of the previous and next frame."""

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        self.rounds = nn.ModuleList(_Round(config.features) for _ in range(config.message_rounds))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        for one in self.rounds:
            frames = one(frames)
        return frames


class _Round(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.own = nn.Linear(size, size)
        self.near = nn.Linear(size, size, bias=False)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        normed = self.norm(frames)
        messages = F.relu(self.own(normed) + self.near(_neighbours_mean(normed)))
        mixed: torch.Tensor = frames + messages
        return mixed


def _neighbours_mean(frames: torch.Tensor) -> torch.Tensor:
    """Mean of the adjacent frames: two in the middle, one at the ends, zeros for a single frame."""
    total = F.pad(frames[:, 1:], (0, 0, 0, 1)) + F.pad(frames[:, :-1], (0, 0, 1, 0))
    count = torch.full((frames.shape[1], 1), 2.0, dtype=frames.dtype, device=frames.device)
    count[0] = count[-1] = 1.0
    return total / count


class Scan(nn.Module):
    """State-space layer: each feature has linear states that decay from frame to frame."""

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__()
        size, states = config.features, config.states
        # Decays from within a frame to longer than a window.
        self.decay = nn.Parameter(torch.linspace(-4, 1, states).expand(size, states).clone())
        self.enter = nn.Parameter(torch.randn(size, states) / states**0.5)
        self.leave = nn.Parameter(torch.randn(size, states) / states**0.5)
        self.skip = nn.Parameter(torch.ones(size))
        self.norm = nn.LayerNorm(size)
        self.gate = nn.Linear(size, size)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        entering = self.norm(frames)
        mixed: torch.Tensor = frames + self.scan(entering) * torch.sigmoid(self.gate(entering))
        return mixed

    def scan(self, frames: torch.Tensor) -> torch.Tensor:
        """All frames at once: an input of k frames ago contributes x · Σ leave · exp(-k softplus(decay)) · enter."""
        length = frames.shape[1]
        # In full precision: powers of a decay are small differences from 1.
        with torch.autocast(frames.device.type, enabled=False):
            ago = torch.arange(length, device=frames.device)
            faded = torch.exp(-F.softplus(self.decay)[:, :, None] * ago)
            response = ((self.leave * self.enter)[:, :, None] * faded).sum(1)  # (features, frames ago)
            apart = ago[:, None] - ago[None, :]
            by_pair = response[:, apart.clamp(min=0)] * (apart >= 0)  # (features, to frame, from frame)
            left = torch.einsum("dts,bsd->btd", by_pair, frames.to(by_pair.dtype))
        return left.to(frames.dtype) + self.skip * frames


_MIXERS: dict[Mixer, type[nn.Module]] = {"attention": Attention, "messages": Messages, "scan": Scan}


def _build_mixer(config: RegressionConfig) -> nn.Module:
    if config.mixer == "mean":
        return nn.Identity()
    return _MIXERS[config.mixer](config)
