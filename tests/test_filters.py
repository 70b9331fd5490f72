"""The filter language: what a person types finds exactly the runs that reading all of them would find."""

from __future__ import annotations

import math
import operator
import random
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from driving import Console
from hypothesis import given
from hypothesis import strategies as st

from kgops.runs import export
from kgops.runs.listing import Listing, Sort, delete_marked, strictly
from kgops.settings import Home
from storage import conditions, filters, reports, runs, scores, search, series
from storage.database import open_reader, open_writer, transaction

NOW = datetime(2026, 6, 15, 12).timestamp()
CARDS = {"GPU-aaaa1": "Tesla T4", "GPU-bbbb2": "NVIDIA A100-SXM4-80GB", "GPU-cccc3": "NVIDIA T400 4GB"}
WORDS = ["umls", "two words", "Drug treats", "a", "50% off", "x_y", 'say "hi"', "naïve 測試", "train"]


class Known(NamedTuple):
    """A run as the reference knows it, without the database."""

    run: dict[str, Any]
    tags: set[str]
    notes: list[str]
    final: dict[str, float]
    curves: dict[str, list[float]]

    @property
    def text(self) -> str:
        profile = self.run["profile"] or ""
        return " ".join([self.run["label"], self.run["workload"], profile, *sorted(self.tags), *self.notes])

    def figure(self, name: str) -> float | None:
        for full in (name, f"test_{name}", f"valid_{name}"):
            if full in self.final and self.run["state"] in runs.ENDED:
                return self.final[full]
            if full in self.curves:
                return self.curves[full][-1]
        return None

    def best(self, name: str) -> float | None:
        for full in (name, f"test_{name}", f"valid_{name}"):
            if full in self.final or full in self.curves:
                values = self.curves.get(full, [])
                return (min if "loss" in name else max)(values, default=None)
        return None


def make(conn: sqlite3.Connection, number: int, chance: random.Random) -> Known:
    state = chance.choice(runs.STATES)
    figures = (
        chance.sample(["mrr", "test_mrr", "hits@10"], chance.randrange(3)) if state in runs.ENDED else []
    )
    final = {name: round(chance.random(), 1) for name in figures}
    curves = {
        name: [round(chance.random(), 1) for _ in range(chance.randrange(1, 80))]
        for name in chance.sample(["loss", "valid_mrr", "test_mrr", "mrr"], chance.randrange(4))
    }
    run: dict[str, Any] = {
        "workload": chance.choice(["train", "tracin", "exec"]),
        "label": f"{chance.choice(WORDS)} {number % 7}",
        "profile": chance.choice([None, "t4", "t4-large"]),
        "submitted_at": NOW - chance.choice([10, 3000, 86400, 8 * 86400]),
        "gpu": chance.choice([None, "auto", "0"]),
        "predicted_mib": chance.choice([None, 900.0, 2048.0]),
        "reserved_mib": None,
    }
    spec = runs.RunSpec({}, {}, {"cards": [{"name": name, "uuid": uuid} for uuid, name in CARDS.items()]})
    runs.add(conn, number=number, state="queued", folder=f"{number:04d}", exclusive=False, spec=spec, **run)
    run |= {
        "card": chance.choice([None, *CARDS, ",".join(CARDS), ",".join([*CARDS][::-1])]),
        "started_at": chance.choice([None, 1000.0]),
        "attempts": chance.randrange(3),
        "peak_card_mib": chance.choice([None, 512.0, 3000.0]),
        "peak_host_mib": chance.choice([None, 700.0, 5000.0]),
        "phase": chance.choice([None, "epoch", "Evaluate"]),
        "metric": chance.choice([None, "loss"]),
    }
    names = ("card", "started_at", "attempts", "peak_card_mib", "peak_host_mib", "phase", "metric")
    changes = ", ".join(f"{name} = :{name}" for name in names)
    conn.execute(
        f"UPDATE run SET {changes}, state = :state WHERE id = :id", {**run, "state": "running", "id": number}
    )
    for name, values in curves.items():
        series.append(conn, number, [series.Point(name, i, v, 1.0) for i, v in enumerate(values)])
    reports.record_result(conn, number, [], final)
    tags = set(chance.sample(["paper", "old", "paper2"], chance.randrange(3)))
    reports.change_tags(conn, number, add=sorted(tags), remove=[])
    notes = chance.choices(["Diverged at step 7", "keep"], k=chance.randrange(2))
    for note in notes:
        reports.add_note(conn, number, 1.0, note)
    run |= {"id": number, "state": state, "reason": None, "ended_at": None, "exit_code": None}
    if state in runs.ENDED:
        run |= {
            "reason": chance.choice([None, "killed by a kernel"]),
            "ended_at": 1000.0 + chance.choice([30, 7200]),
        }
        run["exit_code"] = chance.choice([0, 1, None])
        ending = {name: run[name] for name in ("state", "reason", "exit_code", "ended_at")}
        assert runs.end(conn, number, **ending)
    else:
        runs.set_state(conn, number, state, None)
    return Known(run, tags, notes, final, curves)


History = tuple[sqlite3.Connection, list[Known]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[History]:
    path = tmp_path_factory.mktemp("history") / "kgops.db"
    path.write_bytes(empty_database.read_bytes())
    conn = open_writer(path)
    conn.execute("PRAGMA synchronous = OFF")
    chance = random.Random(5)
    yield conn, [make(conn, number, chance) for number in range(1, 161)]
    conn.close()


# --- the reference: each term as a text beside what it means of one run ------------------------------

Meaning = Callable[[Known], bool]
SIGNS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ":": operator.eq,
}


def lower(text: str | None) -> str:
    return (text or "").lower()


def compared(value: float | None, sign: str, than: float) -> bool:
    if sign == "!=":
        return value is not None and value != than
    return value is not None and SIGNS[sign](value, than)


def on_card(known: Known, name: str) -> bool:
    given = (known.run["card"] or "").split(",")
    words = " ".join(CARDS.get(uuid, "") for uuid in given).lower().replace("-", " ").split()
    return name in words or known.run["gpu"] == name


def peak(known: Known) -> float | None:
    on_a_card: float | None = known.run["peak_card_mib"]
    return known.run["peak_host_mib"] if on_a_card is None else on_a_card


def seconds(known: Known) -> float | None:
    run = known.run
    if run["started_at"] is None:
        return None
    took: float = (run["ended_at"] if run["ended_at"] is not None else math.inf) - run["started_at"]
    return took


def a_term(chance: random.Random) -> tuple[str, Meaning]:
    sign = chance.choice([">", ">=", "<", "<=", "=", "!="])
    x = chance.choice([0.0, 0.3, 0.5, 1.0])
    mib = chance.choice([700, 900, 3000])
    word = chance.choice(
        ["a", "umls", "two words", "WORDS", "treats", "50%", "x_y", "_", "測試", "paper", "測"]
    )
    options: list[tuple[str, Meaning]] = [
        ("workload:train", lambda k: k.run["workload"] == "train"),
        ("workload=tracin,exec", lambda k: k.run["workload"] in ("tracin", "exec")),
        ("workload:t*", lambda k: k.run["workload"].startswith("t")),
        ("workload!=exec", lambda k: k.run["workload"] != "exec"),
        ("state:failed", lambda k: k.run["state"] == "failed"),
        ("state:Failed,oom", lambda k: k.run["state"] in ("failed", "out_of_memory")),
        ("state:ended", lambda k: k.run["state"] in runs.ENDED),
        ("state:s*", lambda k: k.run["state"] in ("succeeded", "starting")),
        ("profile:t4", lambda k: k.run["profile"] == "t4"),
        ("profile:none", lambda k: k.run["profile"] is None),
        ("tag:paper", lambda k: "paper" in k.tags),
        ("tag:paper*", lambda k: any(tag.startswith("paper") for tag in k.tags)),
        ("tag:old,paper2", lambda k: bool({"old", "paper2"} & k.tags)),
        ("tag:none", lambda k: not k.tags),
        ('label:"two words"', lambda k: "two words" in lower(k.run["label"])),
        ("label:drug", lambda k: "drug" in lower(k.run["label"])),
        ("note:diverged", lambda k: any("diverged" in lower(note) for note in k.notes)),
        ("reason:KERNEL", lambda k: "kernel" in lower(k.run["reason"])),
        ("phase:eval", lambda k: "eval" in lower(k.run["phase"])),
        ("gpu:t4", lambda k: on_card(k, "t4")),
        ("gpu:a100", lambda k: on_card(k, "a100")),
        ("gpu:0", lambda k: on_card(k, "0")),
        ("gpu:GPU-cccc", lambda k: "GPU-cccc3" in (k.run["card"] or "")),
        ("gpu:none", lambda k: k.run["gpu"] is None and k.run["card"] is None),
        ("since:1h", lambda k: k.run["submitted_at"] >= NOW - 3600),
        ("until:2026-06-10", lambda k: k.run["submitted_at"] < datetime(2026, 6, 10).timestamp()),
        ("since:today", lambda k: k.run["submitted_at"] >= datetime(2026, 6, 15).timestamp()),
        (f"peak{sign}{mib}", lambda k: compared(peak(k), sign, mib)),
        (f"peak_host{sign}{mib}MiB", lambda k: compared(k.run["peak_host_mib"], sign, mib)),
        (f"predicted{sign}2g", lambda k: compared(k.run["predicted_mib"], sign, 2048)),
        (f"time{sign}1h", lambda k: compared(seconds(k), sign, 3600)),
        (f"attempts{sign}1", lambda k: compared(k.run["attempts"], sign, 1)),
        ("exit:none", lambda k: k.run["exit_code"] is None),
        ("run:20..31", lambda k: 20 <= k.run["id"] <= 31),
        (f"mrr{sign}{x}", lambda k: compared(k.figure("mrr"), sign, x)),
        (f"test_mrr{sign}{x}", lambda k: compared(k.figure("test_mrr"), sign, x)),
        (f"hits@10{sign}{x}", lambda k: compared(k.figure("hits@10"), sign, x)),
        (f"best.loss{sign}{x}", lambda k: compared(k.best("loss"), sign, x)),
        (f"best.valid_mrr{sign}{x}", lambda k: compared(k.best("valid_mrr"), sign, x)),
        ("mrr:0.2..0.6", lambda k: (value := k.figure("mrr")) is not None and 0.2 <= value <= 0.6),
        ("loss=none", lambda k: k.figure("loss") is None),
        (f"final.mrr{sign}{x}", lambda k: compared(k.figure("mrr") if final_mrr(k) else None, sign, x)),
        (f'"{word}"', lambda k: word.lower() in k.text.lower()),
        (word.split()[0], lambda k: word.split()[0].lower() in k.text.lower()),
    ]
    text, means = chance.choice(options)
    if chance.random() < 0.25:
        return f"-{text}", lambda k: not means(k)
    return text, means


def final_mrr(known: Known) -> bool:
    """Whether what `mrr` means is a final figure."""
    for name in ("mrr", "test_mrr", "valid_mrr"):
        if name in known.final:
            return True
        if name in known.curves:
            return False
    return False


def found(conn: sqlite3.Connection, text: str, *, typing: bool = False) -> list[int]:
    reading = filters.read(text, now=NOW, typing=typing)
    assert not reading.troubles, reading.troubles
    wanted = runs.Filter(conditions=conditions.compiled(conn, reading.terms))
    return sorted(run.id for run in runs.page(conn, wanted, limit=1000))


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
    whole = 'workload:train gpu:t4 mrr>0.3 tag:paper since:7d state:failed label:"two words" -tag:old peak>1000 words'
    for end in range(len(whole) + 1):
        reading = filters.read(whole[:end], now=NOW, typing=True)
        assert not reading.troubles, whole[:end]
        conditions.compiled(conn, reading.terms)
    assert filters.read("tag:paper mrr>", typing=True).pending == "mrr>"
    assert filters.read("since:7", typing=True).pending == "since:7"
    assert filters.read("time>2m peak>10g", typing=True).pending is None
    tagged = [k.run["id"] for k in known if any(tag.startswith("pap") for tag in k.tags)]
    assert found(conn, "tag:pap", typing=True) == tagged
    assert found(conn, "tag:pap ", typing=True) == []  # finished by the blank: no run has that tag
    assert found(conn, "state:fa", typing=True) == [k.run["id"] for k in known if k.run["state"] == "failed"]


@given(st.text(max_size=30) | st.text(alphabet='abmr:><=!-"., 0179e*%_@state', max_size=30))
def test_any_text_at_all_is_read(text: str) -> None:
    for typing in (False, True):
        reading = filters.read(text, now=NOW, typing=typing)
        for trouble in reading.troubles:
            assert text[trouble.at : trouble.at + trouble.length].strip()
            assert trouble.message and trouble.hint


def test_any_text_at_all_can_be_looked_up(history: History) -> None:
    conn, _ = history
    chance = random.Random(3)
    for _ in range(400):
        text = "".join(chance.choices("abmr:><=!-\".,0179e*%_@' ;()\x00\x1b測", k=chance.randrange(14)))
        reading = filters.read(text, now=NOW, typing=True)
        runs.page(conn, runs.Filter(conditions=conditions.compiled(conn, reading.terms)))


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
        ("mrr>high", 0, "mrr is compared with a number, not with 'high'", "mrr>0.3"),
        ("peak>10zb", 0, "peak is compared with a number", "gib"),
        ("a state:faild", 2, "there is no state 'faild'", "did you mean 'failed'?"),
        ("since:soon", 0, "'soon' is no moment", "since:7d"),
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


# --- figures ----------------------------------------------------------------------------------------


def test_runs_sort_by_a_figure_with_those_that_lack_it_last(history: History) -> None:
    conn, known = history
    for descending in (True, False):
        have = sorted(
            ((value, k.run["id"]) for k in known if (value := k.figure("mrr")) is not None),
            reverse=descending,
        )
        lack = sorted((k.run["id"] for k in known if k.figure("mrr") is None), reverse=descending)
        expected = [number for _, number in have] + lack
        assert list(runs.ordered(conn, figure="mrr", descending=descending)) == expected
        pages: list[int] = []
        while page := runs.page(
            conn, figure="mrr", descending=descending, limit=7, after=pages[-1] if pages else None
        ):
            pages += [run.id for run in page]
        assert pages == expected


def test_names_of_figures_are_those_some_run_has(history: History) -> None:
    conn, known = history
    names = scores.names(conn)
    assert {"mrr", "test_mrr", "valid_mrr", "loss", "hits@10"} <= set(names)
    for name in names:
        assert any(k.figure(name) is not None for k in known)


def test_figures_of_an_ended_run_go_with_it_and_come_again(conn: sqlite3.Connection) -> None:
    for number in (1, 2):
        runs.add(
            conn,
            number=number,
            workload="train",
            label="x",
            profile=None,
            state="queued",
            folder=str(number),
            submitted_at=1.0,
            gpu=None,
            reserved_mib=None,
            exclusive=False,
            predicted_mib=None,
            spec=runs.RunSpec({}, {}, {}),
        )
        series.append(conn, number, [series.Point("valid_mrr", 1, 0.25 * number, 1.0)])
    assert found(conn, "mrr>0.2") == [1, 2]  # as reported, before any end
    for number in (1, 2):
        runs.end(conn, number, state="failed", reason=None, exit_code=1, ended_at=2.0)
    assert found(conn, "mrr>0.2") == [1, 2]
    assert runs.reopen(conn, 1)
    assert found(conn, "mrr>0.2") == [1, 2]
    series.append(conn, 1, [series.Point("valid_mrr", 2, 0.125, 1.0)])
    assert found(conn, "mrr>0.2") == [2]
    assert runs.delete(conn, 2)
    assert conn.execute("SELECT count(*) FROM score").fetchone() == (0,)
    assert found(conn, "best.mrr>=0.25") == [1]


# --- the window -------------------------------------------------------------------------------------


def test_listing_shows_what_pages_show_at_every_position(history: History) -> None:
    conn, known = history
    listing = Listing(conn)
    chance = random.Random(17)
    for _ in range(300):
        chosen = [a_term(chance) for _ in range(chance.choice([0, 1, 2]))]
        text = " ".join(term for term, _ in chosen)
        by, figure = chance.choice([("id", False), ("peak_host_mib", False), ("label", False), ("mrr", True)])
        sort = Sort(by, figure, chance.random() < 0.5)
        terms = filters.read(text, now=NOW).terms
        listing.show(terms, sort)
        wanted = runs.Filter(conditions=conditions.compiled(conn, terms))
        by_hand = list(
            runs.ordered(
                conn,
                wanted,
                sort="id" if figure else by,
                figure=by if figure else None,
                descending=sort.descending,
            )
        )
        assert sorted(by_hand) == [k.run["id"] for k in known if all(means(k) for _, means in chosen)], text
        assert list(listing.numbers) == by_hand, (text, sort)
        assert (listing.count, listing.total) == (len(by_hand), len(known))
        at = chance.randrange(len(by_hand) + 3)
        rows = listing.block(at, 9)
        assert [run.id for run in rows if run is not None] == by_hand[at : at + 9]
        if by_hand:
            assert by_hand[listing.position(by_hand[-1]) or 0] == by_hand[-1]
    assert listing.position(10**6) is None


def small(conn: sqlite3.Connection, count: int) -> list[Known]:
    chance = random.Random(23)
    with transaction(conn):
        return [make(conn, number, chance) for number in range(1, count + 1)]


def test_listing_stays_until_it_is_refreshed_and_follows_what_others_commit(
    home: Path, conn: sqlite3.Connection
) -> None:
    known = small(conn, 40)
    listing = Listing(open_reader(home / "kgops.db"))
    listing.show(strictly("state:ended"))
    ended = [k.run["id"] for k in known if k.run["state"] in runs.ENDED][::-1]
    assert list(listing.numbers) == ended
    assert not listing.refresh()
    make(conn, 41, random.Random(1))
    listing.show(strictly("attempts>=0"))  # a new run is not there before the next look
    assert list(listing.numbers) == list(range(40, 0, -1))
    listing.show(strictly("attempts<9"), Sort("label"))
    assert set(listing.numbers) == set(range(1, 41))
    listing.show(strictly("state:ended"), Sort())
    assert listing.refresh()
    known.append(make(conn, 42, random.Random(2)))
    conn.execute("DELETE FROM run WHERE id = 41")
    search.forget(conn, 41)
    listing.show(strictly("attempts>-1"))  # as many runs as before, and not the same ones
    assert list(listing.numbers) == list(range(40, 0, -1))
    listing.show(strictly("state:ended"))
    assert listing.refresh()
    ended = [k.run["id"] for k in known if k.run["state"] in runs.ENDED][::-1]
    gone = ended[3]
    assert runs.delete(conn, gone)
    assert listing.block(2, 3) == [runs.get(conn, ended[2]), None, runs.get(conn, ended[4])]
    assert listing.refresh()
    ended.remove(gone)
    assert list(listing.numbers) == ended
    listing.show(strictly("-a"))  # with a gap among the numbers
    assert (
        list(listing.numbers)
        == [k.run["id"] for k in known if "a" not in k.text.lower() and k.run["id"] != gone][::-1]
    )
    listing.show(strictly("-peak>600"))
    expected = [k.run["id"] for k in known if not compared(peak(k), ">", 600) and k.run["id"] != gone]
    assert list(listing.numbers) == expected[::-1]


def test_marked_runs_that_ended_are_deleted_with_their_folders_and_others_say_why_not(
    home: Path, conn: sqlite3.Connection
) -> None:
    known = small(conn, 30)
    for k in known:
        (home / "runs" / f"{k.run['id']:04d}").mkdir()
    marked = [*range(5, 20), 77]
    told = {deleted.run: deleted for deleted in delete_marked(Home(home), conn, marked)}
    assert list(told) == marked
    for number in marked[:-1]:
        ended = known[number - 1].run["state"] in runs.ENDED
        assert (told[number].done, told[number].why is None) == (ended, ended)
        assert (runs.get(conn, number) is None) == ended
        assert (home / "runs" / f"{number:04d}").exists() != ended
    assert told[77].why == "it is gone already"


def test_export_has_every_column_tags_and_figures_and_nothing_a_spreadsheet_runs(
    conn: sqlite3.Connection,
) -> None:
    import csv
    import json

    known = small(conn, 30)
    conn.execute("UPDATE run SET label = '=1+1, \"x\"\n\x1b[2J' WHERE id = 3")
    numbers = [k.run["id"] for k in known][::-1]
    rows = list(csv.DictReader("".join(export.as_csv(conn, numbers, ["mrr", "best.loss"])).splitlines()))
    assert [int(row["id"]) for row in rows] == numbers
    assert rows[-3]["label"].startswith('\'=1+1, "x" ')
    assert "\x1b" not in rows[-3]["label"]
    elements = json.loads("".join(export.as_json(conn, numbers, ["mrr", "best.loss"])))
    for k, row, element in zip(reversed(known), rows, elements, strict=True):
        assert set(row["tags"].split()) == k.tags == set(element["tags"])
        assert row["mrr"] == ("" if k.figure("mrr") is None else str(k.figure("mrr")))
        assert element["figures"] == {"mrr": k.figure("mrr"), "best.loss": k.best("loss")}
        assert element["peak_host_mib"] == k.run["peak_host_mib"]
    assert json.loads("".join(export.as_json(conn, []))) == []


# --- the command ------------------------------------------------------------------------------------


def test_listing_command_takes_a_filter_and_says_where_it_is_wrong(
    run_cli: Console, conn: sqlite3.Connection
) -> None:
    known = small(conn, 30)
    expected = [k.run["id"] for k in known if compared(k.figure("mrr"), ">", 0.2) and "old" not in k.tags]

    def ids(*args: str) -> list[int]:
        return [run["id"] for run in run_cli("runs", "--json", *args).json()]

    assert expected
    assert ids("mrr>0.2 -tag:old") == ids("mrr>0.2", "--", "-tag:old") == expected[::-1]
    # Not a state that a run whose supervisor nobody finds is given, once somebody looks.
    assert ids("mrr>0.2 -tag:old", "--state", "succeeded") == [
        n for n in expected[::-1] if known[n - 1].run["state"] == "succeeded"
    ]
    by_figure = sorted(expected, key=lambda n: (known[n - 1].figure("mrr"), n), reverse=True)
    assert ids("mrr>0.2 -tag:old", "--sort", "mrr") == by_figure
    exported = run_cli("runs", "mrr>0.2 -tag:old", "--csv", "--all", "--figure", "mrr").out.splitlines()
    assert [int(line.split(",")[0]) for line in exported[1:]] == expected[::-1]
    assert "MRR" in run_cli("runs", "mrr>0.2", "--sort", "mrr").out.splitlines()[0].upper()
    wrong = run_cli("runs", "tag:x", "stat:failed")
    assert (wrong.code, wrong.out) == (2, "")
    assert "character 7: there is no key 'stat'" in wrong.err
    assert "did you mean 'state'?" in wrong.err
    assert "did you mean 'mrr'?" in run_cli("runs", "mmr>0.2").err
    assert "cannot sort by 'mmr'" in run_cli("runs", "--sort", "mmr").err
    assert "Example:  kgops runs '" in run_cli("runs", "--help").out
