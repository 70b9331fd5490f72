"""What products of float32 matrices take inside a library on a CPU, after `kgops.maths.models.products`."""

from __future__ import annotations

from kgops.jobs import cpu_products
from kgops.workloads.memory.ledger import Ledger


def flash_inside(
    ledger: Ledger, rows: int, inner: int, columns: int, transposed: str = "", *, fresh: bool = False
) -> None:
    """`kgops.maths.models.products` on a CPU, whose factors and result are there."""
    if cpu_products.onednn_is_wider():
        ledger.flash("workspace", cpu_products.taken_bytes(rows, inner, columns, transposed, fresh=fresh))
