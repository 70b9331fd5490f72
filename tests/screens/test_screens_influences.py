"""A TracIn run's influences are shown by readable names, and narrowed by keys."""

import time
from pathlib import Path

import pytest
from driving import Console
from records import add
from screen_driving import Seen, open_screens

from kgops.present import influences as finding
from kgops.settings import Home
from storage import influences, runs
from storage.database import Connection
from storage.influences import Influence, TestTriple

ODD = "[bold]x[/] \x1b[31m蛋白质 \u202eسلام"


def traced(conn: Connection) -> None:
    now = time.time()
    job = {"tracin": {"dataset": "nations"}}
    add(conn, 1, workload="tracin", label="nations", folder="0001-tracin-nations", submitted_at=now, job=job)
    found = (
        Influence(1, 1, "burma", "intergovorgs", "indonesia", 0.75),
        Influence(1, 2, "nowhere", "ngo", "usa", 0.25),
        Influence(1, -1, "uk", "embassy", "china", -0.5),
    )
    names = {"burma": "Myanmar", "nowhere": ODD, "intergovorgs": "meets in organisations"}
    influences.add(
        conn,
        1,
        [
            TestTriple(1, "burma", "ngo", "indonesia", 1592, None, found, names),
            TestTriple(2, "atlantis", "ngo", "usa", None, "atlantis is not in the training triples"),
        ],
    )
    runs.end(conn, 1, state="succeeded", reason=None, exit_code=0, ended_at=time.time())


async def opened(seen: Seen) -> None:
    await seen.until_shows("RECENT")
    await seen.press("i", shows=("TEST TRIPLES", "against│for", "+0.75"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_was_found_is_shown_with_readable_labels_and_scores(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    traced(conn)
    async with open_screens(home, size, first=opened) as seen:
        best = next(line for line in seen.lines() if "+0.75" in line)
        assert "Myanmar · meets in organisations · indonesia" in best
        assert "│━━━━━━━ " in best
        assert all(char not in seen.text for char in "\x1b\u202e")
        assert "[bold]x[/]" in seen.text


def test_of_a_model_its_own_newest_influences_are_shown(home: Path, conn: Connection) -> None:
    """Not the newest of another model; of any, not those of a newer run that traced nothing."""
    traced(conn)
    now = time.time()
    for number, of in ((2, 9), (3, 9), (4, 8)):
        known = {"workload": "tracin", "label": f"of {of}", "submitted_at": now}
        add(conn, number, **known, folder=f"000{number}-tracin", job={"tracin": {"run": of}})
    shown = [finding.newest(Home(home), of) for of in (9, 8, 7)]
    assert [one and one.id for one in (*shown, finding.newest(Home(home)))] == [3, 4, None, 1]


async def test_keys_show_one_side_one_relation_what_has_certain_words_or_another_test(
    home: Path, conn: Connection
) -> None:
    traced(conn)
    async with open_screens(home, first=opened) as seen:
        await seen.press("o", gone="-0.5")
        await seen.press("o", shows="1 of 3: opponents")
        await seen.press("o", "v", shows="1 of 3: proponents and opponents, relation embassy")
        await seen.press("v", "v", "v", "slash", shows="esc cancels")
        await seen.press(*"myanmar", "enter", shows="1 of 3: proponents and opponents, with myanmar")
        assert "+0.25" not in seen.text
        await seen.press("down", shows=("NO INFLUENCES", "atlantis is not in the training triples"))


async def test_a_run_is_followed_until_it_ends(run_cli: Console, conn: Connection) -> None:
    script = "while [ ! -e gate ]; do sleep 0.05; done"
    number = run_cli.going("sh", "-c", script)
    async with open_screens(run_cli.home, shows="1 exec") as seen:
        await seen.press("i", shows="no TracIn run yet")
        conn.execute("UPDATE run SET workload = 'tracin' WHERE id = ?", (number,))
        await seen.until_shows("influences of 1 tracin", "running", "no test triple is done yet")
        triple = "burma", "ngo", "indonesia"
        influences.add(conn, number, [TestTriple(1, *triple, 9, None, (Influence(1, 1, *triple, 0.75),))])
        await seen.until_shows("1  burma · ngo · indonesia", "+0.75", "running")
        influences.add(conn, number, [TestTriple(2, *triple, None, "not in the training triples")])
        (run_cli.cwd / "gate").touch()
        await seen.until_shows("2  burma · ngo · indonesia")
        await seen.until_gone("running")
