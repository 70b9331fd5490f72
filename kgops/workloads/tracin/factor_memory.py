"""The factors of one block's gradients as the allocator sees them, after `kgops.maths.tracin.factors`,
`kgops.maths.tracin.encoder` and `kgops.maths.tracin.entity_pass`."""

from __future__ import annotations

from dataclasses import dataclass

from kgops.jobs.cpu_products import rounded_rows, uses_onednn
from kgops.workloads.graphs.block_counts import Block
from kgops.workloads.memory.ledger import Held, Ledger, Scratch
from kgops.workloads.memory.products import flash_inside, walk_product
from kgops.workloads.tracin.chunk_sizes import TRACIN_ROWS_AT_ONCE
from kgops.workloads.tracin.sizes import CONVOLUTION, TracinShape

_ID = 8
_ROW = 3 * _ID


@dataclass(frozen=True, slots=True)
class Side:
    """One block: `rows` of `triples` in the directions that count, the distinct queries (`groups`) and tails of
    queries (`samples`) among them, and the known answers of all rows and of all groups."""

    triples: int
    rows: int
    groups: int
    samples: int
    row_answers: int = 0
    group_answers: int = 0
    moves_forward: bool = False  # by tangents, not back through the convolution

    @classmethod
    def of_tests(cls, s: TracinShape, tests: int) -> Side:
        rows = tests * s.rows_each
        if s.knows_all:
            sides = (s.counts.tails, s.counts.heads) if s.both_directions else (s.counts.tails,)
            answers = round(sum(tests * side.squares / max(side.answers, 1) for side in sides))
            return cls(tests, rows, rows, rows, answers, answers)  # what training never saw stands alone
        return cls(tests, rows, _distinct(s, tests), rows)

    @classmethod
    def of_block(cls, s: TracinShape, block: Block, tests: Side | None, *, rounded: bool = True) -> Side:
        """`tests`: those it is multiplied with; few enough, and it moves forward. `rounded`: as `factors_of`."""
        rows = block.triples * s.rows_each
        groups = min(block.groups, rows)
        if rounded and not s.on_gpu and (s.knows_all or groups < rows):
            groups = rounded_rows(groups)
        if s.knows_all:
            return cls(block.triples, rows, groups, groups, block.row_answers, block.group_answers)
        forward = tests is not None and groups * tests.samples < rows
        return cls(block.triples, rows, groups, rows, moves_forward=forward)


def _distinct(s: TracinShape, tests: int) -> int:
    """Queries among so many test triples; all differ where nobody counted."""
    sides = s.counts.test_queries if s.both_directions else s.counts.test_queries[:1]
    return sum(min(tests, side) if side and tests == s.counts.test else tests for side in sides)


def walk_engine(ledger: Ledger, s: TracinShape) -> list[Held]:
    """`Engine.__init__`: folded norms, rounded copies, and projections."""
    c, part = s.model, "factors"
    taps = c.channels * c.kernel_height * c.kernel_width
    norms = (16 if c.batch_norm else 8) * (c.channels + c.output_channels + c.embedding_dim)
    held = [ledger.take(part, norms + 4 * c.output_channels * (2 * taps + 1))]
    if s.low.is_low:
        held.append(ledger.take(part, s.low.size * c.embedding_dim * c.features))
        held.append(ledger.take(part, s.low.size * c.embedding_dim * c.num_entities))
    if s.projection:
        held += [ledger.take(part, 4 * s.projection * many) for many in (c.features, c.num_entities)]
    return held


def walk_factors(
    ledger: Ledger,
    s: TracinShape,
    scratch: Scratch,
    side: Side,
    *,
    keep: bool,
    against: int = 0,
    places: int = 0,
) -> list[Held]:
    """`factors_of`: to `keep`, or to multiply with what has `against` columns, read at so many `places`."""
    vector = 4 * s.model.embedding_dim
    held = _grouped(ledger, s, side)
    held += _encode(ledger, s, scratch, side.groups, keep)
    if s.loss == "target":
        vectors = ledger.take("factors", vector * side.samples)
        ledger.flash("factors", vector * side.samples, vector * side.samples)
        d_x = ledger.take("factors", vector * side.samples)
        still = [
            vectors,
            ledger.take("factors", 8 * side.samples),
        ]  # and the scores with what becomes of them
    else:
        shared = _output_pass(ledger, s, scratch, side, keep, against, places)
        held += shared
        d_x = ledger.take("factors", vector * side.samples)
        still = []
        if not s.knows_all:
            ledger.flash("factors", vector * side.samples, vector * side.samples)
    held += _output_gradients(ledger, s, side)
    if not side.moves_forward and (s.names & CONVOLUTION or s.names & {"entities", "relations"}):
        held += _pull(ledger, s, scratch, side)
    ledger.give(d_x, *still)
    return held


def _grouped(ledger: Ledger, s: TracinShape, side: Side) -> list[Held]:
    part = "factors"
    held = [ledger.take(part, _ROW * side.rows)]
    if s.both_directions:
        ledger.flash(part, _ROW * side.triples, _ROW * side.triples)
    if s.knows_all:
        ledger.flash(part, *[_ID * side.row_answers] * 5, *[_ID * side.rows] * 2)
    ledger.flash(part, *[_ID * side.rows] * 6)
    held += [ledger.take(part, size) for size in (_ROW * side.groups, _ID * side.rows, 4 * side.samples)]
    if s.knows_all:
        ledger.flash(part, *[_ID * side.group_answers] * 5)
        pairs = [ledger.take(part, _ID * side.group_answers) for _ in (1, 2)]
        ledger.flash(part, *[_ID * side.group_answers] * 4)
        held += [ledger.take(part, size * side.group_answers) for size in (_ID, _ID, _ID, 4)]
        ledger.give(*pairs)
    elif s.loss != "target":
        held.append(ledger.take(part, (3 * _ID + 4) * min(side.groups, side.rows)))
    return held


def _encode(ledger: Ledger, s: TracinShape, scratch: Scratch, groups: int, keep: bool) -> list[Held]:
    """`Encoder.encode`."""
    c, part = s.model, "factors"
    vectors, places = 4 * groups * c.embedding_dim, c.map_height * c.map_width
    taps = c.channels * c.kernel_height * c.kernel_width
    numbers = groups * c.features
    rows = [ledger.take(part, vectors), ledger.take(part, vectors)]
    held = [ledger.take(part, 2 * vectors)]
    ledger.give(*rows)
    normed = ledger.take(part, 2 * vectors)
    patches = groups * (taps + 1) * places
    held.append(ledger.take(part, 4 * patches))
    ledger.give(normed)
    if keep:
        held.append(ledger.take(part, 4 * numbers))
    else:
        scratch.take("activations", "maps", 4 * numbers)
    if s.low.is_low:
        kernel = c.output_channels * (taps + 1)
        ledger.give(walk_product(ledger, part, s.low, kernel, patches, numbers, batched=True))
        weight = c.embedding_dim * c.features
        held.append(
            walk_product(ledger, part, s.low, numbers, weight, groups * c.embedding_dim, rounded=True)
        )
    else:
        ledger.use_cublas()
        held.append(ledger.take(part, vectors))
        if not s.on_gpu:
            flash_inside(ledger, groups, c.features, c.embedding_dim, "b")
    return [*held, ledger.take(part, vectors)]


def _output_pass(
    ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side, keep: bool, against: int, places: int
) -> list[Held]:
    part, groups, c = "factors", side.groups, s.model
    total, dim = c.num_entities, c.embedding_dim
    chunk = min(s.chunk, total)
    held = [ledger.take(part, 4 * groups * dim)]
    if keep:
        held.append(ledger.take(part, 4 * groups * total))
    if against:
        held.append(ledger.take("scores", 4 * groups * against))
    wanted = 4 * groups * places
    at = ledger.take("scores", wanted)
    if s.loss.endswith("-ce"):
        held.append(ledger.take(part, 8 * groups))
    scratch.take("loss", "plane", 4 * groups * chunk)
    if s.low.is_low:
        ledger.give(
            walk_product(ledger, part, s.low, groups * dim, chunk * dim, groups * chunk, rounded=True)
        )
        ledger.give(
            walk_product(ledger, part, s.low, groups * chunk, chunk * dim, groups * dim, rounded=True)
        )
    elif not s.on_gpu:
        flash_inside(ledger, groups, dim, chunk, "b")
        flash_inside(ledger, groups, chunk, dim)
    if against and not (s.gram_format.is_low or s.on_gpu):
        flash_inside(ledger, groups, chunk, against)
    if against and s.gram_format.is_low:
        rounded = not s.projection  # deltas were rounded when they were kept; a projection is rounded here
        product = (groups * chunk, chunk * against, groups * against)
        ledger.give(walk_product(ledger, "scores", s.gram_format, *product, rounded=rounded))
    if side.group_answers:
        share = min(1.0, 2 * chunk / total)
        ledger.flash(part, *[round(4 * share * side.group_answers)] * 4)
    if total <= chunk:
        ledger.flash("scores", wanted)
    # Columns come by entity and are put back into the order of the tests.
    ordered = ledger.take("scores", wanted)
    ledger.give(at)
    return [*held, ordered]


def _output_gradients(ledger: Ledger, s: TracinShape, side: Side) -> list[Held]:
    """`Encoder.output_gradients`."""
    part, vector = "factors", 4 * s.model.embedding_dim
    own = vector * side.samples
    ledger.flash(part, side.samples * s.model.embedding_dim, 0 if s.on_gpu else own)
    by_weight, by_bias = "output_norm.weight" in s.names, "output_norm.bias" in s.names
    passing: list[Held] = []
    if by_weight:
        hat = ledger.take(part, vector * side.groups)
        ledger.flash(part, vector * side.groups)
        by_hat = ledger.take(part, own)
        ledger.flash(part, own)
        passing = [hat, by_hat]
    held = [ledger.take(part, own)]
    if by_weight or by_bias:
        held.append(ledger.take(part, (by_weight + by_bias) * own))
    ledger.give(*passing)
    return held


def small_each(s: TracinShape) -> int:
    """Bytes a sample of the gradients of convolution and norms that take part."""
    c = s.model
    widths = {"conv.weight": c.output_channels * c.channels * c.kernel_height * c.kernel_width}
    own = {name: c.channels if name.startswith("input") else c.output_channels for name in CONVOLUTION}
    return 4 * sum((own | widths)[name] for name in s.names & CONVOLUTION)


def _pull(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side) -> list[Held]:
    """`Encoder.pull`: back through the convolution, some samples at a time, then side by side."""
    part, small, vector = "factors", small_each(s), 4 * s.model.embedding_dim
    at_once = min(TRACIN_ROWS_AT_ONCE, side.samples)
    last = side.samples - (side.samples - 1) // at_once * at_once
    before = side.samples - last
    pieces: list[Held] = []
    if before:
        pieces += _pieces(ledger, s, at_once, before // at_once - 1)
        _pull_some(ledger, s, scratch, side, at_once)
        pieces += _pieces(ledger, s, at_once, 1)
    _pull_some(ledger, s, scratch, side, last)
    kept = [
        size
        for size, name in ((small, ""), (vector, "entities"), (vector, "relations"))
        if not name or name in s.names
    ]
    if not before:
        return [ledger.take(part, side.samples * size) for size in kept]
    pieces += _pieces(ledger, s, last, 1)
    joined = [ledger.take(part, side.samples * size) for size in (small, vector, vector)]
    ledger.give(*pieces)
    if len(kept) < len(joined):
        ledger.give(*joined)
        joined = [ledger.take(part, side.samples * size) for size in kept]
    return joined


def _pieces(ledger: Ledger, s: TracinShape, rows: int, times: int) -> list[Held]:
    """Gradients of as many samples: those of small parameters, of heads and of relations."""
    vector = 4 * rows * s.model.embedding_dim
    sizes = (rows * small_each(s), vector, vector)
    return [held for size in sizes for held in ledger.take_equal("factors", size, times)]


def _pull_some(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side, rows: int) -> None:
    """`Encoder._pull_some`; a GPU's fold keeps the storage of what it folded."""
    c, part = s.model, "activations"
    taps, places = c.channels * c.kernel_height * c.kernel_width, c.map_height * c.map_width
    maps, seen = rows * c.features, rows * (taps + 1) * places
    d_maps = []
    if not (s.on_gpu or s.low.is_low) and uses_onednn(rows, c.embedding_dim, c.features):
        flash_inside(ledger, rows, c.embedding_dim, c.features, fresh=True)
        d_maps = [ledger.take(part, 4 * maps)]
    else:
        scratch.take(part, "d_maps", 4 * maps)
    if s.low.is_low:
        weight = c.embedding_dim * c.features
        ledger.give(walk_product(ledger, part, s.low, rows * c.embedding_dim, weight, maps, rounded=True))
    sums, tapped = rows * c.output_channels * (taps + 1), 4 * rows * taps * places
    vectors, small = 8 * rows * c.embedding_dim, rows * small_each(s)
    if s.on_gpu or s.low.is_low:
        scratch.take(part, "maps_again", 4 * maps)
        patches = ledger.take(part, 4 * seen)
        held = [walk_product(ledger, part, s.low, maps, seen, sums, batched=True)]
        ledger.give(patches)
    else:
        held = [ledger.take(part, 4 * sums)]
    kernel = c.output_channels * taps
    held.append(walk_product(ledger, part, s.low, kernel, maps, tapped // 4, batched=True))
    if s.on_gpu:
        held.append(ledger.take(part, tapped))
    else:
        ledger.flash(part, tapped // c.kernel_width // c.map_width * c.width, vectors)
        held.append(ledger.take(part, vectors))
    by_tap = ledger.take(part, 4 * rows * c.output_channels * taps if s.names & CONVOLUTION else 0)
    channels = 4 * rows * c.output_channels
    hat = 0
    if s.names & {"conv.bias", "feature_norm.weight"}:
        ledger.flash(part, by_tap[1])
    if "input_norm.weight" in s.names:
        image = 8 * side.groups * c.embedding_dim
        ledger.flash(part, image, image)
        ledger.flash(part, image, vectors)
        hat = vectors
        ledger.flash(part, hat, vectors)
    ledger.flash(part, small, hat, channels * (1 + c.batch_norm) if s.names & CONVOLUTION else 0)
    ledger.give(by_tap)
    ledger.flash(part, small, vectors, vectors)  # the image's gradient, and its two halves
    ledger.give(*held, *d_maps)
