"""Whatever a person types as a filter, asks of Slurm, or a worker writes as an event: understood or refused.

`KGOPS_FUZZ=50 python -m pytest tests/hostile/test_fuzz_words.py --timeout 0` tries 50 times as many.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fuzzing import ODD, PLAIN, damaged, examples, refused_or
from hypothesis import example, given
from hypothesis import strategies as st

from kgops.cluster.script import sbatch_options, script
from kgops.jobs import events
from kgops.workloads.job_files import read_job
from storage import conditions, filters

pytestmark = pytest.mark.usefixtures("bounded")

# --- filters --------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_characters='"'), min_size=1, max_size=6).filter(
    lambda word: not re.search(r"[\s\0]", word)
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda number: f"{number:.9g}")
OF_KIND: dict[str, Any] = {
    "choice": WORDS,
    "contains": WORDS | WORDS.map(lambda word: f'"{word} {word}"'),
    "gpu": WORDS,
    "number": NUMBERS | st.tuples(NUMBERS, NUMBERS).map("..".join),
    "time": st.sampled_from(["7d", "30m", "999999999w", "2026-01-31", "today"]),
}


@st.composite
def typed(draw: st.DrawFn) -> tuple[str, bool]:
    key = draw(st.sampled_from(sorted(filters.FIELDS)))
    field = filters.FIELDS[key]
    op = draw(
        st.sampled_from([":", "=", ">", "<", ">=", "<=", "!="] if field.kind == "number" else [":", "="])
    )
    value = draw(st.sampled_from(["failed", "oom", "ended"]) if key == "state" else OF_KIND[field.kind])
    if ".." in value and op not in (":", "="):
        op = ":"
    return f"{draw(st.sampled_from(['', '-']))}{key}{op}{value}", field.kind == "choice"


@examples(150)
@given(terms=st.lists(typed(), max_size=4), between=st.sampled_from([" ", "  ", "\n", "\t "]))
def test_every_filter_put_together_from_its_parts_is_read_as_these_parts(
    terms: list[tuple[str, bool]], between: str
) -> None:
    text = between.join(term for term, _ in terms)
    reading = filters.read(text, now=1.8e9)
    alone = [filters.read(term, now=1.8e9) for term, _ in terms]
    assert list(reading.terms) == [term for one in alone for term in one.terms]
    assert len(reading.troubles) == sum(len(one.troubles) for one in alone)
    assert not any(one.troubles for one, (_, may) in zip(alone, terms, strict=True) if not may)


@examples(60)
@given(text=st.text(alphabet='gpustaermod:><=!-"., 0179e*_\n', max_size=40) | PLAIN)
@example(text="state:" + "x" * 200_000)
@example(text='"' * 100_001)
@example(text="a>" + "1" * 200_000)
@example(text="since:" + "9" * 100_000)
@example(text="mrr>" + ".." * 100_000)
@example(text=" ".join(f"key{n}:x" for n in range(2000)))
def test_any_filter_at_all_becomes_bound_conditions_or_troubles(conn: Any, text: str) -> None:
    for typing in (False, True):
        reading = filters.read(text, now=1.8e9, typing=typing)
        conditions.compiled(conn, reading.terms)
        assert all(trouble.message and len(trouble.message) < 1000 for trouble in reading.troubles)


# --- what goes to others and comes from them ------------------------------------------------------

ASKED = (
    ODD
    | PLAIN
    | st.sampled_from(["gpu:2", "01:30:00", "--comment=a b", "--comment='#'", '--x="\\', "٣", "4"])
)


@examples(150)
@given(
    asked=st.dictionaries(
        st.sampled_from(["partition", "time", "gres", "cpus", "memory", "account", "options"]),
        ASKED | st.lists(ASKED, max_size=3),
        max_size=3,
    )
)
@example(asked={"partition": "a\nrm -rf x"})
@example(asked={"options": ["--qos=a b", "--comment=it's #1"]})
def test_whatever_is_asked_of_slurm_is_one_option_on_one_line_or_refused(asked: dict[str, Any]) -> None:
    table = {"workload": "train", "train": {"dataset": "umls"}, "on": {"where": "slurm", **asked}}
    job = refused_or(lambda: read_job(table, "the job"), "the job")
    if job is None:
        return
    folder = Path("/a folder/of 'mine'")
    options = sbatch_options("kgops-1", job.on, folder)
    written = script("kgops-1", job.on, folder, "/", ["python"], {}).split("\n")
    lines = written[1 : len(options) + 1]
    assert [shlex.split(line.removeprefix("#SBATCH ")) for line in lines] == [[option] for option in options]
    assert not any(line.startswith("#SBATCH") for line in written[len(options) + 1 :])


EVENT_LINES = [
    events.write("metric", 1.5, name="loss", value=0.25, step=3),
    events.write(
        "attribution",
        1.5,
        test=1,
        triple=["a", "r", "b"],
        influences=[[1, "a", "r", "c", -0.5]],
        names={"a": "é"},
    ),
    events.write("memory", 1.5, mib={"device": 1.0}, more=[None, {"x": [True]}]),
]
EVENT_TOKENS = (
    *(
        b"[" * 2000,
        b'{"a":' * 2000,
        b"1" * 400,
        b"1" * 5000,
        b"1e999",
        b"NaN",
        b"-Infinity",
        b"null",
        b"true",
    ),
    *(
        b'"\\ud800"',
        b"\\udc00",
        b"\\u0000",
        b"\xff",
        b"\xed\xa0\x80",
        b'"at":"x",',
        b'"event":"note",',
        b"\n",
    ),
)


@examples(150)
@given(line=st.sampled_from(EVENT_LINES).flatmap(lambda line: damaged(line, EVENT_TOKENS)))
def test_an_event_that_is_read_is_written_and_read_again_as_it_is(line: bytes) -> None:
    event = events.read(line, 7.0)
    if event.kind == events.LOG:
        assert len(event.fields["text"]) <= events.LONGEST_LOG_LINE
    else:
        assert events.read(events.write(event.kind, event.at, **event.fields), 8.0) == event
