"""Layers that mix the frames of a window: attention, message passing, a state-space scan, or none.

Each maps (batch, frames, features) to that shape, with residual connections; parameter names are those of
`RegressionConfig.shapes`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from kgops.jobs.regress import Mixer, RegressionConfig

__all__ = ["Attention", "Messages", "Scan", "build_mixer"]


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
        messages = F.relu(self.own(normed) + self.near(neighbours_mean(normed)))
        mixed: torch.Tensor = frames + messages
        return mixed


def neighbours_mean(frames: torch.Tensor) -> torch.Tensor:
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


def build_mixer(config: RegressionConfig) -> nn.Module:
    if config.mixer == "mean":
        return nn.Identity()
    return _MIXERS[config.mixer](config)
