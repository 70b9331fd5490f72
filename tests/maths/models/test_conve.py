"""ConvE: its shapes, its folded norms, and the training step's encoder beside plain autograd."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from kgops.errors import Usage
from kgops.maths.models.conve import ConvE
from kgops.maths.models.encoder import Buffers, FusedEncoder
from kgops.maths.models.encoder import _unit as unit_of
from kgops.workloads.train.models import ConvEConfig

SMALL = ConvEConfig(30, 4, embedding_dim=12, output_channels=5, kernel_height=2, kernel_width=3)
SHAPES = [
    SMALL,
    replace(SMALL, batch_norm=False),
    replace(SMALL, input_channels=2, embedding_height=2, embedding_width=3),
    replace(SMALL, input_channels=3, embedding_height=4, embedding_width=1, kernel_width=1, inverse=False),
    replace(SMALL, kernel_height=1, kernel_width=1, output_channels=1),
]


def warm(config: ConvEConfig, dtype: torch.dtype = torch.float64) -> ConvE:
    """A model whose norms and biases are not at their initial values."""
    torch.manual_seed(3)
    model = ConvE(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.train()
    for _ in range(3):
        model.encode(torch.arange(20) % config.num_entities, torch.arange(20) % config.relation_rows)
    return model


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("rows_at_once", [7, 64])
@pytest.mark.parametrize("config", SHAPES)
def test_fused_encoder_equals_autograd_in_value_gradient_and_statistics(
    config: ConvEConfig, rows_at_once: int, recompute: bool
) -> None:
    model = warm(config)
    other = ConvE(config).double()
    other.load_state_dict(model.state_dict())
    torch.manual_seed(4)
    image = torch.randn(20, config.channels, 2 * config.height, config.width).double() + 0.5
    mask = (torch.rand(20, config.output_channels) < 0.7).double() / 0.7
    grad = torch.randn(20, config.embedding_dim).double()

    plain = image.clone().requires_grad_()
    maps = other.conv(plain)
    if other.feature_norm is not None:
        maps = other.feature_norm(maps)
    expected = other.project((F.relu(maps) * mask[:, :, None, None]).flatten(1))
    expected.backward(grad)

    buffers = Buffers(image.device)
    fused = FusedEncoder(model, buffers, dtype=torch.float64, rows_at_once=rows_at_once, recompute=recompute)
    for _ in range(2):  # the second time runs on used buffers and used gradients
        got = fused.forward(image, mask)
        d_image = fused.backward(grad)
    torch.testing.assert_close(got, expected.detach(), rtol=1e-11, atol=1e-11)
    assert plain.grad is not None
    torch.testing.assert_close(d_image, plain.grad, rtol=1e-10, atol=1e-10)
    theirs = dict(other.named_parameters())
    for name, parameter in model.named_parameters():
        if name.split(".")[0] in ("conv", "project", "feature_norm"):
            torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_fused_encoder_in_lower_precision_stays_near_float64(dtype: torch.dtype) -> None:
    config = ConvEConfig(30, 4, embedding_dim=32, output_channels=8)
    wide, low = warm(config), warm(config, torch.float32)
    low.load_state_dict(wide.state_dict())
    image = torch.randn(64, 1, 2 * config.height, config.width)
    grad = 1e-9 * torch.randn(64, 32)  # below what fp16 can hold at all
    mask = torch.ones(64, 8)
    exact = FusedEncoder(wide, Buffers(image.device), dtype=torch.float64)
    rough = FusedEncoder(low, Buffers(image.device), dtype=dtype)
    a, b = exact.forward(image.double(), mask.double()), rough.forward(image, mask)
    c, d = exact.backward(grad.double()), rough.backward(grad)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    assert (a - b).norm() < tolerance * a.norm()
    assert (c - d).norm() < tolerance * c.norm()


def test_scale_of_fp16_gradients_is_the_power_of_two_up_to_the_largest() -> None:
    powers = torch.arange(-126, 128).float().exp2()
    for largest in (powers, powers * 1.7, torch.nextafter(2 * powers, torch.zeros(()))):
        finite = largest.isfinite()
        assert torch.equal(unit_of(largest)[finite], powers[finite])
    assert unit_of(torch.zeros(())) > 0
    assert not unit_of(torch.tensor([torch.inf, torch.nan])).isfinite().any()


def test_relation_dropout_acts_in_training_only() -> None:
    model = warm(
        replace(SMALL, batch_norm=False, input_dropout=0.0, feature_map_dropout=0.0, output_dropout=0.0)
    )
    other = ConvE(replace(model.config, relation_dropout=0.5)).double()
    other.load_state_dict(model.state_dict())
    heads, relations = torch.arange(30), torch.arange(30) % 8
    assert not torch.equal(other.encode(heads, relations), model.encode(heads, relations))
    assert torch.equal(other.eval().encode(heads, relations), model.eval().encode(heads, relations))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"embedding_height": 5}, "is not channels x height x width"),
        ({"input_channels": 5}, "is not channels x height x width"),
        ({"kernel_width": 9}, "does not fit into the image"),
        ({"input_dropout": 1.0}, "below 1"),
        ({"output_channels": 0}, "at least 1"),
        ({"embedding_dim": 0}, "at least 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_its_numbers(change: dict[str, int], said: str) -> None:
    with pytest.raises(Usage, match=said):
        ConvEConfig(**{"num_entities": 30, "num_relations": 4, "embedding_dim": 12, **change})  # type: ignore[arg-type]
