"""Temporary environment variables of this process, for runs launched meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["temporary_variables"]


@contextmanager
def temporary_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets the variables, and restores the previous ones afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
