"""Two to eight runs side by side: what differs, what came of it, and whose curve is whose without colours."""

import json
import math
import random
import time
from pathlib import Path

import pytest
import records
from driving import Console
from screen_driving import Seen, open_screens
from test_screens_curve import dots

from kgops.present.formats import width_of
from screens.compare import Compare
from screens.widgets.overlay import HUES, Layer, cells, overlay
from storage import reports, runs, series
from storage.database import Connection, transaction


def add(conn: Connection, number: int, *, host: str = "here", state: str = "succeeded") -> None:
    """A training with curves, as a worker reports one."""
    at = time.time() - 10_000 + number * 1000
    job = {"train": {"batch_size": 64 * number, "num_epochs": 100}, "label": f"other {number}"}
    with transaction(conn):
        records.add(
            conn,
            number,
            workload="train",
            label=f"run {number} [bold]\x1b[31m\u202e日本",
            profile="t4",
            submitted_at=at,
            predicted_mib=100.0,
            job=job,
            env={"python": "3.11.7", "machine": {"host": host}},
        )
        conn.execute(
            "UPDATE run SET started_at = ?, peak_host_mib = ? WHERE id = ?", (at, 100.0 * number, number)
        )
        epochs = range(1, 101)
        losses = [
            series.Point("loss", e, 2 * math.exp(-e / 8 / number) + number / 10, at + e) for e in epochs
        ]
        seconds = [series.Point("epoch_seconds", e, number + e % 10 / 10, at + e) for e in epochs]
        series.append(conn, number, [*losses, *seconds])
        reports.record_result(conn, number, [], {"test_mrr": number / 10})
        runs.end(conn, number, state=state, reason=None, exit_code=0, ended_at=at + 100 * number)


async def compared(seen: Seen, count: int) -> None:
    await seen.until_shows("RECENT")
    await seen.press("h", shows="RUN")
    await seen.until(lambda: seen.lines()[4].strip(), "the runs")
    await seen.press(*["space"] * count, "equals_sign")
    await seen.until(lambda: isinstance(seen.app.screen, Compare), "the comparison")
    await seen.until_shows("SETTINGS")


async def test_two_real_trainings_show_what_was_set_and_what_came_of_it(two_trainings: Console) -> None:
    found = two_trainings("compare", "2", "1", "--json").json()
    async with open_screens(two_trainings.home, (120, 130)) as seen:
        await compared(seen, 2)
        assert [line.split() for line in seen.lines() if "batch_size" in line] == [
            ["batch_size", "64", "128"],  # as it took effect, which is as it was set
        ]
        assert "num_epochs" not in seen.text
        mrr = seen.row_of("test_mrr").split()
        first, second = found["metrics"]["test_mrr"]["values"]
        assert float(mrr[1]) == pytest.approx(first, rel=1e-3)
        assert mrr[3] == f"{second / first:.2f}×"
        assert "environment: equal in all runs" in seen.text
        await seen.until_shows("CURVES")
        lines = seen.lines()
        charts = lines[lines.index("CURVES") :]
        assert charts[1].startswith(" 1 loss")
        assert not any("weights_mib" in line for line in charts)  # it never moves
        assert lines[lines.index("RUNS") + 1].startswith("A  2 train")


@pytest.mark.parametrize(("count", "width"), [(2, 80), (2, 120), (5, 120), (8, 80), (8, 200)])
async def test_every_run_has_its_column_at_any_width(
    home: Path, conn: Connection, count: int, width: int
) -> None:
    for number in range(1, count + 1):
        add(conn, number)
    async with open_screens(home, (width, 70)) as seen:
        await compared(seen, count)
        assert not {"\x1b", "\u202e"} & set(seen.text)
        assert max(width_of(line) for line in seen.lines()) <= width
        expected = [str(64 * number) for number in range(count, 0, -1)]
        assert seen.row_of("batch_size").split()[1:] == expected
        peaks = seen.row_of("peak_host_mib").split()[1:]
        values = [word for word in peaks if "×" not in word]
        assert values == [f"{100 * number:,}" for number in range(count, 0, -1)]
        ratios = [word for word in peaks if "×" in word]
        if not ratios:  # no room beside: in the line below
            lines = seen.lines()
            ratios = lines[lines.index(seen.row_of("peak_host_mib")) + 1].split()
        assert ratios == [f"{number / count:.2f}×" for number in range(count - 1, 0, -1)]


@pytest.mark.parametrize("width", [80, 120])
async def test_quality_by_relation_is_beside_each_other_and_on_the_runs_screen(
    home: Path, conn: Connection, width: int
) -> None:
    for number in (1, 2):
        add(conn, number)
        results = home / "runs" / f"{number:04d}-exec" / "results"
        results.mkdir(parents=True)
        group = {"name": "treats [bold]", "count": 12, "mrr": number / 4, "mrr_interval": [0.1, 0.9]}
        other = {"name": "head", "count": 2000 * number, "mrr": None}
        table = {"groups": {"relation": [group], "direction": [other]}}
        (results / "test_results.json").write_text(json.dumps(table))
    async with open_screens(home, (width, 90)) as seen:
        await compared(seen, 2)
        row = seen.row_of("relation treats").split()
        assert [word for word in row if word.startswith("0.")] == [
            "0.500",
            "0.100–0.900",
            "0.250",
            "0.100–0.900",
        ]
        assert seen.row_of("direction head").split()[2:] == ["n/a", "n/a"]
        await seen.press("enter", shows="QUALITY")
        assert "treats [bold]" in seen.text and "4,000" in seen.row_of("direction")
        assert max(width_of(line) for line in seen.lines()) <= width


async def test_what_the_metrics_do_not_say_is_said(home: Path, conn: Connection) -> None:
    add(conn, 1, host="here")
    add(conn, 2, host="there", state="failed")
    async with open_screens(home, (120, 70)) as seen:
        await compared(seen, 2)
        await seen.until_shows("times have no ratios", "Not all runs succeeded", "ENVIRONMENT")
        assert seen.row_of("host").split() == ["host", "there", "here"]


async def test_the_cursor_chooses_a_run_and_then_scrolls_what_is_below(home: Path, conn: Connection) -> None:
    for number in range(1, 4):
        add(conn, number)
    async with open_screens(home, (80, 24)) as seen:
        await compared(seen, 3)
        assert seen.cursor_is_on(3)
        await seen.press("down", "down")
        assert seen.cursor_is_on(1)
        assert "SETTINGS" in seen.text
        await seen.press("down", "down", gone="SETTINGS")
        assert seen.cursor_is_on(1)
        await seen.press("up", "up", shows="SETTINGS")
        await seen.press("up")
        assert seen.cursor_is_on(2)
        await seen.press("G", shows="environment: equal")
        await seen.press("g", shows="SETTINGS")
        assert seen.cursor_is_on(3)
        await seen.press("down", "enter", shows=("2 train", "predicted"))
        await seen.press("escape", "escape", shows="3 marked")


async def test_a_run_that_goes_on_is_followed(run_cli: Console) -> None:
    loss = '{{"event":"metric","name":"loss","value":\'$((1000 - i))\',"step":\'$i\'}}'
    script = f"i=0; while {{}}; do i=$((i+1)); echo '{loss}' >> $KGOPS_EVENTS; sleep 0.1; done"
    assert run_cli("run", "exec", "--", "sh", "-c", script.format("[ $i -lt 20 ]")).code == 0
    run_cli.going("sh", "-c", script.format("[ ! -e gate ]"), flags=("--label", "goes on"))
    async with open_screens(run_cli.home) as seen:
        await compared(seen, 2)
        await seen.until_shows("running")
        (run_cli.cwd / "gate").touch()
        await seen.until_gone("running")
        await seen.until_shows("CURVES", "loss")
        assert seen.row_of("A  2 exec").count("succeeded") == 1


async def test_one_run_or_nine_are_no_comparison(home: Path, conn: Connection) -> None:
    for number in range(1, 10):
        add(conn, number)
    async with open_screens(home, (80, 40), shows="RECENT") as seen:
        await seen.press("h", shows="9 runs")
        await seen.press("equals_sign", shows="mark 2 to 8 runs")
        await seen.press("asterisk", "equals_sign")
        await seen.wait(0.1)
        assert not isinstance(seen.app.screen, Compare)
        await seen.press("G", "space", "equals_sign", shows="H  2 train")


# --- curves over each other ---


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("width", [12, 40, 70])
def test_each_curve_carries_its_letter_and_no_point_is_lost_but_under_a_letter(
    count: int, width: int
) -> None:
    rng = random.Random(count * 100 + width)
    curves = [[rng.random() * 3 + i for _ in range(2 * width)] for i in range(count)]
    low, high = min(map(min, curves)), max(map(max, curves))
    lines = overlay(curves, "ABCDEFGH", width, 7, low, high)
    texts = ["".join(piece.text for piece in line) for line in lines]
    assert {len(text) for text in texts} == {width}
    letters = {char for text in texts for char in text if char.isalpha()}
    assert letters == set("ABCDEFGH"[:count])
    drawn = dots(["".join(" " if char.isalpha() else char for char in text) for text in texts])
    covered = {
        (x, y) for y, text in enumerate(reversed(texts)) for x, char in enumerate(text) if char.isalpha()
    }
    for curve in curves:
        for x, value in enumerate(curve):
            level = min(int((value - low) / (high - low) * 28), 27)
            assert (x, level) in drawn or (x // 2, level // 4) in covered
    hues = {(char, piece.tone) for line in lines for piece in line for char in piece.text if char.isalpha()}
    assert hues == set(zip("ABCDEFGH"[:count], HUES, strict=False))


def test_equal_curves_share_their_hues_and_a_chosen_one_covers_all() -> None:
    band, *runs = (
        Layer([1.0] * 40, "dim"),
        *(Layer([1.0] * 40, hue, sign, hue) for hue, sign in zip(HUES, "AB", strict=False)),
    )
    for top, expected in ((None, set(HUES[:2])), (1, {HUES[0]}), (2, {HUES[1]})):
        drawn = [cell for line in cells([band, *runs], 20, 1, 0.0, 2.0, top=top) for cell in line]
        assert {tone for char, tone in drawn if char not in "AB "} == expected
