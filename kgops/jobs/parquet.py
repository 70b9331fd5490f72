"""pyarrow, which is optional and slow to import."""

from __future__ import annotations

from typing import Any

from kgops.errors import KgopsError, Unavailable


def import_pyarrow(hint: str = "pip install 'kgops[parquet]'", error: type[KgopsError] = Unavailable) -> Any:
    """pyarrow with its Parquet files; raises `error` with the hint where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise error("Parquet needs pyarrow, which is not installed.", hint) from missing
    return pyarrow
