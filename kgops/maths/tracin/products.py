"""Products of gradient factors.

The part of the convolution takes one backward pass for each training triple. With fewer test triples than triples in a
group, it takes one forward pass for each group and test triple instead. For this, ⟨∇, ∇'⟩ over the parameters before
the feature maps is written as a product. Its factors are the directional derivative of the projection along ∇', and the
sample's gradient there.
"""

from __future__ import annotations

import torch

from kgops.maths.models.products import add_product, column_sums, mm, mm_into
from kgops.maths.tracin.encoder import Encoder
from kgops.maths.tracin.factors import Factors
from kgops.workloads.tracin.options import TRACIN_TANGENT_GROUPS


@torch.no_grad()
def pair_scores(encoder: Encoder, train: Factors, test: Factors) -> torch.Tensor:
    """(train rows, test rows) of ⟨∇, ∇'⟩. `train` was made with `test` as its `others`."""
    names = encoder.names
    out = torch.zeros(len(train.group), len(test.group), dtype=train.u.dtype, device=train.u.device)
    with_x, with_biases = "entities" in names, "biases" in names
    if with_x or with_biases:
        out += _delta_products(train, test)
        out *= _both(
            train, test, _layer(train.encoded.x, test.encoded.x, with_x, with_biases, one=test.x_one)
        )
    with_maps, with_bias = "project.weight" in names, "project.bias" in names
    if with_maps or with_bias:
        ours, theirs = train.encoded.maps, test.encoded.maps
        out.addcmul_(
            _both(train, test, _layer(ours, theirs, with_maps, with_bias, one=test.maps_one)),
            mm(train.u, test.u.t()),
        )
    if train.norm is not None and test.norm is not None:
        add_product(out, train.norm, test.norm.t())
    if with_x and test.heads_in is not None:
        _add_heads(out.t(), test, train, at=_shared_at_heads(train, test))
    if train.pulled:
        _add_pulled(out, train, test)
    else:
        _add_by_tangents(encoder, out, train, test)
    out *= train.scale * test.scale
    if train.sample is not None:
        out = out.index_select(0, train.sample)
    return out if test.sample is None else out.index_select(1, test.sample)


def _add_pulled(out: torch.Tensor, train: Factors, test: Factors) -> None:
    if train.conv is not None and test.conv is not None:
        add_product(out, train.conv, test.conv.t())
    if train.heads_in is not None:
        _add_heads(out, train, test)
    _add_equal(out, train, test, train.heads, test.heads, train.heads_in, test.heads_in)
    _add_equal(out, train, test, train.relations, test.relations, train.relations_in, test.relations_in)


@torch.no_grad()
def self_scores(encoder: Encoder, block: Factors) -> torch.Tensor:
    """⟨∇, ∇⟩ of every row; `block` was made with `keep`."""
    names, group = encoder.names, block.group
    x, maps = block.encoded.x, block.encoded.maps
    squared = block.own**2
    at_heads = block.own * (block.tails == block.heads[group])
    if block.shared is not None and block.shared.delta is not None:
        delta = block.shared.delta
        squared = squared + column_sums(delta**2)[group] + 2 * block.own * delta[block.tails, group]
        at_heads = at_heads + delta[block.heads[group], group]
    out = torch.zeros_like(block.own)
    if "entities" in names:
        out += squared * (x**2).sum(1)[group]
    if "biases" in names:
        out += squared
    if "project.weight" in names:
        out += (block.u**2).sum(1) * (maps**2).sum(1)[group]
    if "project.bias" in names:
        out += (block.u**2).sum(1)
    for part in (block.norm, block.conv, block.heads_in, block.relations_in):
        if part is not None:
            out += (part**2).sum(1)
    if block.heads_in is not None:
        out += 2 * at_heads * (x.index_select(0, group) * block.heads_in).sum(1)
    out *= block.scale**2
    return out if block.sample is None else out.index_select(0, block.sample)


def _both(train: Factors, test: Factors, by_groups: torch.Tensor) -> torch.Tensor:
    """(train groups, test groups) → (train samples, test samples)."""
    return test.spread_columns(train.spread(by_groups))


def _layer(
    a: torch.Tensor,
    b: torch.Tensor,
    weight: bool,
    bias: bool,
    *,
    one: torch.Tensor | None = None,
) -> torch.Tensor:
    """Inner products of a layer's inputs, plus the constant's product `one` (None: 1) if its bias counts."""
    inner = mm(a, b.t()) if weight else a.new_zeros(len(a), len(b))
    return inner.add_(1 if one is None else one) if bias else inner


def _delta_products(train: Factors, test: Factors) -> torch.Tensor:
    """Inner products of the gradients at the scores, for all pairs of samples."""
    same = _equal(train.tails, test.tails)
    inner = torch.outer(train.own, test.own).mul_(same)
    if train.shared is None:
        return inner
    assert train.shared.at is not None
    if test.shared is not None:
        assert train.shared.gram is not None and test.shared.delta is not None
        inner += _both(train, test, train.shared.gram)
        theirs = test.spread_columns(test.shared.delta.index_select(0, train.tails))
        inner.addcmul_(train.own[:, None], theirs)
    ours = train.spread(train.shared.at[:, : len(test.tails)])
    return inner.addcmul_(ours, test.own[None, :])


def _add_heads(out: torch.Tensor, a: Factors, b: Factors, at: torch.Tensor | None = None) -> None:
    """Adds δ_b[head of a] · (x_b · gradient of a's head vector): the head vector of `a` is an output row for `b`.

    `at`: b's shared part at a's heads (b groups, a groups), where b does not keep all of it.
    """
    assert a.heads_in is not None
    across = b.spread_columns(mm(a.heads_in, b.encoded.x.t()))  # (a samples, b samples)
    if at is not None:
        weight = _both(b, a, at).t()
    elif b.shared is not None and b.shared.delta is not None:
        weight = _both(a, b, b.shared.delta.index_select(0, a.heads))
    else:
        weight = torch.zeros_like(across)
    same = _equal(a.heads, b.tails)
    if bool(same.any()):
        weight = torch.addcmul(weight, a.spread(same).to(weight), b.own[None, :])
    out.addcmul_(across, weight)


def _shared_at_heads(train: Factors, test: Factors) -> torch.Tensor | None:
    """The train groups' shared gradient at the test groups' heads."""
    if train.shared is None or train.shared.at is None:
        return None
    return train.shared.at[:, len(test.tails) :]


def _add_equal(
    out: torch.Tensor,
    train: Factors,
    test: Factors,
    train_rows: torch.Tensor,
    test_rows: torch.Tensor,
    train_in: torch.Tensor | None,
    test_in: torch.Tensor | None,
) -> None:
    """Input vectors count only where both samples read one row; few columns have such a pair."""
    if train_in is None or test_in is None:
        return
    # By row: a GPU would take partial results of columns, up to twice as much as the plane.
    columns = test.spread_columns(_equal(test_rows, train_rows).any(1)[None])[0].nonzero()[:, 0]
    if not len(columns):
        return
    chosen = _equal(train_rows, test_rows[columns if test.one_to_one else test.group[columns]])
    inner = mm(train_in, test_in.index_select(0, columns).t())
    out.index_add_(1, columns, inner.mul_(train.spread(chosen)))


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, None] == b[None, :]


@torch.no_grad()
def _add_by_tangents(encoder: Encoder, out: torch.Tensor, train: Factors, test: Factors) -> None:
    """Adds to `out` (train samples, test samples), in their units, the terms that `Encoder.pull` would give."""
    if not encoder.wants_maps:
        return
    for j in range(len(test.group)):
        moved = _moved_projection(encoder, train, test, j)
        out[:, j] += (train.u * train.spread(moved)).sum(1)


def _moved_projection(encoder: Encoder, train: Factors, test: Factors, j: int) -> torch.Tensor:
    """(train groups, d): derivative of each group's projection along the gradient of test sample j."""
    c, encoded = encoder.config, train.encoded
    kernel, image = _small_parts(encoder, test, j)
    moving = torch.zeros_like(encoded.image)
    # A head vector may also be an output row of the test triple: there its gradient is δ' · x'.
    if test.heads_in is not None:
        q = int(test.group[j])
        weight = test.own[j] * (train.heads == test.tails[j])
        if test.shared is not None and test.shared.delta is not None:
            weight = weight + test.shared.delta[train.heads, q]
        vectors = torch.outer(weight, test.encoded.x[q])
        vectors += (train.heads == test.heads[q])[:, None] * test.heads_in[j]
        moving[:, :, : c.height] += vectors.view(-1, c.channels, c.height, c.width)
    if test.relations_in is not None:
        same = train.relations == test.relations[test.group[j]]
        vectors = same[:, None] * test.relations_in[j]
        moving[:, :, c.height :] += vectors.view(-1, c.channels, c.height, c.width)
    moving *= encoder.input_norm.gain.view(1, -1, 1, 1)
    if image is not None:
        gain, shift = image
        moving += encoder.input_norm.hat(encoded.image) * gain.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
    moved = moving.new_empty(len(moving), len(encoder.weight))
    with_shift = torch.cat([encoder.kernel, encoder.kernel.new_zeros(len(encoder.kernel), 1)], dim=1)
    kernels = torch.cat([with_shift, kernel], dim=1)
    at_once = len(moving) if moving.is_cuda else TRACIN_TANGENT_GROUPS
    for first in range(0, len(moving), at_once):
        rows = slice(first, first + at_once)
        _project(encoder, kernels, moving[rows], encoded.patches[rows], encoded.maps[rows], moved[rows])
    return moved


def _project(
    encoder: Encoder,
    kernels: torch.Tensor,
    moving: torch.Tensor,
    patches: torch.Tensor,
    maps: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Derivative of the projection of some groups. The maps of all groups at once took more memory than everything else
    together."""
    own = encoder.patches(moving)
    own[:, -1] = 0  # the derivative of the constant
    size = (len(moving), encoder.config.output_channels, encoder.places)
    moving_maps = encoder.buffers.take("moving_maps", size, moving.dtype)
    torch.matmul(kernels, torch.cat([own, patches], dim=1), out=moving_maps)
    flat = moving_maps.view(len(moving), -1)
    torch.ops.aten.threshold_backward.grad_input(flat, maps, 0, grad_input=flat)
    mm_into(out, flat, encoder.weight.t())


def _small_parts(
    encoder: Encoder, test: Factors, j: int
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor] | None]:
    """Derivatives of the folded kernel with its shift, and of the input norm's gain and shift."""
    kernel = torch.zeros(len(encoder.kernel), encoder.taps + 1).to(encoder.kernel)
    if test.conv is None:
        return kernel, None
    parts = encoder.split(test.conv[j])
    norm = encoder.feature_norm
    if "conv.weight" in parts:
        kernel[:, :-1] += norm.gain[:, None] * parts["conv.weight"].view_as(encoder.raw_kernel)
    if "conv.bias" in parts:
        kernel[:, -1] += norm.gain * parts["conv.bias"]
    if "feature_norm.weight" in parts:
        by_hat = norm.inverse * parts["feature_norm.weight"]
        kernel[:, :-1] += by_hat[:, None] * encoder.raw_kernel
        kernel[:, -1] += by_hat * (encoder.raw_bias - norm.mean)
    if "feature_norm.bias" in parts:
        kernel[:, -1] += parts["feature_norm.bias"]
    if "input_norm.weight" not in parts and "input_norm.bias" not in parts:
        return kernel, None
    none = encoder.input_norm.gain.new_zeros(encoder.config.channels)
    return kernel, (parts.get("input_norm.weight", none), parts.get("input_norm.bias", none))
