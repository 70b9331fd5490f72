"""The most memory the factors of one block's gradients may take, after `kgops.maths.tracin.factors`, `encoder` and
`entity_pass`. It depends on the rows, distinct queries and known answers of a block of triples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kgops.jobs.on_device import onednn_is_wider, rounded_rows
from kgops.workloads.graphs.block_counts import Block
from kgops.workloads.memory.budget import Parts
from kgops.workloads.tracin.options import TRACIN_ROWS_AT_ONCE
from kgops.workloads.tracin.sizes import CONVOLUTION, Format, TracinShape
from kgops.workloads.train.models import ConvEConfig, VectorConfig


@dataclass(frozen=True, slots=True)
class Side:
    """One block: `rows` of `triples` in the directions that count. The rows have `groups`, the distinct queries, and
    `samples`, the tails of queries. `row_answers` and `group_answers`: the known answers of all rows and of all
    groups."""

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
            return cls(tests, rows, rows, rows, answers, answers)  # an unseen triple is a separate group
        return cls(tests, rows, _distinct(s, tests), rows)

    @classmethod
    def of_block(cls, s: TracinShape, block: Block, tests: Side | None) -> Side:
        """`tests`: those it is multiplied with; few enough, and it moves forward."""
        rows = block.triples * s.rows_each
        groups = min(block.groups, rows)
        if not s.on_gpu and (s.knows_all or groups < rows):
            groups = rounded_rows(groups)
        if s.knows_all:
            return cls(block.triples, rows, groups, groups, block.row_answers, block.group_answers)
        has_layers = isinstance(s.model, ConvEConfig)
        forward = has_layers and tests is not None and groups * tests.samples < rows
        return cls(block.triples, rows, groups, rows, moves_forward=forward)


def _distinct(s: TracinShape, tests: int) -> int:
    """Queries among so many test triples; all differ where nobody counted."""
    sides = s.counts.test_queries if s.both_directions else s.counts.test_queries[:1]
    return sum(min(tests, side) if side and tests == s.counts.test else tests for side in sides)


def sides_of(s: TracinShape, test: Side | None) -> list[Side]:
    """The blocks of training triples that may take most. Of those with few queries, which go by tangents, the largest
    that may be among blocks whose queries nobody counted."""
    blocks = s.counts.groups.blocks(s.block, s.counts.train, both_directions=s.both_directions)
    sides = [Side.of_block(s, block, test) for block in blocks.found]
    if test is None or s.knows_all:
        return sides
    limit = (s.block * s.rows_each - 1) // max(test.samples, 1)
    if blocks.share < 1:
        about = blocks.share * max(block.groups for block in blocks.found)
        rows = s.block * s.rows_each
        few = limit and about - 3 * math.sqrt(max(rows - about, 0)) <= limit  # queries come again by chance
        forward = Block(0, s.block, limit, 0, 0) if few else None
    else:
        forward = None if blocks.all else blocks.most_within(limit)
    return sides if forward is None else [*sides, Side.of_block(s, forward, test)]


_ID = 8
_ROW = 3 * _ID
_ONEDNN = 1 << 20  # its result and its copy of a first factor, in parts (`jobs/on_device`)


@dataclass(frozen=True, slots=True)
class Made:
    """Factors of a block: bytes `held`, the `peak` while they are made, and buffers by name that stay for the next
    block."""

    held: Parts
    peak: Parts
    scratch: Mapping[str, int]


def scratch_parts(*several: Mapping[str, int]) -> Parts:
    """Buffers that were made for one block after another: each as large as any block needed it."""
    names = {name for one in several for name in one}
    sizes = {name: max(one.get(name, 0) for one in several) for name in names}
    return Counter(loss=sizes.pop("plane", 0)) + Counter(activations=sum(sizes.values()))


def rounding(f: Format, a: int, b: int, out: int, *, rounded: bool = False, batched: bool = False) -> int:
    """`low_precision.product`: what factors of `a` and `b` numbers take apart from the result, rounded to a low format;
    the second may be `rounded` already."""
    if not f.is_low:
        return 0
    own = 0 if rounded else f.size * b
    if f.widened:
        return max((f.size + 4) * a - 4 * out, 4 * (a + b) + own - 4 * out, 4 * (a + b))
    factors = f.size * a + own
    return factors if f.on_gpu and not batched else max(factors - f.size * out, f.size * out)


def engine(s: TracinShape) -> Parts:
    """`Encoder.__init__`: folded norms and rounded copies."""
    c = s.model
    norms = (16 if c.batch_norm else 8) * (c.channels + c.output_channels + c.embedding_dim)
    own = norms + 4 * c.output_channels * (2 * s.taps + 1)
    if s.low.is_low:
        own += s.low.size * c.embedding_dim * (c.features + c.num_entities)
    if isinstance(c, VectorConfig):
        own += 4 * c.num_entities  # biases of zeros
    return Counter(factors=own)


def factors(s: TracinShape, side: Side, *, keep: bool, against: int = 0, places: int = 0) -> Made:
    """`factors_of`: to `keep`, or to multiply with what has `against` columns, read at so many `places`."""
    c, g, m = s.model, side.groups, side.samples
    d, numbers, answers = 4 * c.embedding_dim, g * c.features, side.group_answers
    has_layers = isinstance(c, ConvEConfig)
    has_shared, wide = s.loss != "target", min(s.chunk, c.num_entities)
    ids = _ROW * (side.rows + g) + _ID * side.rows + 4 * m
    grouping = ids + max(40 * side.row_answers + 16 * side.rows, 48 * side.rows, 48 * answers)
    ids += 28 * (answers if s.knows_all else has_shared * min(g, side.rows))
    # A query vector is its own projection where there are no layers.
    vectors = 4 if has_layers else 3
    encoded = ids + 4 * g * (s.taps + 1) * s.places + vectors * g * d + (4 * numbers if keep else 0)
    kernel, weight, patches = (
        c.output_channels * (s.taps + 1),
        c.embedding_dim * c.features,
        g * (s.taps + 1) * s.places,
    )
    encoding = encoded + max(
        rounding(s.low, kernel, patches, numbers, batched=True) + (4 * numbers if s.low.is_low else 0),
        rounding(s.low, numbers, weight, g * c.embedding_dim, rounded=True),
        2 * g * d if isinstance(c, ConvEConfig) else _autograd(c) * g * d,
    )
    scratch = {} if keep else {"maps": 4 * numbers}
    columns = passing = 0
    before = encoded
    if has_shared:  # `output_pass`
        scratch["plane"] = 4 * g * wide
        columns = 4 * g * (against + places)
        before += g * d + 8 * g + (4 * g * c.num_entities if keep else 0)
        product = rounding(s.low, g * wide, wide * c.embedding_dim, g * c.embedding_dim, rounded=True)
        product = max(
            product, rounding(s.low, g * c.embedding_dim, wide * c.embedding_dim, g * wide, rounded=True)
        )
        if s.low.is_low:
            product += 4 * g * max(wide, c.embedding_dim)
        share = min(1.0, 2 * wide / c.num_entities)
        passing = before + max(4 * g * places, product, round(16 * share * answers))
    by_norm = ("output_norm.weight" in s.names) + ("output_norm.bias" in s.names)
    out = m * d * (1 + by_norm)
    # The gradient at x, which without layers is what goes out; without a shared part, the tails too.
    asked = m * d * has_layers + (0 if has_shared else m * d + 8 * m)
    own = before + out + asked
    rising = own + max(2 * m * d, (2 * g + 2 * m) * d if by_norm else 0)
    held = before + out
    if s.goes_deep and not side.moves_forward:
        pulled, pulling = _pull(s, m, g, scratch)
        held, rising = held + pulled, max(rising, own + pulling)
    peak = max(grouping, encoding, passing, rising, held)
    scores: Parts = Counter(scores=columns)
    return Made(Counter(factors=held) + scores, Counter(factors=peak) + workspace(s) + scores, scratch)


def workspace(s: TracinShape) -> Parts:
    """Of the library that multiplies."""
    return Counter(workspace=0 if s.on_gpu or not onednn_is_wider() else _ONEDNN)


def small_each(s: TracinShape) -> int:
    """Bytes a sample of the gradients of convolution and norms that take part."""
    c = s.model
    widths = {"conv.weight": c.output_channels * s.taps}
    own = {name: c.channels if name.startswith("input") else c.output_channels for name in CONVOLUTION}
    return 4 * sum((own | widths)[name] for name in s.names & CONVOLUTION)


def _autograd(c: VectorConfig) -> int:
    """Vectors of each row that autograd takes for the gradients of a bilinear score; complex products take more."""
    return 3 + 2 * (c.embedding_dim // c.rank)


def _pull(s: TracinShape, samples: int, groups: int, scratch: dict[str, int]) -> tuple[int, int]:
    """`Encoder.pull`: bytes kept of all samples, and the peak while they go back through the convolution. They go back
    some at a time, before they are joined."""
    c, small, d = s.model, small_each(s), 4 * s.model.embedding_dim
    if isinstance(c, VectorConfig):
        return 2 * samples * d, _autograd(c) * samples * d
    rows = min(TRACIN_ROWS_AT_ONCE, samples)
    maps, taps, patches = rows * c.features, 4 * rows * s.taps * s.places, rows * (s.taps + 1) * s.places
    sums, by_tap = rows * c.output_channels * (s.taps + 1), 4 * rows * c.output_channels * s.taps
    scratch["d_maps"] = 4 * maps
    again = s.on_gpu or s.low.is_low
    if again:
        scratch["maps_again"] = 4 * maps
    first = 4 * patches * again + rounding(s.low, maps, patches, sums, batched=True)
    second = taps + rounding(s.low, c.output_channels * s.taps, maps, taps // 4, batched=True)
    folded = taps if s.on_gpu else taps // c.kernel_width // c.map_width * c.width
    hats = 4 * groups * d if "input_norm.weight" in s.names else 0  # of all groups' images
    ending = taps + folded + 2 * rows * d + max(hats + by_tap, 4 * rows * d + 2 * rows * small + 2 * by_tap)
    at_once = 4 * sums + max(first, second, ending)
    every = samples * (small + 2 * d)
    kept = samples * (small + d * (("entities" in s.names) + ("relations" in s.names)))
    return kept, (every if samples > rows else 0) + max(every, at_once)
