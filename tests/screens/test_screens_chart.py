"""A zoomed chart shows the values at its cursor, on the axes that a person chose, for one run or several."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
import records
from driving import Console
from screen_driving import Seen, open_screens

from screens.chart import ChartScreen
from screens.compare import Compare
from storage import runs, series
from storage.database import Connection, transaction

SIZES = ((80, 24), (120, 40), (160, 50), (200, 60))
GPU = "GPU-of-this-test"


def add(
    conn: Connection, number: int, *, epochs: int = 50, last: float = 0.01, pause: range = range(0)
) -> None:
    """Ends with `last`, 10 s for each epoch; its memory is predicted and limited. In the seconds of `pause` there was
    no worker."""
    at = time.time() - 10_000
    with transaction(conn):
        records.add(
            conn,
            number,
            workload="train",
            label=f"nations {number} [bold]\x1b[31m",
            submitted_at=at,
            predicted_mib=900.0,
            plan={"forecast": records.FORECAST},
            env={"gpus": [{"uuid": GPU, "mib": 1500}]},
        )
        conn.execute("UPDATE run SET started_at = ?, gpu = ? WHERE id = ?", (at, GPU, number))
        losses = [series.Point("loss", n, last + (1 - n / epochs), at + 10 * n) for n in range(1, epochs + 1)]
        memory = [
            series.Point("gpu_memory_mib", at + n, 400.0 + n, at + n)
            for n in range(0, 10 * epochs, 10)
            if n not in pause
        ]
        if pause:
            for attempt, start, end in ((1, 0, pause.start), (2, pause.stop, 10 * epochs)):
                conn.execute(
                    "INSERT INTO attempt (run, number, settings, started_at, ended_at) VALUES (?, ?, '{}', ?, ?)",
                    (number, attempt, at + start, at + end),
                )
        series.append(conn, number, [*losses, *memory])
        runs.end(conn, number, state="succeeded", reason=None, exit_code=0, ended_at=at + 10 * epochs)


async def zoomed(seen: Seen, chart: str = "enter") -> None:
    await seen.until_shows("RECENT")
    await seen.press("enter", shows="CURVES")
    await seen.press(chart)
    await seen.until(lambda: isinstance(seen.app.screen, ChartScreen), "the chart")
    await seen.until_shows("  last")


def braille(seen: Seen) -> set[tuple[int, int]]:
    """Cells of the screen that a curve is drawn in."""
    return {
        (x, y)
        for y, line in enumerate(seen.lines())
        for x, char in enumerate(line)
        if 0x2800 < ord(char) <= 0x28FF
    }


@pytest.mark.parametrize("size", SIZES)
async def test_enter_zooms_the_marked_chart_to_the_whole_screen(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    add(conn, 1)
    async with open_screens(home, size, first=zoomed) as seen:
        assert seen.lines()[0].startswith("loss of run 1")
        assert "\x1b" not in seen.text
        heights = [y for _, y in braille(seen)]
        assert max(heights) - min(heights) > size[1] // 2
        assert max(map(len, seen.lines())) <= size[0]
        await seen.press("escape", shows=("›1 loss", "2 GPU memory MiB"))


async def test_arrows_mark_another_chart_and_a_number_zooms_one(home: Path, conn: Connection) -> None:
    add(conn, 1)
    async with open_screens(home) as seen:
        await zoomed(seen, "2")
        assert seen.lines()[0].startswith("GPU memory MiB of run 1")
        await seen.press("escape", shows="›2 GPU memory MiB")
        await seen.press("left", shows="›1 loss")
        await seen.press("right", "enter", shows="GPU memory MiB of run 1")
        await seen.press("escape", "9", "8", shows="there is no chart 8")


async def test_the_cursor_shows_the_value_and_its_epoch(home: Path, conn: Connection) -> None:
    add(conn, 1)
    async with open_screens(home, first=zoomed) as seen:
        assert "epoch 50" in seen.lines()[2]
        assert seen.row_of(" A 1 train").split()[-6] == "0.0100"  # here, last, lowest, highest
        await seen.press("left", "left", "left", shows="epoch 47")
        assert " 0.0700 " in seen.row_of(" A 1 train")
        column = max(line.find("│", 11) for line in seen.lines())
        await seen.press("home", shows="epoch 1 ")
        assert " 0.9900 " in seen.row_of(" A 1 train")
        assert max(line.find("│", 11) for line in seen.lines()) < column
        await seen.press("left", "right", "pagedown", shows="epoch 12")


async def test_l_makes_the_y_axis_logarithmic_and_again_linear(home: Path, conn: Connection) -> None:
    add(conn, 1)
    async with open_screens(home, first=zoomed) as seen:
        linear = braille(seen)
        assert "      0.2 ┤" in seen.text
        await seen.press("l", shows=("log y", "      0.1 ┤", "     0.02 ┤"))
        assert braille(seen) != linear
        await seen.press("l", gone="log y ·")
        assert braille(seen) == linear


async def test_a_logarithmic_axis_says_what_it_cannot_draw(home: Path, conn: Connection) -> None:
    add(conn, 1, last=0.0)
    add(conn, 2)
    series.append(conn, 2, [series.Point("gap", n, -float(n), 5.0) for n in range(9)])
    async with open_screens(home, shows="RECENT") as seen:
        seen.app.push_screen(ChartScreen("loss", (1,)))
        await seen.until_shows("  last")
        await seen.press("l", shows="values at or below zero are not drawn")
        seen.app.push_screen(ChartScreen("gap", (2,)))
        await seen.until_shows("gap of run 2", "  last")
        await seen.press("l", shows="no value is above zero")
        await seen.press("x", shows="known over epoch alone")  # all came in at the same moment


async def test_s_smooths_and_leaves_the_curve_itself_faint(home: Path, conn: Connection) -> None:
    add(conn, 1)
    zigzag = [series.Point("jagged", n, n % 2, time.time() + n) for n in range(40)]
    series.append(conn, 1, zigzag)
    async with open_screens(home, shows="RECENT") as seen:
        seen.app.push_screen(ChartScreen("jagged", (1,)))
        await seen.until_shows("  last")
        before = braille(seen)
        await seen.press("s", shows=("smoothed by 0.6, the curve itself faint", "smoothed 0.6"))
        assert braille(seen) >= before
        assert " 0.6250 " in seen.row_of(" A 1 train")  # where it settles: (1 - w) / (1 - w²)
        await seen.press("s", shows="smoothed by 0.9")
        await seen.press("s", gone="smoothed")
        assert braille(seen) == before


async def test_a_curve_is_broken_where_no_worker_ran(home: Path, conn: Connection) -> None:
    add(conn, 1, pause=range(100, 400))
    async with open_screens(home, (120, 40)) as seen:
        await zoomed(seen, "2")
        await seen.until_shows("over time")
        columns = sorted({x for x, _ in braille(seen)})
        wide = max(after - before for before, after in pairwise(columns))
        assert 0.5 < wide / (columns[-1] - columns[0]) < 0.7
        await seen.press("escape", shows=("CURVES", "GPU memory MiB"))
        row = next(i for i, line in enumerate(seen.lines()) if "GPU memory MiB" in line)
        left = seen.lines()[row].index("GPU memory MiB")
        lines = [line[left:] for line in seen.lines()[row + 1 : row + 15]]
        drawn = {x for line in lines for x, char in enumerate(line) if "⠀" < char <= "⣿"}
        assert max(after - before for before, after in pairwise(sorted(drawn))) > 5


async def test_x_switches_between_epochs_and_time(home: Path, conn: Connection) -> None:
    add(conn, 1)
    async with open_screens(home, first=zoomed) as seen:
        assert "over epochs" in seen.lines()[0]
        await seen.press("x", shows=("over time", "8:20", "4:00"))
        await seen.press("x", shows=("over epochs", "epoch 50"))
        await seen.press("escape", "2", shows=("GPU memory MiB of run 1", "over time"))
        await seen.press("x", shows="over epochs")  # as the loss tells when each epoch was


async def test_another_run_is_laid_over_and_removed(home: Path, conn: Connection) -> None:
    for number, last in ((1, 0.4), (2, 0.2), (3, 0.01)):
        add(conn, number, last=last)
    async with open_screens(home, first=zoomed) as seen:
        await seen.press("plus", shows="add loss of which run")
        await seen.press("1", "enter", shows=("loss of runs 3, 1", "›A 3 train", " B 1 train"))
        await seen.press("left")
        assert " 0.0300 " in seen.row_of("›A 3 train")
        assert " 0.4200 " in seen.row_of(" B 1 train")
        drawn = "\n".join(line[11:] for line in seen.lines()[6:-3])
        assert {"A", "B"} <= set(drawn)
        await seen.press("down", shows="›B 1 train")
        await seen.press("plus", "7", "enter", shows="run 7 is not in the record")
        await seen.press("plus", "1", "enter", shows="run 1 is in this chart already")
        await seen.press("minus", shows="loss of run 3 ")
        await seen.until_gone("B 1 train")


async def test_compared_runs_are_zoomed_together(home: Path, conn: Connection) -> None:
    add(conn, 1, last=0.4)
    add(conn, 2, epochs=30)
    async with open_screens(home, (120, 60), shows="RECENT") as seen:
        await seen.press("h", shows="2 runs")
        await seen.press("space", "space", "equals_sign")
        await seen.until(lambda: isinstance(seen.app.screen, Compare), "the comparison")
        await seen.until_shows(" 1 loss")
        await seen.press("right", shows="›1 loss")
        await seen.press("enter", shows=("loss of runs 2, 1", "›A 2 train", " B 1 train", "  last"))
        assert "epoch 30" in seen.lines()[2]  # the newest point of the marked run
        await seen.press("down", shows="epoch 50")  # run 2 had ended
        assert "n/a" in seen.row_of(" A 2 train")
        await seen.press("left", "up")  # the cursor stays where the marked run has no point
        await seen.until_shows("›A 2 train")
        assert "epoch 49" in seen.lines()[2]
        await seen.press("down")
        await seen.press("escape", shows="compare  runs 2, 1")
        await seen.press("down", "enter", shows=("1 train nations 1", "›1 loss"))


async def test_memory_has_its_estimate_and_above_it_the_limit(home: Path, conn: Connection) -> None:
    add(conn, 1)
    async with open_screens(home, shows="RECENT") as seen:
        await seen.press("enter", shows=("CURVES", "predicted 900", "limit 1,500"))
        await seen.press("2", shows=("─ predicted 900 MiB", "┄ limit 1,500 MiB"))
        at = {
            word: y for y, line in enumerate(seen.lines()) for word in ("limit", "predicted") if word in line
        }
        assert at["limit"] < at["predicted"]
        top = min(y for _, y in braille(seen))
        assert at["predicted"] <= top


async def test_new_points_arrive_while_a_chart_is_open(run_cli: Console) -> None:
    loss = '{"event":"metric","name":"loss","value":\'$((1000 - i))\',"step":\'$i\'}'
    script = f"i=0; while [ ! -e gate ]; do i=$((i+1)); echo '{loss}' >> $KGOPS_EVENTS; sleep 0.1; done"
    run_cli.going("sh", "-c", script, flags=("--label", "goes on"))
    async with open_screens(run_cli.home, shows="RUNNING") as seen:
        seen.app.push_screen(ChartScreen("loss", (1,)))
        await seen.until_shows("step 5")
        await seen.press("home", shows=("step 1 ", "lowest"))
        before = seen.row_of(" A 1 exec")
        await seen.until(lambda: seen.row_of(" A 1 exec") != before, "another point")
        assert "step 1 " in seen.text  # the cursor stays
        (run_cli.cwd / "gate").touch()
