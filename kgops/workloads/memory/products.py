"""Products as the allocator sees them, after `kgops.maths.tracin.low_precision` and `kgops.maths.models.products`."""

from __future__ import annotations

import math
from typing import NamedTuple

from kgops.jobs import cpu_products
from kgops.workloads.memory.ledger import Held, Ledger


class Format(NamedTuple):
    """What factors of products are rounded to: `size` bytes a number. `widened` where they are multiplied in
    float32 all the same, as fp16 on a CPU, which would sum in fp16."""

    size: int = 4
    widened: bool = False
    on_gpu: bool = False

    @property
    def is_low(self) -> bool:
        return self.size != 4

    @classmethod
    def named(cls, name: str, *, on_gpu: bool) -> Format:
        low = name in ("bf16", "fp16")
        return cls(2 if low else 4, name == "fp16" and not on_gpu, on_gpu)


EXACT = Format()


def walk_product(
    ledger: Ledger,
    part: str,
    f: Format,
    a: int,
    b: int,
    out: int,
    *,
    rounded: bool = False,
    batched: bool = False,
) -> Held:
    """`product`: of factors of `a` and `b` numbers; `rounded` where the second is low already. The result."""
    if not f.is_low:
        if out and a and not batched and not f.on_gpu:
            inner = math.isqrt(a * b // out)
            flash_inside(ledger, a // inner, inner, b // inner, "b", fresh=True)
        result = ledger.take(part, 4 * out)
        ledger.use_cublas()  # whose workspace is made after the result
        return result
    own = 0 if rounded else f.size * b
    if f.widened:
        first = _widened(ledger, part, f.size * a, a)
        second = _widened(ledger, part, own, b)
        result = ledger.take(part, 4 * out)
        ledger.give(first, second)
        return result
    factors = ledger.take(part, f.size * a), ledger.take(part, own)
    if f.on_gpu and not batched:  # sums stay in float32
        result = ledger.take(part, 4 * out)
        ledger.use_cublas()
        ledger.give(*factors)
        return result
    small = ledger.take(part, f.size * out)
    ledger.use_cublas()
    ledger.give(*factors)
    result = ledger.take(part, 4 * out)
    ledger.give(small)
    return result


def flash_inside(
    ledger: Ledger, rows: int, inner: int, columns: int, transposed: str = "", *, fresh: bool = False
) -> None:
    """`kgops.maths.models.products` on a CPU, whose factors and result are there."""
    if cpu_products.onednn_is_wider():
        ledger.flash("workspace", cpu_products.taken_bytes(rows, inner, columns, transposed, fresh=fresh))


def _widened(ledger: Ledger, part: str, low: int, numbers: int) -> Held:
    rounded = ledger.take(part, low)
    wide = ledger.take(part, 4 * numbers)
    ledger.give(rounded)
    return wide
