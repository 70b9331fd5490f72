"""TracIn on ConvE as the allocator sees it: checkpoints, the factors of the test triples, blocks of training.

Line by line after `kgops.tracin`: `points`, `loss`, `scan`; `factor_memory` and `pair_memory` have the rest.
"""

from __future__ import annotations

from kgops.plans.ledger import Held, Ledger
from kgops.plans.scan_memory import walk_scan
from kgops.plans.shapes import TracinShape
from kgops.plans.weights import buffer_bytes, weight_bytes, weight_sizes

__all__ = ["walk_tracin"]

_ID = 8
_ROW = 3 * _ID


def walk_tracin(ledger: Ledger, s: TracinShape) -> None:
    """From the checkpoints to the strongest triples of the last test."""
    ledger.phase = "loading"
    triples = [ledger.take("data", _ROW * s.counts.train)]
    if not s.on_card:
        triples += [ledger.take("data", _ROW * n) for n in (s.counts.valid, s.counts.test)]
    models = [_load(ledger, s) for _ in range(s.checkpoints)]
    known = _known_tails(ledger, s) if s.knows_all else []
    walk_scan(ledger, s)
    ledger.give(*triples, *known, *[held for model in models for held in model])


def _load(ledger: Ledger, s: TracinShape) -> list[Held]:
    """`load_point`: what was read lives until it has been copied into the model."""
    saved = ledger.take("checkpoint", weight_bytes(s.model) + buffer_bytes(s.model))
    model = [ledger.take("weights", size) for size in weight_sizes(s.model)]
    model.append(ledger.take("weights", buffer_bytes(s.model)))
    ledger.give(saved)
    return model


def _known_tails(ledger: Ledger, s: TracinShape) -> list[Held]:
    """`trained_loss`: all training rows, sorted, with their answers; storages keep the size of the rows."""
    n = s.counts.train
    rows = n * (2 if s.model.inverse else 1)
    queries = s.counts.tails.queries + (s.counts.heads.queries if s.model.inverse else 0)
    first = ledger.take("data", _ROW * n)
    ledger.flash("data", _ID * n)
    doubled = [ledger.take("data", _ROW * n), ledger.take("data", _ROW * rows)] if s.model.inverse else []
    if doubled:
        ledger.give(first, doubled.pop(0))
        first = doubled.pop()
    ledger.flash("data", _ROW * rows, _ID * rows, _ID * rows, _ROW * rows)
    distinct = ledger.take("data", _ROW * rows)
    ledger.flash("data", *[_ID * rows] * 4)
    kept = [ledger.take("data", size) for size in (_ID * rows, _ID * rows, _ID * queries, _ID * rows)]
    ledger.give(distinct, first)
    return kept
