"""The page of a run shows all that is known of it, and its keys do what the commands of that name do."""

import json
import time
from pathlib import Path

from driving import Console
from records import FORECAST, PROCESS, add
from screen_driving import Seen, open_screens

from storage import reports, runs, series
from storage.database import Connection, open_reader, transaction

WAITS = "echo ready; while [ ! -e gate ]; do sleep 0.05; done"


def emit(event: str) -> str:
    return f"echo '{event}' >> \"$KGOPS_EVENTS\";"


async def open_newest(seen: Seen, page: int = 0) -> None:
    """Its curves, memory, options, log or record."""
    await seen.until(lambda: "RECENT" in seen.text or " running · " in seen.text, "runs")
    await seen.press("enter", shows="Record")
    await seen.press(*["tab"] * page)


async def test_options_are_shown_as_asked_and_as_applied_with_the_reason(run_cli: Console) -> None:
    option = (
        '{"event":"option","name":"precision","requested":"bf16","applied":"fp32","reason":"no CUDA device"}'
    )
    same = '{"event":"option","name":"batch_size","requested":64,"applied":64}'
    run_cli("run", "exec", "--", "sh", "-c", emit(option) + emit(same))
    async with open_screens(run_cli.home) as seen:
        await open_newest(seen, 2)
        assert "Options 1 changed" in seen.lines()[1]
        assert seen.row_of("precision").split(maxsplit=3)[:3] == ["precision", "bf16", "fp32"]
        assert "no CUDA device" in seen.row_of("precision")
        assert seen.row_of("batch_size").split()[1:3] == ["64", "64"]


async def test_attempts_say_why_they_ended_and_what_was_changed(run_cli: Console) -> None:
    oom = "if [ {batch} != 16 ]; then echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1; fi"
    run_cli("run", "exec", "--on-oom", "batch=64,32,16", "--", "sh", "-c", oom)
    async with open_screens(run_cli.home, first=open_newest) as seen:
        assert "ATTEMPT" in seen.text
        rows = [line for line in seen.lines() if "out of memory " in line and line.lstrip()[:1].isdigit()]
        assert [row.split()[0] for row in rows] == ["1", "2"]
        assert "batch=32" in seen.text
        assert "batch=16" in seen.text


def curves_of(conn: Connection, predicted_mib: float | None) -> None:
    parts = {"activations": 400.0, "weights": 200.0}
    forecast = {**FORECAST, "estimate": {"phase": "validation", "parts_mib": parts}}
    plan = {"forecast": forecast} if predicted_mib is not None else {}
    known = {"workload": "train", "label": "nations", "profile": "cpu", "folder": "0001-train-nations"}
    with transaction(conn):
        add(
            conn,
            1,
            **known,
            submitted_at=time.time(),
            predicted_mib=predicted_mib,
            job={"train": {"dataset": "nations"}},
            plan=plan,
        )
        loss = [series.Point("loss", i, 1 / (1 + i), float(i)) for i in range(500)]
        memory = [series.Point("gpu_memory_mib", i, 300.0 + i / 10, float(i)) for i in range(100)]
        weights = series.Point("weights_mib", 1, 201.5, 1.0)
        series.append(conn, 1, [*loss, *memory, weights, series.Point("valid_mrr", 1, 0.25, 1.0)])
    runs.end(conn, 1, state="succeeded", reason=None, exit_code=0, ended_at=time.time())


async def test_curves_are_drawn_and_the_predicted_memory_is_a_line_among_them(
    home: Path, conn: Connection
) -> None:
    curves_of(conn, 600.0)
    async with open_screens(home, first=open_newest) as seen:
        heading = next(line for line in seen.lines() if line.startswith("›1 loss"))
        assert heading.split()[1:3] == ["loss", "0.0020"]
        assert "GPU memory MiB ─ predicted 600" in heading
        assert "predicted 600 MiB on the GPU" in seen.text
        assert heading.endswith("309.9")
        start = seen.lines().index(heading)
        below = seen.lines()[start + 1 :]
        chart = below[: next(i for i, line in enumerate(below) if "epoch" in line)]
        assert sum(line.count("─") for line in chart) > 20
        assert chart[0].count("─") > 20  # nothing was measured up there
        assert any("⠀" < char <= "⣿" for char in chart[-1])
        assert "valid mrr" not in seen.text  # one point is no curve
        await seen.press("tab")
        assert seen.row_of("activations").split()[:2] == ["activations", "400"]
        assert seen.row_of("weights").split()[:3] == ["weights", "200", "202"]
        assert seen.row_of("activations").count("▇") == 2 * seen.row_of("weights").count("▇")
        assert "in validation" in seen.text


async def test_stop_and_resume_are_one_key_each(run_cli: Console) -> None:
    run_cli.running(run_cli.detach("sh", "-c", "exec sleep 60"))
    async with open_screens(run_cli.home, (80, 24), first=open_newest) as seen:
        for key, state in (("s", "■ stopped"), ("r", "› running"), ("s", "■ stopped")):
            await seen.press(key, shows="y yes")
            await seen.press("y", shows=state)
    assert run_cli.ended(1).attempts == 2


async def test_tags_and_notes_are_written_where_the_commands_write_them(run_cli: Console) -> None:
    run_cli("run", "exec", "--tag", "draft", "--", "true")
    async with open_screens(run_cli.home, first=open_newest) as seen:
        await seen.press("t", shows="tags of run 1: word")
        await seen.press(*"paper -draft", "enter", shows="tags of run 1: paper")
        await seen.press("m", shows="note on run 1")
        await seen.press(*"best so far", "enter", shows=("NOTE of", "best so far"))
        await seen.press("t", shows="tags of run 1: word")
        await seen.press("escape", gone="tags of run 1: word")
    conn = open_reader(run_cli.home / "kgops.db")
    assert reports.tags(conn, 1) == ["paper"]
    assert [note.text for note in reports.notes(conn, 1)] == ["best so far"]
    conn.close()


async def test_a_run_that_was_deleted_meanwhile_is_said_to_be_gone(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    async with open_screens(run_cli.home, first=open_newest) as seen:
        assert run_cli("delete", "1", "--yes").code == 0
        await seen.until_shows("run 1 is no longer in the record")
        await seen.press("t", shows="tags of run 1: word")
        await seen.press(*"late", "enter", shows="run 1 is no longer in the record")
        await seen.press("escape", shows="No runs yet")


async def test_a_prediction_is_judged_once_the_run_has_succeeded(run_cli: Console, conn: Connection) -> None:
    """Until then, and after running out of memory, its peak says nothing of what it needs."""
    used = emit('{"event":"memory","mib":{"libraries":300}}')
    gpu, process = {"forecast": FORECAST}, {"process": {**PROCESS, "start_mib": 310.0}}
    failed = "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
    runs_made = [run_cli.detach("sh", "-c", f"{used} {then}") for then in (failed, WAITS) for _ in range(2)]
    for number, plan in zip(runs_made, (gpu, process) * 2, strict=True):
        run_cli.ended(number) if number < 3 else run_cli.running(number)
        conn.execute("UPDATE run_spec SET plan = ? WHERE run = ?", (json.dumps(plan), number))
        peaks = "UPDATE run SET predicted_mib = 510, peak_host_mib = 331, peak_gpu_mib = 44 WHERE id = ?"
        conn.execute(peaks, (number,))
        page = run_cli("show", str(number)).out
        assert "predicted  510 MiB o" in page
        assert "measured" not in page
    async with open_screens(run_cli.home, shows="RECENT") as seen:
        for number in runs_made:
            await seen.press("colon", *str(number), shows=f"run {number} sh")
            await seen.press("enter", shows="predicted 510 MiB o")
            assert "measured" not in seen.text
            await seen.press("escape", shows="RECENT")
