"""The filter language: what a person types finds exactly the runs that reading all of them would find."""

import random
import sqlite3

import pytest
from driving import Console
from hypothesis import given
from hypothesis import strategies as st
from known_runs import (
    NOW,
    History,
    a_term,
    compared,
    found,
    small,
)

from storage import conditions, filters, run_list, search


def test_every_filter_finds_what_reading_all_runs_finds(history: History) -> None:
    conn, known = history
    chance = random.Random(11)
    some = 0
    for _ in range(1500):
        chosen = [a_term(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
        text = chance.choice([" ", "  "]).join(term for term, _ in chosen)
        expected = [k.run["id"] for k in known if all(means(k) for _, means in chosen)]
        assert found(conn, text) == expected, text
        some += 0 < len(expected) < len(known)
    assert some > 700  # filters that find all or nothing prove little


def test_frequent_words_are_found_by_reading_all_and_rare_ones_by_the_index(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, known = history
    for limit in (5000, 1):  # with the second, whatever more than one run has is frequent
        monkeypatch.setattr(search, "_FREQUENT", limit)
        for word in ("train", "umls", "two words", "TREATS", "50%"):
            assert found(conn, f'"{word}"') == [k.run["id"] for k in known if word.lower() in k.text.lower()]


def test_half_typed_filters_never_raise_and_are_pending_not_wrong(history: History) -> None:
    conn, known = history
    whole = 'workload:train gpu:t4 mrr>0.3 tag:paper since:7d state:failed label:"two words" -tag:old peak_gpu>1g words'
    for end in range(len(whole) + 1):
        reading = filters.read(whole[:end], now=NOW, typing=True)
        assert not reading.troubles, whole[:end]
        conditions.compiled(conn, reading.terms)
    assert filters.read("tag:paper mrr>", typing=True).pending == "mrr>"
    assert filters.read("since:7", typing=True).pending == "since:7"
    assert filters.read("time>2m peak_gpu>10g", typing=True).pending is None
    tagged = [k.run["id"] for k in known if any(tag.startswith("pap") for tag in k.tags)]
    assert found(conn, "tag:pap", typing=True) == tagged
    assert found(conn, "tag:pap ", typing=True) == []  # finished by the blank: no run has that tag
    assert found(conn, "state:fa", typing=True) == [k.run["id"] for k in known if k.run["state"] == "failed"]


@given(st.text(max_size=30) | st.text(alphabet='abmr:><=!-"., 0179e*%_@state', max_size=30))
def test_any_text_at_all_is_read_and_looked_up(history: History, text: str) -> None:
    for typing in (False, True):
        reading = filters.read(text, now=NOW, typing=typing)
        for trouble in reading.troubles:
            assert text[trouble.at : trouble.at + trouble.length].strip()
            assert trouble.message and trouble.hint
    run_list.page(history[0], run_list.Filter(conditions=conditions.compiled(history[0], reading.terms)))


@pytest.mark.parametrize(
    ("text", "at", "message", "hint"),
    [
        (
            "tag:x wrkload:train",
            6,
            "there is no key 'wrkload'",
            "did you mean 'workload'? keys: workload, state",
        ),
        ("mrr>", 0, "'mrr>' has no value", "mrr>0.3"),
        ("mrr>high", 0, "mrr needs a number, not 'high'", "mrr>0.3"),
        ("peak_gpu>10zb", 0, "peak_gpu needs a number", "gib"),
        ("a state:faild", 2, "there is no state 'faild'", "did you mean 'failed'?"),
        ("since:soon", 0, "'soon' is not a date or time span", "since:7d"),
        ('label:"two', 0, "the quote in", 'put a "'),
        ("state>failed", 0, "state cannot be compared with >", "state:failed"),
        ("http://x", 0, "there is no key 'http'", '"http://x"'),
        ("-", 0, "'-' has no value", "tag:paper"),
    ],
)
def test_trouble_names_its_place_and_what_would_do(text: str, at: int, message: str, hint: str) -> None:
    (trouble,) = filters.read(text, now=NOW).troubles
    assert trouble.at == at
    assert message in trouble.message
    assert hint in trouble.hint


# --- the command ------------------------------------------------------------------------------------


def test_listing_command_takes_a_filter_and_says_where_it_is_wrong(
    run_cli: Console, conn: sqlite3.Connection
) -> None:
    known = small(conn, 30)
    expected = [k.run["id"] for k in known if compared(k.metric("mrr"), ">", 0.2) and "old" not in k.tags]

    def ids(*args: str) -> list[int]:
        return [run["id"] for run in run_cli("runs", "--json", *args).json()]

    assert expected
    assert ids("mrr>0.2 -tag:old") == ids("mrr>0.2", "--", "-tag:old") == expected[::-1]
    # Not a state that a run whose supervisor nobody finds is given, once somebody looks.
    assert ids("mrr>0.2 -tag:old", "--state", "succeeded") == [
        n for n in expected[::-1] if known[n - 1].run["state"] == "succeeded"
    ]
    tested = ids("state:ended test_mrr>=0")
    by_metric = sorted(expected, key=lambda n: (n in tested, known[n - 1].metric("mrr"), n), reverse=True)
    assert ids("mrr>0.2 -tag:old", "--sort", "mrr") == by_metric
    exported = run_cli("runs", "mrr>0.2 -tag:old", "--csv", "--all", "--metric", "mrr").out.splitlines()
    assert [int(line.split(",")[0]) for line in exported[1:]] == expected[::-1]
    head, *rows = run_cli("runs", "mrr>0.2", "--sort", "mrr", "--all").out.splitlines()
    assert "MRR" in head.upper() and any("valid" in row for row in rows)
    for row in rows:
        one = known[int(row.split()[0]) - 1]
        is_valid = one.metric("test_mrr") is None and one.metric("valid_mrr") == one.metric("mrr")
        assert ("valid " in row) == is_valid, row
    wrong = run_cli("runs", "tag:x", "stat:failed")
    assert (wrong.code, wrong.out) == (2, "")
    assert "character 7: there is no key 'stat'" in wrong.err
    assert "did you mean 'state'?" in wrong.err
    assert "did you mean 'mrr'?" in run_cli("runs", "mmr>0.2").err
    assert "no run has a metric 'mmr'; did you mean 'mrr'?" in run_cli("runs", "--metric", "mmr").err
    assert "cannot sort by 'mmr'" in run_cli("runs", "--sort", "mmr").err
    assert "Example:  kgops runs '" in run_cli("runs", "--help").out


def test_peaks_of_gpu_and_host_memory_are_never_in_one_order(
    run_cli: Console, conn: sqlite3.Connection
) -> None:
    known = small(conn, 30)
    for key in ("peak_gpu", "peak_host"):
        having = [k.run for k in known if k.run[f"{key}_mib"] is not None]
        listed = run_cli("runs", "--json", "--sort", key).json()[: len(having)]
        values = [run[f"{key}_mib"] for run in listed]
        assert values == sorted((run[f"{key}_mib"] for run in having), reverse=True)
        found = run_cli("runs", "--json", f"{key}>600MiB").json()
        assert {run["id"] for run in found} == {run["id"] for run in having if run[f"{key}_mib"] > 600}
