"""Whatever a worker writes can be read, kept and shown; nothing it writes can stop the record."""

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from records import add, in_memory

from kgops.jobs import events
from kgops.supervisor.intake import Intake
from kgops.supervisor.run_folder import RunFolder
from kgops.supervisor.worker_reports import LogPatterns
from storage import attempts as store
from storage import influences, reports, series

NOW = 1000.0
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 2**63, -(2**63) - 1])
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | st.text(st.characters(categories=["Cs", "Lu"]), max_size=3)  # surrogates, escaped by json.dumps
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
FIELDS = "name value step at mib path bytes metrics detail reason text done phase total unit rate kind sha256"
FIELDS += " requested test triple candidates trouble influences names subject n low"
NEARLY = st.builds(
    lambda kind, fields: json.dumps({"event": kind, **fields}).encode(),
    st.sampled_from([*events._FIELDS, "other", "log"]),
    st.dictionaries(st.sampled_from(FIELDS.split()), VALUES, max_size=6),
)
LINES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()) | NEARLY
HARD = [
    b'{"event": "metric", "name": "a", "value": NaN, "step": 1}',
    b'{"event": "metric", "name": "a", "value": 1e999, "step": 1}',
    b'{"event": "metric", "name": "a", "value": 1, "step": -Infinity}',
    b'{"event": "metric", "name": "a", "value": 1' + b"0" * 400 + b', "step": 1}',
    b'{"event": "metric", "name": "a", "value": 1' + b"0" * 5000 + b', "step": 1}',
    b'{"event": "metric", "name": "\\ud800", "value": 1, "step": 1}',
    b'{"event": "metric", "name": "\xed\xa0\x80", "value": 1, "step": 1}',
    '{"event": "metric", "name": "\\ud800", "value": 1, "step": 1}'.encode("utf-16"),
    '{"event": "metric", "name": "a", "value": 1, "step": 1}'.encode("utf-32"),
    b'{"event": "memory", "mib": {"\\udfff": 1, "a": 1' + b"0" * 400 + b', "b": 1e999, "c": true}}',
    b'{"event": "artifact", "path": "\\u0000/../x", "bytes": 1e300}',
    b'{"event": "artifact", "path": "x", "bytes": -1}',
    b'{"event": "result", "metrics": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}",
    b'{"event": "result", "metrics": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"event": "note", "text": "x", "at": 1' + b"0" * 400 + b"}",
    b'{"event": "progress", "done": 1' + b"0" * 400 + b"}",
    b'{"event": "option", "name": "x", "effective": {"a": [1e999]}, "chosen_by": [1]}',
    b'{"event": "attribution", "test": 1' + b"0" * 300 + b', "triple": ["a", "b", "c"]}',
    b'{"event": "attribution", "test": 1, "triple": ["a", "b"], "influences": [[1]]}',
    b'{"event": "attribution", "test": 1, "triple": ["a", "b", "c"], "influences": [[1, "a", "b", "c", 1e999]]}',
    b'{"event": "attribution", "test": 1, "triple": ["a", "b", "c"], "influences": [[[], "a", "b", "c", 1]]}',
    b'{"event": "attribution", "test": 1, "triple": ["a", "b", "c"], "candidates": -1, "names": {"a": 1}}',
    b'{"event": "measured", "name": "a", "subject": "b", "value": 1, "n": 1e300, "unit": "s"}',
    b"\xef\xbb\xbf{}",
    b"\x00",
    b"",
]


def with_hard_lines(test: Any) -> Any:
    for line in HARD:
        test = example(line)(test)
    return test


@contextmanager
def a_run(template: Path) -> Iterator[tuple[sqlite3.Connection, RunFolder]]:
    with in_memory(template) as conn, tempfile.TemporaryDirectory() as folder:
        add(conn, 1, state="running")
        yield conn, RunFolder(Path(folder))


@contextmanager
def taken_in(template: Path, *lines: bytes) -> Iterator[sqlite3.Connection]:
    """The record of a run whose worker has written these events."""
    with a_run(template) as (conn, folder):
        folder.events.write_bytes(b"".join(lines))
        intake_of(conn, folder).take_all(1)
        yield conn


def intake_of(conn: sqlite3.Connection, folder: RunFolder, metric_regex: str | None = None) -> Intake:
    return Intake(conn, 1, folder, LogPatterns(None, metric_regex))


# --- the parser -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@with_hard_lines
@given(line=LINES)
def test_every_line_is_an_event_that_can_be_kept(line: bytes) -> None:
    event = events.read(line, NOW)
    assert event.kind in (*events._FIELDS, events.LOG)
    assert event.at == event.at  # never NaN
    kept = json.dumps(event.fields, allow_nan=False)
    with closing(sqlite3.connect(":memory:")) as conn:
        assert conn.execute("SELECT json_valid(?)", (kept,)).fetchone() == (1,)
    json.dumps(event.fields, ensure_ascii=False).encode()  # and shown: no half of a surrogate pair


@settings(deadline=None, max_examples=150)
@with_hard_lines
@given(line=LINES)
def test_every_line_goes_into_the_record_and_comes_out_again(empty_database: Path, line: bytes) -> None:
    with taken_in(empty_database, line, b"\n") as conn:
        assert store.offsets(conn, 1).events == len(line) + 1
        reports.events(conn, 1), reports.options(conn, 1), reports.artifacts(conn, 1)
        for one in series.of_run(conn, 1):
            one.name.encode()
            assert len(series.points(conn, 1, one.name)) == one.n


def test_line_that_is_no_event_becomes_a_log_line() -> None:
    for line in (
        *(
            b"epoch 3: loss 0.25",
            b'{"no": "event"}',
            b"[1, 2]",
            b"7",
            b'{"event": "unknown"}',
            b'{"event": ["x"]}',
        ),
        b'{"event": "metric", "name": "loss", "value": 1, "step": "3"}',
        b'{"event": "metric", "name": 3, "value": 1, "step": 1}',
        b'{"event": "metric", "name": "loss", "value": true, "step": 1}',
        b'{"event": "metric", "name": "loss", "value": "0.5", "step": 1}',
        b'{"event": "failed"}',
        b'{"event": "note", "text": "x", "at": "yesterday"}',
        b'{"event": "log", "text": "a worker does not say this"}',
    ):
        assert events.read(line + b"\r\n", NOW) == events.Event(events.LOG, NOW, {"text": line.decode()})


def test_a_memory_event_is_kept_without_what_is_no_number(empty_database: Path) -> None:
    line = b'{"event": "memory", "mib": {"weights": 1%s, "other": 12.5, "text": "x", "nan": NaN}}\n'
    with taken_in(empty_database, line % (b"0" * 400)) as conn:
        kept = {one.name: one.last_value for one in series.of_run(conn, 1)}
        assert kept["other_mib"] == 12.5 and "weights_mib" not in kept


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"null"])
def test_value_that_is_no_number_is_a_gap_in_its_curve(empty_database: Path, word: bytes) -> None:
    line = b'{"event": "metric", "name": "loss", "value": %s, "step": 3, "at": 5}\n' % word
    with taken_in(empty_database, line) as conn:
        assert series.points(conn, 1, "loss") == [series.Point("loss", 3.0, None, 5.0)]


# --- taking in ------------------------------------------------------------------------------------

EVENTS_FILE = b"".join(
    events.write(events.METRIC, 1.0, name="loss", value=i / 8, step=i) if i % 3 else b"no event %d \xff\n" % i
    for i in range(12)
)
LOG_FILE = (
    b"".join(b"step %d loss=0.%d\r" % (i, i) if i % 4 else b"other\n" for i in range(1, 12))
    + b"step 12 loss=0.9"
)


def rows_of(conn: sqlite3.Connection) -> object:
    points = {
        one.name: [(p.step, p.value) for p in series.points(conn, 1, one.name)]
        for one in series.of_run(conn, 1)
    }
    return points, [(e.kind, e.body) for e in reports.events(conn, 1)]


@settings(deadline=None, max_examples=60)
@given(
    cuts=st.lists(
        st.tuples(st.integers(0, len(EVENTS_FILE)), st.integers(0, len(LOG_FILE)), st.booleans()), max_size=6
    )
)
def test_files_that_grow_are_taken_in_exactly_once_whoever_dies_between(
    empty_database: Path, cuts: list[tuple[int, int, bool]]
) -> None:
    regex = r"step (?P<step>\d+) loss=(?P<loss_in_log>\S+)"
    with a_run(empty_database) as (conn, folder):
        folder.events.write_bytes(EVENTS_FILE)
        folder.log.write_bytes(LOG_FILE)
        intake_of(conn, folder, regex).take_all(1)
        at_once = rows_of(conn)
    with a_run(empty_database) as (conn, folder):
        taking = intake_of(conn, folder, regex)
        upto_events = upto_log = 0
        for events_at, log_at, successor in cuts:
            upto_events, upto_log = max(upto_events, events_at), max(upto_log, log_at)
            folder.events.write_bytes(EVENTS_FILE[:upto_events])
            folder.log.write_bytes(LOG_FILE[:upto_log])
            if successor:  # a supervisor was killed: the next one knows only what was committed
                taking = intake_of(conn, folder, regex)
            taking.take(1)
        folder.events.write_bytes(EVENTS_FILE)
        folder.log.write_bytes(LOG_FILE)
        taking.take_all(1)
        assert rows_of(conn) == at_once


@pytest.mark.parametrize(
    ("name", "line"),
    [("log", b"loss=0.%d\n"), ("events", b'{"event": "metric", "name": "loss", "value": 0.%d}\n')],
)
def test_metrics_without_a_step_go_on_counting_whoever_dies_between(
    empty_database: Path, name: str, line: bytes
) -> None:
    with a_run(empty_database) as (conn, folder):
        for i in range(6):
            with getattr(folder, name).open("ab") as file:
                file.write(line % i)
            intake_of(conn, folder, r"loss=(?P<loss>\S+)").take(1, final=False)
        found = [(p.step, p.value) for p in series.points(conn, 1, "loss")]
        assert found == [(1, 0.0), (2, 0.1), (3, 0.2), (4, 0.3), (5, 0.4), (6, 0.5)]


def test_test_triples_become_rows_once_and_wrong_ones_stay_events(
    empty_database: Path,
) -> None:
    found = [[1, "a", "r", "b", 0.5], [-1, "c", "r", "d", -0.25]]
    good = {
        "test": 3,
        "triple": ["h", "r", "t"],
        "candidates": 9,
        "influences": found,
        "names": {"a": "aspirin"},
    }
    wrong: list[tuple[str, dict[str, Any]]] = [
        (events.ATTRIBUTION, good | {"triple": ["h", 1, "t"]}),
        (events.ATTRIBUTION, good | {"influences": [[0, "a", "r", "b", 0.5]]}),
        (events.ATTRIBUTION, good | {"influences": [[1e300, "a", "r", "b", 0.5]]}),
        (events.ATTRIBUTION, good | {"test": -1}),
    ]
    told = [(events.ATTRIBUTION, good), *wrong]
    with taken_in(empty_database, *(events.write(kind, NOW, **fields) for kind, fields in told)) as conn:
        assert influences.tests_of(conn, 1) == [influences.TestTriple(3, "h", "r", "t", 9)]
        assert [(i.rank, i.head, i.score) for i in influences.of_test(conn, 1, 3)] == [
            (1, "a", 0.5),
            (-1, "c", -0.25),
        ]
        assert influences.names(conn, 1) == {"a": "aspirin"}
        assert [event.kind for event in reports.events(conn, 1)] == [kind for kind, _ in wrong]


def test_artifact_outside_the_run_is_an_event_but_no_artifact(empty_database: Path) -> None:
    paths = ("results/a", "/etc/passwd", "../x", "results/../../x")
    with taken_in(empty_database, *(events.write(events.ARTIFACT, 1.0, path=path) for path in paths)) as conn:
        assert [artifact.path for artifact in reports.artifacts(conn, 1)] == ["results/a"]
        assert len(reports.events(conn, 1)) == 4


def test_line_longer_than_a_chunk_is_left_out_and_said_to_be(empty_database: Path) -> None:
    good = events.write(events.METRIC, 1.0, name="loss", value=1, step=1)
    with taken_in(empty_database, good, b"y" * 3_000_000 + b"\n", good) as conn:
        assert len(series.points(conn, 1, "loss")) == 2
        assert {e.body["text"] for e in reports.events(conn, 1)} == {
            "(part of a line longer than 1 MiB left out)"
        }


# --- patterns -------------------------------------------------------------------------------------


def test_patterns_take_names_positions_or_the_whole_match() -> None:
    assert LogPatterns(r"(?P<total>\d+)/(?P<done>\d+)", None).progress("7/3") == LogPatterns(
        r"(\d+) (\d+)", None
    ).progress("3 7")
    assert LogPatterns(None, r"loss (\S+)").metrics("loss 0.5") == [("metric", 0.5, None)]
    assert LogPatterns(None, r"\d+\.\d+").metrics("a 0.5 b 1.5") == [
        ("metric", 0.5, None),
        ("metric", 1.5, None),
    ]
    assert LogPatterns(None, r"(?P<name>\w+)=(?P<value>\S+)").metrics("a=1 b=nan c=x d=-inf") == [
        ("a", 1.0, None),
        ("b", None, None),  # a loss that diverged is a point of its curve
        ("d", None, None),
    ]
    assert LogPatterns(None, r"(?P<loss>\S+) (?P<step>\S+)").metrics("0.5 7") == [("loss", 0.5, 7.0)]
