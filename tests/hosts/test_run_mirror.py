"""A run's page as its host's feed tells it: what is sent is what is taken, only changes go again, lies are refused."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driving import Console

from kgops.hosts.mirror import Unusable
from kgops.hosts.protocol import PROTOCOL, as_line
from kgops.hosts.run_mirror import LogCopy, RunMirror
from kgops.hosts.run_picture import MOST_BUCKETS, MOST_CURVES, RunPictureReader, thinned
from kgops.present import report_page
from kgops.present.run_detail import read_run_detail
from kgops.settings import Home
from screens import run_page
from storage.database import open_reader, open_writer, transaction
from storage.series import Bucket, Point, append

HELLO = as_line({"type": "hello", "protocol": PROTOCOL, "kgops": "1.0.0"})
LOSSES = "for i in range(1, 400): print(f'loss {4 / i} step {i}')"
REGEX = r"loss (?P<loss>[0-9.]+) step (?P<step>[0-9]+)"


def a_run(run_cli: Console) -> Home:
    words = ("--label", "mine", "--tag", "paper", "--metric-regex", REGEX)
    assert run_cli("run", "exec", *words, "--", sys.executable, "-c", LOSSES).code == 0
    assert run_cli("note", "1", "two\nlines").code == 0
    return Home(run_cli.home)


def tell(mirror: RunMirror, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        mirror.read(as_line(message))


def test_a_page_arrives_as_it_is_there_and_then_only_what_changed(run_cli: Console, tmp_path: Path) -> None:
    home = a_run(run_cli)
    conn = open_reader(home.database)
    reader, log = RunPictureReader(home, conn, 1), LogCopy(tmp_path / "log")
    mirror = RunMirror(log)
    mirror.read(HELLO)
    tell(mirror, reader.read())
    there = read_run_detail(home, conn, 1)
    assert there is not None and mirror.detail is not None
    assert replace(mirror.detail, curves=()) == replace(there, curves=())
    assert [(one.name, one.n) for one in mirror.detail.curves] == [(one.name, one.n) for one in there.curves]
    assert log.path.read_bytes() == (there.path / "worker.log").read_bytes()
    assert reader.read() == []
    writer = open_writer(home.database)
    with transaction(writer):
        append(writer, 1, [Point("loss", 400.0, 0.125, 1e9)])
    with (there.path / "worker.log").open("ab") as file:
        file.write(b"more\n")
    changed = reader.read()
    assert [message["type"] for message in changed] == ["curves", "log", "shown"]
    ((curve,), log_message, _) = (changed[0]["curves"], changed[1], changed[2])
    assert (curve["name"], len(curve["buckets"]), log_message["base64"]) == ("loss", 1, "bW9yZQo=")
    tell(mirror, changed)
    again = read_run_detail(home, conn, 1)
    assert again is not None and mirror.detail is not None
    losses = [next(one for one in detail.curves if one.name == "loss") for detail in (mirror.detail, again)]
    assert losses[0].last == losses[1].last == 0.125
    ends = [losses[0].buckets[-1], thinned(losses[1].buckets)[-1]]
    assert ends[0].last_step == ends[1].last_step == 400.0
    assert ends[0].mean == pytest.approx(ends[1].mean, rel=1e-5)
    assert log.path.read_bytes().endswith(b"\nmore\n")


def test_curves_are_thinned_without_a_jump_and_keep_extremes() -> None:
    buckets = [Bucket(1, float(i % 7), float(i % 7), float(i % 7), float(i), float(i)) for i in range(1000)]
    few, more = thinned(buckets), thinned(buckets[:999])
    assert 128 <= len(few) <= MOST_BUCKETS
    assert few[:-1] == more[: len(few) - 1]
    assert (few[0].first_step, few[-1].last_step) == (0.0, 999.0)
    assert (min(b.min or 0 for b in few), max(b.max or 0 for b in few)) == (0.0, 6.0)
    assert thinned([Bucket(0, None, None, None, 1.0, 1.0)] * 600)[0].mean is None


def test_texts_of_a_run_come_through_cleaned_and_curves_bounded(run_cli: Console) -> None:
    home = a_run(run_cli)
    reader, mirror = RunPictureReader(home, open_reader(home.database), 1), RunMirror()
    mirror.read(HELLO)
    messages = reader.read()
    evil = json.loads(json.dumps(messages).replace('"mine"', '"\\u001b[2Jm\\u202eine"'))
    tell(mirror, evil)
    assert mirror.detail is not None
    assert mirror.detail.run.label == "�[2Jm�ine"
    assert "\x1b" not in repr(mirror.detail.job)
    point = [[1, 1.0, 1.0, 1.0, 1.0, 1.0]]
    curve = {"n": 1, "last": 1.0, "from": 0, "buckets": point}
    many = [{**curve, "name": f"curve {i}"} for i in range(MOST_CURVES + 1)]
    with pytest.raises(Unusable):
        tell(mirror, [{"type": "curves", "curves": many}])
    with pytest.raises(Unusable):
        tell(
            mirror,
            [{"type": "curves", "curves": [{**curve, "name": "a", "buckets": point * (MOST_BUCKETS + 1)}]}],
        )


def test_whatever_a_host_says_of_a_run_is_taken_whole_or_refused(run_cli: Console, tmp_path: Path) -> None:
    """Parts of a true page replaced at random by values of another type."""
    home = a_run(run_cli)
    true = RunPictureReader(home, open_reader(home.database), 1).read()
    rng = random.Random(24)
    refused = 0
    for turn in range(600):
        messages = json.loads(json.dumps(true))
        damage(messages, rng)
        mirror = RunMirror(LogCopy(tmp_path / f"log{turn}"))
        mirror.read(HELLO)
        try:
            tell(mirror, messages)
        except Unusable:
            refused += 1
            assert mirror.detail is None
            continue
        if mirror.detail is None:
            continue  # what is shown is complete, and the word that it is was damaged
        for show in (
            lambda one: run_page.rows(one, 100, 40, rng.choice(run_page.TABS)),
            lambda one: report_page.page(replace(one, path=Path("/nowhere")), (), name="lab1:1"),
        ):
            try:
                show(mirror.detail)
            except (KeyError, TypeError, ValueError, AttributeError):
                pass  # a table of no known form, for which screen and report have a sentence
    assert 60 < refused < 600


def damage(value: Any, rng: random.Random) -> None:
    """Changes one place somewhere below."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.85:
        damage(value[key], rng)
        return
    value[key] = rng.choice(("\x1b", -1, 1e300, 1 << 70, None, True, [], {}, [[]], {"a": [1]}, "Infinity"))


def test_a_copied_log_grows_at_both_ends_and_starts_afresh_at_a_gap(tmp_path: Path) -> None:
    log = LogCopy(tmp_path / "log")
    log.add(100, b"first\n")
    log.add(100, b"first\nsecond\n")  # told again after the connection broke
    log.add(113, b"third\n")
    assert (log.begins, log.ends) == (100, 119)
    assert log.path.read_bytes() == b"first\nsecond\nthird\n"
    assert log.add_before(94, b"zeroth")
    assert log.path.read_bytes() == b"zerothfirst\nsecond\nthird\n"
    assert not log.add_before(0, b"elsewhere")
    log.add(500, b"later\n")
    assert (log.begins, log.path.read_bytes()) == (500, b"later\n")
    log.add(500, b"other\n")
    assert log.path.read_bytes() == b"other\n"
