"""One step of training ConvE as the allocator sees it, after `kgops.maths.train.step`, `kgops.maths.train.losses` and
`kgops.maths.models.encoder`."""

from __future__ import annotations

import math

from kgops.workloads.memory.ledger import Held, Ledger, Scratch
from kgops.workloads.memory.products import flash_inside
from kgops.workloads.train.conve_weights import buffer_bytes, weight_sizes
from kgops.workloads.train.options import COLUMN_FOLDS, TRAIN_ROWS_AT_ONCE
from kgops.workloads.train.sizes import TrainShape

_ID = 8


def walk_step(ledger: Ledger, s: TrainShape) -> None:
    """The second step of a model, without an optimizer and without the data it is drawn from."""
    ledger.phase = "step"
    held = [ledger.take("weights", size) for size in weight_sizes(s.model)]
    held.append(ledger.take("weights", buffer_bytes(s.model)))
    held += [ledger.take("gradients", size) for size in weight_sizes(s.model)]
    scratch = Scratch(ledger)
    for _ in (1, 2):
        ledger.give(*take_step(ledger, s, scratch, s.batch, []))
    scratch.close()
    ledger.give(*held)


def take_step(
    ledger: Ledger,
    s: TrainShape,
    scratch: Scratch,
    batch: int,
    before: list[Held],
    *,
    with_value: bool = True,
) -> list[Held]:
    """The next batch, built while the one `before` is alive, and `TrainStep` for it."""
    positives = s.positives * batch // max(s.batch, 1)
    taken = [ledger.take("data", 2 * _ID * batch), ledger.take("data", _ID * positives)]
    ledger.flash("data", _ID * batch, *[_ID * positives] * 3)
    taken.append(ledger.take("data", _ID * positives))
    ledger.give(*before)
    _update(ledger, s, scratch, batch, positives, with_value=with_value)
    return taken


def capture_steps(ledger: Ledger, s: TrainShape, scratch: Scratch) -> list[Held]:
    """`ReplayedStep`: the batch that graphs read, with room for more positives, and the steps that are captured, in the
    same memory."""
    if not s.captured:
        return []
    room = s.positives if s.one_positive else 3 * s.positives // 2
    static = [ledger.take("data", _ID * size) for size in (s.batch, s.batch, room, room)]
    for with_value in s.captured:
        with ledger.capture():
            _update(ledger, s, scratch, s.batch, room, with_value=with_value)
    return static


def _update(
    ledger: Ledger, s: TrainShape, scratch: Scratch, batch: int, positives: int, *, with_value: bool = True
) -> None:
    """`TrainStep.gradients`, and the optimizer's step."""
    c = s.model
    vectors = 4 * batch * c.embedding_dim
    rows = [ledger.take("activations", vectors), ledger.take("activations", vectors)]
    front, image = _front(ledger, s, batch)
    saved = _forward(ledger, s, scratch, batch)
    projected = ledger.take("activations", vectors)
    if s.low != 4:
        ledger.flash("activations", vectors)
    finish, queries = _finish(ledger, s, batch)
    d_queries = _loss(ledger, s, scratch, batch, positives, with_value)
    d_projected = _back_through_finish(ledger, s, vectors, finish)
    d_image = _backward(ledger, s, scratch, batch, saved)
    given = _back_through_front(ledger, s, 2 * vectors, front)
    ledger.give(*given)
    if s.on_gpu:
        _accumulate_rows(ledger, batch, c.embedding_dim)
    ledger.give(*rows, image, projected, queries, d_queries, d_projected, d_image)
    if s.optimizer == "adagrad" and s.on_gpu:
        _update_adagrad(ledger, s)


def _update_adagrad(ledger: Ledger, s: TrainShape) -> None:
    """`GpuAdagrad`: decayed gradients, then finite ones in their place; roots and steps beside those."""
    gradients: list[Held] = []
    for is_made in (s.weight_decay, s.precision == "fp16"):
        if is_made:
            made = [ledger.take("optimizer", size) for size in weight_sizes(s.model)]
            ledger.give(*gradients)
            gradients = made
    ledger.flash("optimizer", *[size for _ in ("roots", "steps") for size in weight_sizes(s.model)])
    ledger.give(*gradients)


def _back_through_finish(ledger: Ledger, s: TrainShape, size: int, saved: list[Held]) -> Held:
    """Autograd's way back through ReLU, norm and dropout; each lets go of what it saved. The gradient."""
    grad = ledger.take("activations", size)
    if s.model.batch_norm:
        grad = _back_through_norm(ledger, s, size, grad)
        if s.model.output_dropout:
            ledger.give(saved.pop())
    if s.model.output_dropout:
        before, grad = grad, ledger.take("activations", size)
        ledger.give(before)
    ledger.give(*saved)
    return grad


def _back_through_front(ledger: Ledger, s: TrainShape, size: int, saved: list[Held]) -> list[Held]:
    """Likewise through dropout and norm, from the image's gradient, which its caller holds on to."""
    grad = []
    if s.model.input_dropout:
        grad = [ledger.take("activations", size)]
        ledger.give(saved.pop())
    if s.model.batch_norm:
        grad = [_back_through_norm(ledger, s, size, *grad)]
    relation_mask = saved[:1] if s.model.relation_dropout else []
    ledger.give(*saved[len(relation_mask) :])
    ledger.flash("activations", size // 2, size // 2)  # the heads' and the relations'
    ledger.give(*relation_mask)
    return grad


def _back_through_norm(ledger: Ledger, s: TrainShape, size: int, *grad: Held) -> Held:
    """On a CPU a norm's backward pass makes its result twice."""
    twice = [] if s.on_gpu else [ledger.take("activations", size)]
    result = ledger.take("activations", size)
    ledger.give(*twice, *grad)
    return result


def _front(ledger: Ledger, s: TrainShape, batch: int) -> tuple[list[Held], Held]:
    """`ConvE.normed_image`: what its backward pass saved, and the image."""
    c, numbers = s.model, batch * s.model.embedding_dim
    saved: list[Held] = []
    relations: list[Held] = []
    if c.relation_dropout:
        saved.append(ledger.take("activations", _mask(s) * numbers))
        relations = [ledger.take("activations", 4 * numbers)]
    image = ledger.take("activations", 8 * numbers)
    if c.batch_norm:
        saved.append(image)
        image = ledger.take("activations", 8 * numbers)
    if c.input_dropout:
        saved.append(ledger.take("activations", 2 * _mask(s) * numbers))
        dropped = ledger.take("activations", 8 * numbers)
        ledger.give(image)
        image = dropped
    ledger.give(*relations)
    return saved, image


def _finish(ledger: Ledger, s: TrainShape, batch: int) -> tuple[list[Held], Held]:
    """`ConvE.finish`: what its backward pass saved, and the queries."""
    c, numbers = s.model, batch * s.model.embedding_dim
    saved: list[Held] = []
    if c.output_dropout:
        saved += [ledger.take("activations", _mask(s) * numbers), ledger.take("activations", 4 * numbers)]
    normed = [ledger.take("activations", 4 * numbers)] if c.batch_norm else []
    if not c.batch_norm and c.output_dropout:
        normed = [saved.pop()]  # a product saves its factors, not itself
    queries = ledger.take("activations", 4 * numbers)
    ledger.give(*normed)
    return saved, queries


def _mask(s: TrainShape) -> int:
    """Bytes of a dropout's mask for each number: a CPU keeps it multiplied out."""
    return 1 if s.on_gpu else 4


def _forward(ledger: Ledger, s: TrainShape, scratch: Scratch, batch: int) -> Held:
    """`FusedEncoder.forward`; the mask stays until the way back."""
    c = s.model
    side = c.channels * c.kernel_height * c.kernel_width + 1
    places = c.map_height * c.map_width
    features = c.output_channels * places
    at_once = min(batch, TRAIN_ROWS_AT_ONCE)
    mask = ledger.take("activations", 4 * batch * c.output_channels)
    ledger.flash("activations", 4 * batch * c.output_channels)
    scratch.take("activations", "patches", s.low * batch * side * places)
    ledger.use_cublas()
    if c.batch_norm:
        if s.low != 4:
            scratch.take("activations", "wide", 4 * at_once * side * places)
        ledger.flash("activations", 4 * at_once * side * side, 8 * at_once * side * side)
    kernels = batch * c.output_channels * side
    scratch.take("activations", "kernels", s.low * kernels)
    ledger.flash("activations", 4 * kernels)
    if s.low != 4:
        scratch.take("activations", "weight", s.low * c.embedding_dim * features)
    scratch.take("activations", "projected", s.low * batch * c.embedding_dim)
    kept = at_once if s.checkpointing else batch
    scratch.take("activations", "maps", s.low * kept * features)
    if s.low != 4:
        _packed(ledger, s, batch, features)
    elif not s.on_gpu:
        flash_inside(ledger, kept, features, c.embedding_dim, "b")
    return mask


def _backward(ledger: Ledger, s: TrainShape, scratch: Scratch, batch: int, mask: Held) -> Held:
    """`FusedEncoder.backward`; returns the image's gradient."""
    c = s.model
    taps = c.channels * c.kernel_height * c.kernel_width
    places = c.map_height * c.map_width
    features = c.output_channels * places
    numbers = batch * c.embedding_dim
    low = [] if s.low == 4 else [ledger.take("activations", s.low * numbers)]
    if s.precision == "fp16":
        ledger.flash("activations", 4 * numbers)
    if s.low != 4:
        scratch.take("activations", "low_product", s.low * c.embedding_dim * features)
        _packed(ledger, s, c.embedding_dim, batch, turned=True)
    at_once = min(batch, TRAIN_ROWS_AT_ONCE)
    scratch.take("activations", "d_maps", s.low * at_once * features)
    if s.low == 4 and not s.on_gpu:
        flash_inside(ledger, c.embedding_dim, at_once if s.checkpointing else batch, features, "a")
        flash_inside(ledger, at_once, c.embedding_dim, features)
    scratch.take("activations", "d_kernels", s.low * batch * c.output_channels * (taps + 1))
    scratch.take("activations", "d_patches", s.low * batch * taps * places)
    if c.batch_norm:
        ledger.use_cublas("autograd")  # the way back through statistics of products
    if s.low != 4:
        ledger.flash("activations", 4 * batch * c.output_channels * (taps + 1))
    image = ledger.take("activations", 8 * numbers)
    if s.low != 4:
        _widened(ledger, s, batch * c.channels * places)
    ledger.give(mask, *low)
    return image


def _loss(
    ledger: Ledger, s: TrainShape, scratch: Scratch, batch: int, positives: int, with_value: bool
) -> Held:
    """`EntityLoss` on the first chunk, and on the next beside what that has left; later ones are alike. Returns
    d_queries."""
    c = s.model
    ids = _ID * positives
    flat = ledger.take("loss", ids)
    ledger.flash("loss", ids)
    small = [ledger.take("loss", s.low * batch * c.embedding_dim)] if s.low != 4 else []
    d_queries = ledger.take("loss", 4 * batch * c.embedding_dim)
    share = [ledger.take("loss", 4 * positives)] if s.loss.endswith("-ce") else []
    place: list[Held] = []
    for _ in range(min(2, math.ceil(c.num_entities / s.chunk))):
        place = _chunk(ledger, s, scratch, batch, positives, with_value, place)
    ledger.give(flat, *small, *share, *place)
    return d_queries


def _chunk(
    ledger: Ledger,
    s: TrainShape,
    scratch: Scratch,
    batch: int,
    positives: int,
    with_value: bool,
    before: list[Held],
) -> list[Held]:
    """The loss of one chunk of entities, while the places of positives in the one `before` are alive. Its own."""
    c = s.model
    chunk, is_low, softmax = min(s.chunk, c.num_entities), s.low != 4, s.loss.endswith("-ce")
    plane = chunk * batch
    ids = _ID * positives
    scratch.take("loss", "scores", 4 * plane)
    if is_low:
        scratch.take("loss", "low_entities", s.low * chunk * c.embedding_dim)
        _low_product(ledger, s, scratch, chunk, batch)
        _widened(ledger, s, plane)
        _packed(ledger, s, chunk, c.embedding_dim)
    elif not s.on_gpu:
        flash_inside(ledger, chunk, c.embedding_dim, batch, "b")
    if softmax and s.on_gpu:
        flash_folded_columns(ledger, "loss", chunk, batch)
    ledger.flash("loss", ids, *[positives] * 3)
    place = [ledger.take("loss", ids), ledger.take("loss", positives)]
    ledger.give(*before)
    if not softmax and with_value:
        ledger.flash(
            "loss", 4 * plane, 4 * chunk, 8 * chunk
        )  # softplus, and its rows' sums, again in float64
    if s.smoothing and with_value:
        ledger.flash("loss", 4 * chunk, 8 * chunk)
    ledger.flash("loss", 4 * positives, 4 * positives, ids)
    if is_low:
        scratch.take("loss", "low_scores", s.low * plane)
        _low_product(ledger, s, scratch, chunk, c.embedding_dim)
        _packed(ledger, s, chunk, batch)
        _low_product(ledger, s, scratch, batch, c.embedding_dim)
        _packed(ledger, s, batch, chunk, turned=True)
        _widened(ledger, s, batch * c.embedding_dim)
    elif not s.on_gpu:
        flash_inside(ledger, batch, chunk, c.embedding_dim, "a")
        flash_inside(ledger, chunk, batch, c.embedding_dim)
    return place


def flash_folded_columns(ledger: Ledger, part: str, rows: int, columns: int) -> None:
    """`kgops.maths.models.products` on a GPU: the folded rows, and their sum or maximum."""
    ledger.flash(part, 4 * (rows // COLUMN_FOLDS) * columns, 4 * columns)


def _low_product(ledger: Ledger, s: TrainShape, scratch: Scratch, rows: int, columns: int) -> None:
    """A GPU adds up in float32 and gives that; a CPU has a buffer in the low type."""
    if s.on_gpu:
        ledger.flash("loss", 4 * rows * columns)
    else:
        scratch.take("activations", "low_product", s.low * rows * columns)


def _widened(ledger: Ledger, s: TrainShape, numbers: int) -> None:
    """A CPU copies what it adds to float32 out of a lower type; a GPU's kernel reads it as it is."""
    if not s.on_gpu:
        ledger.flash("loss", 4 * numbers)


def _packed(ledger: Ledger, s: TrainShape, rows: int, inner: int, *, turned: bool = False) -> None:
    """What oneDNN packs of the factors of a bf16 product on a CPU, at most; fitted to torch 2.13."""
    if s.on_gpu:
        return
    ledger.flash("workspace", 128 * min(inner, 1024) + 256 * min(rows, 256) + 1024)
    if turned:
        ledger.flash(
            "workspace", 128 * min(inner, 1024) + 256 * min(rows, 256) + 2 * min(rows, 256) * min(inner, 800)
        )


def _accumulate_rows(ledger: Ledger, batch: int, dim: int) -> None:
    """`index_put_` sorts the rows' places first; not measured on a GPU."""
    ledger.flash("activations", *[_ID * batch] * 6, 4 * batch * dim)
