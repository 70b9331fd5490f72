"""What another host says is text that nobody vouches for: its rows are its own, bounded, and harmless."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgops.hosts.mirror import Mirror, Unusable
from kgops.hosts.protocol import TABLES, Picture, as_line, difference, sendable

HELLO = as_line({"type": "hello", "protocol": 1, "kgops": "1.0.0"})
ROWS = st.dictionaries(
    st.sampled_from(["0", "1", "2:0"]),
    st.fixed_dictionaries(
        {}, optional={"name": st.text(max_size=5), "memory_used_mib": st.none() | st.floats(0, 1e6)}
    ),
)


def mirror_of(*messages: dict[str, Any]) -> Mirror:
    mirror = Mirror()
    for line in (HELLO, *map(as_line, messages)):
        mirror.read(line)
    return mirror


@given(ROWS, ROWS)
def test_picture_and_change_make_the_state_that_was_sent(before: Any, after: Any) -> None:
    first: Picture = {name: {} for name in TABLES} | {"gpu": {k: sendable(row) for k, row in before.items()}}
    second: Picture = {name: {} for name in TABLES} | {"gpu": {k: sendable(row) for k, row in after.items()}}
    # A row's fields are always the same ones in a feed: none goes.
    for key, row in second["gpu"].items():
        second["gpu"][key] = {**first["gpu"].get(key, {}), **row}
    change = difference(first, second)
    mirror = mirror_of({"type": "picture", **first}, *([change] if change else []))
    whole = mirror_of({"type": "picture", **second})
    assert mirror.tables == whole.tables
    assert (change is None) == (first == second)


def test_a_host_cannot_speak_for_another() -> None:
    claim = {"host": "lab2", "name": "Tesla T4", "id": 5}
    mirror = mirror_of({"type": "picture", "gpu": {"0": claim}, "run": {"7": {**claim, "label": "mine"}}})
    assert mirror.tables["gpu"]["0"] == {"name": "Tesla T4"}
    assert mirror.tables["run"] == {"7": {"label": "mine"}}


def test_control_characters_never_come_through() -> None:
    bad = "\x1b[2J\u202e\x07\r\nevil\x9b1m\udcff"
    rows = {"run": {"7": {"label": bad, "reason": bad}}, "alert": {"a": {"kind": bad, "text": bad}}}
    mirror = mirror_of({"type": "picture", **rows, "gpu": {bad: {"name": bad}, "0": {"name": bad}}})
    assert list(mirror.tables["gpu"]) == ["0"]
    shown = [str(v) for rows in mirror.tables.values() for row in rows.values() for v in row.values()]
    assert len(shown) == 5
    assert all(text.isprintable() and "\u202e" not in text for text in shown)


@pytest.mark.parametrize("value", [float(10**30), 10**400, True, "5", [1], {"a": 1}, None])
def test_numbers_that_are_none_are_unknown(value: Any) -> None:
    line = json.dumps({"type": "picture", "gpu": {"0": {"memory_used_mib": value}}}).encode()
    mirror = Mirror()
    for one in (HELLO, line):
        mirror.read(one)
    assert mirror.tables["gpu"] == {"0": {"memory_used_mib": None}}


def test_rows_are_bounded_however_many_come() -> None:
    many = {str(i): {"label": "x"} for i in range(1, 5000)}
    mirror = mirror_of({"type": "picture", "run": many})
    assert len(mirror.tables["run"]) == TABLES["run"].most_rows
    more = {str(i): {"label": "x"} for i in range(5000, 9000)}
    mirror.read(as_line({"type": "change", "set": {"run": more}, "drop": {}}))
    assert len(mirror.tables["run"]) == TABLES["run"].most_rows
    mirror.read(as_line({"type": "picture", "run": {"1": {"label": "y" * 100_000}}}))
    assert len(str(mirror.tables["run"]["1"]["label"])) <= 300


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome to lab1",
        b"[]",
        b"{}",
        b'{"type": "picture"}',
        b'{"type": "hello"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_feed_is_refused(line: bytes) -> None:
    with pytest.raises(Unusable):
        Mirror().read(line)


@pytest.mark.parametrize(
    ("number", "words", "hint"),
    [
        (2, "9.9 there speaks protocol 2, this one 1: this one is older", "here"),
        (0, "9.9 there speaks protocol 0, this one 1: the one there is older", "there"),
    ],
)
def test_feeds_of_another_protocol_are_refused_with_who_is_older(number: int, words: str, hint: str) -> None:
    with pytest.raises(Unusable) as caught:
        Mirror().read(as_line({"type": "hello", "protocol": number, "kgops": "9.9"}))
    assert caught.value.message == f"kgops {words}"
    assert caught.value.hint == f"install the newer kgops {hint}, then `kgops hosts check`"


def test_unknown_fields_tables_and_kinds_are_ignored() -> None:
    picture = {"type": "picture", "gpu": {"0": {"name": "T4", "smell": 3}}, "dream": {"0": {}}}
    mirror = mirror_of(picture, {"type": "song"}, {"type": "change", "set": {"dream": {"1": {}}}, "drop": []})
    assert mirror.tables["gpu"] == {"0": {"name": "T4"}}
    assert set(mirror.tables) == set(TABLES)
    assert not mirror.read(as_line({"type": "alive"}))
