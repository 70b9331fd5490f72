"""What the tests under fuzz share: how many examples, how a file is damaged, and what a refusal has to be."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kgops.errors import KgopsError

T = TypeVar("T")
TIMES = int(os.environ.get("KGOPS_FUZZ", "1"))
_LONGEST_MESSAGE = 24_000
# What nobody expects in a table, and plain words.
PLAIN = st.text(st.characters(codec="utf-8"), max_size=8)
ODD: Any = st.sampled_from(
    [
        *(0, 1, -1, 2, 3, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 64), 10**400, 1 << 20_000),
        *(0.0, -0.0, 0.5, 1e-3, 1e308, float("inf"), float("-inf"), float("nan"), 1e-320),
        *(
            True,
            False,
            None,
            "",
            " ",
            "auto",
            "cpu",
            "cuda:99",
            "slurm",
            "ray",
            "umls",
            "all",
            "0,1",
            "x" * 5000,
        ),
        *(
            "a\nb",
            "\0",
            "\ud800",
            "\u202e",
            "{n}",
            "224x224",
            "04:00:00",
            "1-12",
            "--qos=x\n#SBATCH --wrap=y",
        ),
        *([], [[]], ["a"], ["--nice=1"], [1, 2], ["\0"], {}, {"a": {"b": 1}}, {"": 1}),
    ]
)


def examples(count: int) -> settings:
    """So many, always the same ones; with KGOPS_FUZZ=N, N times as many and others each time."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def refused_or(read: Callable[[], T], *named: str) -> T | None:
    """What `read` gives; None where it refuses in words a person can use, with each of `named` among them.

    Any other error is the test's: a traceback is no answer to a file."""
    try:
        return read()
    except KgopsError as error:
        assert error.message.strip() and len(error.message) < _LONGEST_MESSAGE
        assert all(name in error.message for name in named), error.message
        return None


def read_and_told(path: Path, content: bytes, read: Callable[[Path], Any]) -> Any:
    path.write_bytes(content)
    return refused_or(lambda: read(path), path.name)


@contextmanager
def memory_within(mib: int) -> Iterator[None]:
    """What this process holds at most may not grow by more."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < mib


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, tokens: tuple[bytes, ...]) -> bytes:
    """`whole` after one to four accidents: cut, a byte flipped, a piece twice, away, or a token put in."""
    found = whole
    for _ in range(draw(st.integers(1, 4))):
        at, to = sorted((draw(st.integers(0, len(found))), draw(st.integers(0, len(found)))))
        act = draw(st.integers(0, 5))
        if act == 0:
            found = found[:to]
        elif act == 1:
            found = found[:at] + bytes([draw(st.integers(0, 255))]) + found[at + 1 :]
        elif act == 2:
            found = found[:to] + found[at:]
        elif act == 3:
            found = found[:at] + found[to:]
        else:
            found = found[:at] + draw(st.sampled_from(tokens)) + found[at if act == 4 else to :]
    return found
