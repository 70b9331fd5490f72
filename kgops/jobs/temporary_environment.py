"""Variables that this process has for a while: a run gets the environment of whoever launches it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["lent"]


@contextmanager
def lent(variables: Mapping[str, str]) -> Iterator[None]:
    """What is launched inside has them; what is launched afterwards has what was there before."""
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
