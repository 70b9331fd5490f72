"""The factors of one block's gradients as the allocator sees them, after `kgops.tracin.factors`,
`kgops.tracin.encoder` and `kgops.tracin.output`."""

from __future__ import annotations

from dataclasses import dataclass

from kgops.jobs import sizes
from kgops.plans.ledger import Held, Ledger, Scratch
from kgops.plans.shapes import TracinShape

__all__ = ["Side", "walk_factors"]

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
        rows = tests * (2 if s.both_directions else 1)
        if s.loss.startswith("kvsall"):
            sides = (s.counts.tails, s.counts.heads) if s.both_directions else (s.counts.tails,)
            answers = round(sum(tests * side.squares / max(side.answers, 1) for side in sides))
            return cls(tests, rows, rows, rows, answers, answers)  # what training never saw stands alone
        return cls(tests, rows, _distinct(s, tests), rows)

    @classmethod
    def of_training(cls, s: TracinShape, test: Side) -> list[Side]:
        """The blocks that may take most, in an order in which each finds the buffers of the others: the one of
        most queries, one of so few that it moves forward, and the last one, which is smaller."""
        sides = [cls._of_block(s, test, s.block, s.groups)]
        if s.block >= s.counts.train:
            return sides
        both, counted = s.both_directions, s.counts.groups
        few = (sides[0].rows - 1) // test.samples
        if not sides[0].moves_forward and few >= counted.fewest_in_block(s.block, both_directions=both):
            sides.append(cls._of_block(s, test, s.block, min(few, s.groups)))
        if last := s.counts.train % s.block:
            groups = counted.in_last_block(s.block, both_directions=both)
            most = min(s.groups, last * (2 if both else 1))
            sides.append(cls._of_block(s, test, last, most if groups is None else groups))
        return [*sides, sides[0]]

    @classmethod
    def _of_block(cls, s: TracinShape, test: Side, triples: int, groups: int) -> Side:
        rows = triples * (2 if s.both_directions else 1)
        if not s.loss.startswith("kvsall"):
            return cls(triples, rows, groups, rows, moves_forward=groups * test.samples < rows)
        by_rows, by_groups = s.counts.groups.answers(triples, both_directions=s.both_directions)
        return cls(triples, rows, groups, groups, by_rows, by_groups)


def _distinct(s: TracinShape, tests: int) -> int:
    """Queries among so many test triples; all differ where nobody counted."""
    sides = s.counts.test_queries if s.both_directions else s.counts.test_queries[:1]
    return sum(min(tests, side) if side and tests == s.counts.test else tests for side in sides)


def walk_factors(
    ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side, test: Side | None
) -> list[Held]:
    """`factors_of`: of the tests, which are kept, where `test` is None; else of a block to multiply them with."""
    c = s.model
    keep, vector = test is None, 4 * c.embedding_dim
    held = _grouped(ledger, s, side)
    held += _encode(ledger, s, scratch, side.groups, keep)
    if s.loss == "target":
        vectors = ledger.take("factors", vector * side.samples)
        ledger.flash("factors", vector * side.samples, vector * side.samples)
        d_x = ledger.take("factors", vector * side.samples)
        still = [vectors]
    else:
        held += _output_pass(ledger, s, scratch, side, test)
        d_x = ledger.take("factors", vector * side.samples)
        still = []
        if not s.loss.startswith("kvsall"):
            ledger.flash("factors", vector * side.samples, vector * side.samples)
    held += _output_gradients(ledger, s, side)
    if not (test is not None and side.moves_forward):
        held += _pull(ledger, s, scratch, side)
    ledger.give(d_x, *still)
    return held


def _grouped(ledger: Ledger, s: TracinShape, side: Side) -> list[Held]:
    part = "factors"
    held = [ledger.take(part, _ROW * side.rows)]
    if s.both_directions:
        ledger.flash(part, _ROW * side.triples, _ROW * side.triples)
    if s.loss.startswith("kvsall"):
        ledger.flash(part, *[_ID * side.row_answers] * 5, *[_ID * side.rows] * 2)
    ledger.flash(part, *[_ID * side.rows] * 6)
    held += [ledger.take(part, size) for size in (_ROW * side.groups, _ID * side.rows, 4 * side.samples)]
    if s.loss.startswith("kvsall"):
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
    rows = [ledger.take(part, vectors), ledger.take(part, vectors)]
    held = [ledger.take(part, 2 * vectors)]
    ledger.give(*rows)
    normed = ledger.take(part, 2 * vectors)
    held.append(ledger.take(part, 4 * groups * (taps + 1) * places))
    ledger.give(normed)
    if keep:
        held.append(ledger.take(part, 4 * groups * c.features))
    else:
        scratch.take("activations", "maps", 4 * groups * c.features)
    return [*held, ledger.take(part, vectors), ledger.take(part, vectors)]


def _output_pass(
    ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side, test: Side | None
) -> list[Held]:
    part, groups, total = "factors", side.groups, s.model.num_entities
    chunk = min(s.chunk, total)
    held = [ledger.take(part, 4 * groups * s.model.embedding_dim)]
    if test is None:
        held.append(ledger.take(part, 4 * groups * total))
    else:
        held.append(ledger.take("scores", 4 * groups * test.groups))
    wanted = 4 * groups * (test.samples + test.groups) if test is not None else 0
    at = ledger.take("scores", wanted)
    if s.loss.endswith("-ce"):
        held.append(ledger.take(part, 8 * groups))
    scratch.take("loss", "plane", 4 * groups * chunk)
    if test is not None and s.gram != 4:
        product = 4 * groups * test.groups
        if s.on_card or not s.gram_in_wide_sums:
            ledger.flash("scores", 2 * groups * chunk, product // 2, product)
        else:
            ledger.flash("scores", 2 * groups * chunk, 4 * groups * chunk)
            ledger.flash("scores", 4 * groups * chunk, 4 * chunk * test.groups, product)
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
    ledger.flash(part, side.samples * s.model.embedding_dim, 0 if s.on_card else own)
    if not s.model.batch_norm:
        return [ledger.take(part, own)]
    hat = ledger.take(part, vector * side.groups)
    ledger.flash(part, vector * side.groups)
    by_hat = ledger.take(part, own)
    ledger.flash(part, own)
    held = [ledger.take(part, own), ledger.take(part, 2 * own)]
    ledger.give(hat, by_hat)
    return held


def _pull(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side) -> list[Held]:
    """`Encoder.pull`: back through the convolution, some samples at a time, then side by side."""
    c, part = s.model, "factors"
    at_once = min(sizes.TRACIN_ROWS_AT_ONCE, side.samples)
    norms = 2 * c.output_channels + 2 * c.channels if c.batch_norm else 0
    taps = c.channels * c.kernel_height * c.kernel_width
    small = 4 * (c.output_channels * (taps + 1) + norms)
    vector = 4 * c.embedding_dim
    last = side.samples - (side.samples - 1) // at_once * at_once
    before = side.samples - last
    pieces: list[Held] = []
    if before:
        pieces.append(ledger.take(part, (before - at_once) * (small + 2 * vector)))
        _pull_some(ledger, s, scratch, side, at_once)
        pieces.append(ledger.take(part, at_once * (small + 2 * vector)))
    _pull_some(ledger, s, scratch, side, last)
    if not before:
        return [ledger.take(part, side.samples * small), ledger.take(part, side.samples * 2 * vector)]
    pieces.append(ledger.take(part, last * (small + 2 * vector)))
    joined = [ledger.take(part, side.samples * size) for size in (small, vector, vector)]
    ledger.give(*pieces)
    return joined


def _pull_some(ledger: Ledger, s: TracinShape, scratch: Scratch, side: Side, rows: int) -> None:
    """`Encoder._pull_some`; a fold keeps the storage of what it folded."""
    c, part = s.model, "activations"
    taps, places = c.channels * c.kernel_height * c.kernel_width, c.map_height * c.map_width
    scratch.take(part, "d_maps", 4 * rows * c.features)
    scratch.take(part, "maps_again", 4 * rows * c.features)
    patches = ledger.take(part, 4 * rows * (taps + 1) * places)
    held = [ledger.take(part, 4 * rows * c.output_channels * (taps + 1))]
    ledger.give(patches)
    held += [ledger.take(part, 4 * rows * taps * places), ledger.take(part, 4 * rows * taps * places)]
    by_tap = 4 * rows * c.output_channels * taps
    held.append(ledger.take(part, by_tap))
    if c.batch_norm:
        ledger.flash(part, by_tap)
        image = 8 * side.groups * c.embedding_dim
        ledger.flash(part, image, image)
        ledger.flash(part, image, 8 * rows * c.embedding_dim)
        ledger.flash(part, 8 * rows * c.embedding_dim, 8 * rows * c.embedding_dim)
    ledger.flash(part, by_tap + 4 * rows * c.output_channels, 8 * rows * c.embedding_dim)
    ledger.give(*held)
