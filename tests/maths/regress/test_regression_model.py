"""The image network: its parts beside plain loops, its memory options beside none."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kgops.maths.regress.network import Attention, Messages, RegressionModel, Scan
from kgops.workloads.regress.job import RegressionConfig
from kgops.workloads.regress.options import ANGLES_MODES, ARCHITECTURES

SMALL = RegressionConfig(17, 24, temporal_frames=3, channels=(4, 6, 8), film_width=5, states=3, dropout=0.0)


def random_configs(count: int) -> Iterator[RegressionConfig]:
    generator = torch.Generator().manual_seed(7)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    for n in range(count):
        heads = pick(1, 3)
        yield RegressionConfig(
            pick(8, 20),
            pick(8, 20),
            temporal_frames=pick(1, 6),
            architecture=list(ARCHITECTURES)[n % 4],
            angles_mode=list(ANGLES_MODES)[pick(0, 3)],
            channels=(pick(1, 9), pick(1, 9), heads * pick(1, 5)),
            use_spatial_attention=bool(pick(0, 1)),
            use_temporal_attention=bool(pick(0, 3)),
            film_width=pick(1, 6),
            attention_heads=heads,
            message_rounds=pick(1, 3),
            states=pick(1, 5),
            dropout=0.0,
        )


def model_of(config: RegressionConfig, seed: int = 1, **options: Any) -> RegressionModel:
    """In float64, with no parameter at its initial value."""
    torch.manual_seed(seed)
    model = RegressionModel(config, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def window_of(config: RegressionConfig, batch: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    shape = (batch, config.temporal_frames, config.height, config.width)
    return torch.randn(shape).double(), 90 * torch.rand(*shape[:2], 2).double()


def gradients(model: nn.Module, *window: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    heights = model(*window)
    heights.square().sum().backward()
    return heights.detach(), [torch.zeros(()) if p.grad is None else p.grad for p in model.parameters()]


# --- what the config says -------------------------------------------------------------------------


@pytest.mark.parametrize("config", list(random_configs(40)), ids=lambda c: f"{c.architecture}-{c.channels}")
def test_every_parameter_is_as_large_as_the_torch_free_size_says(config: RegressionConfig) -> None:
    model = RegressionModel(config)
    assert [p.numel() for p in model.parameters()] == config.sizes
    assert not list(model.buffers())


# --- parts beside plain loops ---------------------------------------------------------------------


def norm_by_hand(x: torch.Tensor, norm: Any) -> Any:
    centred = x - x.mean()
    return centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("config", list(random_configs(24))[2::4], ids=str)
@torch.no_grad()
def test_the_scan_is_a_state_carried_from_frame_to_frame(config: RegressionConfig) -> None:
    scan = model_of(replace(config, architecture="ssm")).mixer
    assert isinstance(scan, Scan)
    frames = torch.randn(3, config.temporal_frames, config.features).double()
    for window, mixed in zip(frames, scan(frames), strict=True):
        state = torch.zeros(config.features, config.states).double()
        for x, y in zip(window, mixed, strict=True):
            entering = norm_by_hand(x, scan.norm)
            expected = torch.empty_like(x)
            gate = scan.gate.weight @ entering + scan.gate.bias
            for d in range(config.features):
                for n in range(config.states):
                    kept = math.exp(-math.log1p(math.exp(float(scan.decay[d, n]))))
                    state[d, n] = kept * state[d, n] + scan.enter[d, n] * entering[d]
                out = sum(scan.leave[d, n] * state[d, n] for n in range(config.states))
                expected[d] = x[d] + (out + scan.skip[d] * entering[d]) / (1 + torch.exp(-gate[d]))
            torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("config", list(random_configs(24))[1::4], ids=str)
def test_messages_are_the_mean_of_the_frames_beside_each(config: RegressionConfig) -> None:
    mixer = model_of(replace(config, architecture="gnn")).mixer
    assert isinstance(mixer, Messages)
    frames = torch.randn(3, config.temporal_frames, config.features).double()
    for window, mixed in zip(frames, mixer(frames), strict=True):
        one: Any
        for one in mixer.rounds:
            said = [norm_by_hand(x, one.norm) for x in window]
            heard = []
            for t in range(len(window)):
                beside = [said[i] for i in (t - 1, t + 1) if 0 <= i < len(window)]
                mean = sum(beside) / len(beside) if beside else torch.zeros_like(said[t])
                heard.append(one.own.weight @ said[t] + one.own.bias + one.near.weight @ mean)
            window = torch.stack([x + h.clamp(min=0) for x, h in zip(window, heard, strict=True)])
        torch.testing.assert_close(mixed, window, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("config", list(random_configs(24))[::4], ids=str)
def test_attention_weighs_every_frame_by_its_likeness_head_by_head(config: RegressionConfig) -> None:
    mixer = model_of(replace(config, architecture="transformer", use_temporal_attention=True)).mixer
    assert isinstance(mixer, Attention)
    heads, size = config.attention_heads, config.features
    each = size // heads
    frames = torch.randn(3, config.temporal_frames, size).double()
    for window, mixed in zip(frames, mixer(frames), strict=True):
        placed = [x + p for x, p in zip(window, mixer.positions, strict=True)]
        looking = [mixer.qkv.weight @ norm_by_hand(x, mixer.attention_norm) + mixer.qkv.bias for x in placed]
        for t, x in enumerate(placed):
            seen = torch.empty_like(x)
            for h in range(heads):
                part = slice(h * each, (h + 1) * each)
                query = looking[t][part]
                likeness = [
                    float((query @ other[size:][part]).detach()) / math.sqrt(each) for other in looking
                ]
                shares = [math.exp(one - max(likeness)) for one in likeness]
                total = sum(shares)
                seen[part] = sum(
                    s / total * other[2 * size :][part] for s, other in zip(shares, looking, strict=True)
                )
            y = x + mixer.out.weight @ seen + mixer.out.bias
            wide = (mixer.wide.weight @ norm_by_hand(y, mixer.perceptron_norm) + mixer.wide.bias).clamp(min=0)
            expected = y + mixer.narrow.weight @ wide + mixer.narrow.bias
            torch.testing.assert_close(mixed[t], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", list(random_configs(12)), ids=lambda c: f"{c.angles_mode}-{c.channels}")
def test_the_encoder_sees_each_frame_as_it_is_written_down(config: RegressionConfig) -> None:
    model = model_of(config)
    images, angles = window_of(config, batch=2)
    found = model.encode(images, model.sun(angles))
    for b in range(2):
        for t in range(config.temporal_frames):
            maps = images[b, t][None]
            zenith, azimuth = (math.radians(float(a)) for a in angles[b, t])
            told = {"both": (zenith, azimuth), "sza_only": (zenith,), "saa_only": (azimuth,), "none": ()}
            sun = [f(a) for a in told[config.angles_mode] for f in (math.sin, math.cos)]
            stage: Any
            for number, stage in enumerate(model.encoder.stages):
                maps = F.conv2d(maps[None], stage.conv.weight, padding=1)[0]
                groups = maps.view(config.groups(number), -1)
                groups = groups - groups.mean(1, keepdim=True)
                maps = (groups / (groups.square().mean(1, keepdim=True) + 1e-5).sqrt()).view(maps.shape)
                maps = maps * stage.norm.weight[:, None, None] + stage.norm.bias[:, None, None]
                if sun:
                    first, last = stage.film[0], stage.film[2]
                    inner = (first.weight @ torch.tensor(sun, dtype=torch.float64) + first.bias).clamp(min=0)
                    scale, shift = (last.weight @ inner + last.bias).chunk(2)
                    maps = (1 + scale[:, None, None]) * maps + shift[:, None, None]
                maps = F.max_pool2d(maps.clamp(min=0)[None], 2)[0]
            if config.use_spatial_attention:
                assert model.encoder.attention is not None
                weight = model.encoder.attention.weight[0, :, 0, 0]
                score = torch.einsum("c,chw->hw", weight, maps)
                share = score.exp() / score.exp().sum()
                expected = (maps * share).sum((1, 2))
            else:
                expected = maps.mean((1, 2))
            torch.testing.assert_close(found[b, t], expected, rtol=1e-8, atol=1e-8)


# --- checkpointing --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_checkpointing_frame_by_frame_changes_neither_heights_nor_gradients(
    architecture: str, dtype: torch.dtype
) -> None:
    config = replace(SMALL, architecture=architecture)
    plain, saving = model_of(config).to(dtype), model_of(config, checkpointing=True).to(dtype)
    window = [part.to(dtype) for part in window_of(config)]
    (heights, grads), (again, others) = gradients(plain, *window), gradients(saving, *window)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    scale = max(float(grad.abs().max()) for grad in grads)
    torch.testing.assert_close(again, heights, rtol=tolerance, atol=tolerance)
    for (name, _), grad, other in zip(plain.named_parameters(), grads, others, strict=True):
        torch.testing.assert_close(other, grad, rtol=tolerance, atol=tolerance * scale, msg=name)


def test_with_dropout_checkpointing_draws_the_same_masks() -> None:
    config = replace(SMALL, dropout=0.5)
    plain, saving = model_of(config), model_of(config, checkpointing=True)
    torch.manual_seed(5)
    heights, grads = gradients(plain, *window_of(config))
    torch.manual_seed(5)
    again, others = gradients(saving, *window_of(config))
    torch.testing.assert_close(again, heights, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(others, grads, rtol=1e-9, atol=1e-12)


def test_checkpointing_keeps_the_activations_of_one_frame_instead_of_all() -> None:
    config = RegressionConfig(32, 32, temporal_frames=6, channels=(8, 8, 8), architecture="cnn")
    images, angles = torch.randn(2, 6, 32, 32), torch.rand(2, 6, 2)

    def kept(checkpointing: bool) -> int:
        model = RegressionModel(config, checkpointing=checkpointing)
        sizes: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            model(images, angles)
        return sum(sizes.values())

    assert kept(True) < kept(False) / 6


# --- angles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "matters"), [("both", (1, 1)), ("sza_only", (1, 0)), ("saa_only", (0, 1))])
def test_only_the_angles_of_the_mode_are_seen(mode: str, matters: tuple[int, int]) -> None:
    config = replace(SMALL, angles_mode=mode)
    model = model_of(config)
    images, angles = window_of(config)
    before = model(images, angles)
    for angle in (0, 1):
        turned = angles.clone()
        turned[..., angle] += 20
        assert (not torch.allclose(model(images, turned), before)) == bool(matters[angle])
