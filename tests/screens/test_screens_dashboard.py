"""The dashboard shows what is true, whatever runs are called, and moves only what moved."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from disks import small_disk
from driving import Console
from nvml_standin import Machine, StandIn, cuda_build, t4
from screen_driving import open_screens, shown_after

from kgops.cli.tui import TOUR
from kgops.hosts.mirror import HostState, Mirror
from kgops.hosts.protocol import PROTOCOL
from kgops.present.formats import width_of
from screens.benchmarks import Benchmarks
from screens.history import History
from screens.hosts_page import rows
from screens.widgets.lines import Lines

WAITS = "echo ready; while [ ! -e gate ]; do sleep 0.05; done"
REPORTS = (
    'for i in 1 2 3; do echo \'{"event":"metric","name":"loss","value":\'$i\'.5,"step":\'$i\'}\''
    ' >> "$KGOPS_EVENTS"; done;'
    ' echo \'{"event":"progress","phase":"epoch","done":3,"total":10,"unit":"epochs","rate":2}\' >> "$KGOPS_EVENTS";'
)
OPTION = (
    'echo \'{"event":"option","name":"compile","requested":"default","applied":"off",'
    '"reason":"capability 6.1 < 7.0","chosen_by":"person"}\' >> "$KGOPS_EVENTS"'
)


async def test_screens_of_nothing_say_what_to_do_first_and_make_nothing(kgops_home: Path) -> None:
    async with open_screens(kgops_home, (80, 24)) as seen:
        for key, keys, texts in (
            (
                "h",
                "slash a escape space d w equals_sign greater_than_sign",
                ("No runs yet.", "choose a job", "kgops run"),
            ),
            ("b", "equals_sign x y slash x enter down", ("No benchmarks yet", "kgops bench claims --quick")),
            ("H", "", ("No host is named yet", "kgops hosts add lab1 user@host")),
        ):
            await seen.until_shows("No runs yet", "Train on Nations", "Look around", "Use my own files")
            await seen.press(key)
            await seen.until_shows(*texts)
            await seen.press(*keys.split())
            await seen.until_shows(*texts)
            await seen.press("escape")
        await seen.until_shows("Train on Nations")
    assert not kgops_home.exists()


async def test_a_damaged_database_is_named_on_every_screen_with_what_to_do(home: Path) -> None:
    (home / "kgops.db").write_bytes(b"no database at all " * 500)
    async with open_screens(home, (300, 30), shows=("is damaged", "doctor --rebuild")) as seen:
        await seen.press("question_mark", shows="KEYS HERE")
        await seen.press("escape")
        dashboard = seen.app.screen
        for key, screen in (("h", History), ("b", Benchmarks)):
            await seen.press(key)
            await seen.until(lambda screen=screen: isinstance(seen.app.screen, screen), "the screen")  # type: ignore[misc]
            await seen.until_shows("is damaged", "doctor --rebuild")
            await seen.press(
                "down", "space", "slash", "a", "enter", "greater_than_sign", "G", "d", "equals_sign", "y"
            )
            await seen.until_shows("doctor --rebuild")
            await seen.press("escape")
            await seen.until(lambda: seen.app.screen is dashboard, "the dashboard")


async def test_its_first_start_trains_on_nations_and_its_second_asks_for_sample_data(
    run_cli: Console,
) -> None:
    async with open_screens(run_cli.home.with_name("empty"), shows="Train on Nations") as seen:
        await seen.press("down", "enter")
        await seen.until(lambda: seen.app.return_code is not None, "the end")
        assert seen.app.return_code == TOUR
    async with open_screens(run_cli.home, shows="Train on Nations") as seen:
        await seen.press("enter", shows=("1 pipeline demo", "Record"))
    assert run_cli("stop", "1").code == 0


async def test_runs_stand_where_their_state_says(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "fine", "--", "true")
    run_cli("run", "exec", "--label", "broken", "--", "sh", "-c", "exit 3")
    run_cli.going("sh", "-c", REPORTS + WAITS, flags=("--label", "going"))
    run_cli.detach("true", flags=("--label", "patient", "--exclusive"))
    async with open_screens(run_cli.home, shows=("1 running · 1 waiting · 4 runs in all", "3/10")) as seen:
        row = seen.row_of("3 exec")
        assert row.split()[2:7] == ["going", "epoch", "3/10", "0:03", "loss"]
        assert "2.0 epochs/s" in row
        assert "this machine's CPUs to itself (in use by 3)" in seen.row_of("4 exec")
        assert "failed: exit code 3" in seen.row_of("2 exec")
        assert "✓" in seen.row_of("1 exec")
        headings = [line.split()[0] for line in seen.lines() if line[:1].isupper()]
        assert headings == [
            "HOST",
            "ALERTS",
            "RUNNING",
            "WAITING",
            "RECENT",
        ]  # the host is what computes here


async def test_a_run_that_ends_moves_while_one_looks_and_the_next_takes_its_turn(run_cli: Console) -> None:
    run_cli.going("sh", "-c", WAITS)
    run_cli.detach("sh", "-c", "echo over", flags=("--exclusive",))
    async with open_screens(run_cli.home, (80, 24), shows="1 running · 1 waiting") as seen:
        (run_cli.cwd / "gate").touch()
        await seen.until_shows("0 running · 2 runs in all")
        assert "✓" in seen.row_of("2 exec")


RESUMED = (
    'if [ $KGOPS_ATTEMPT = 1 ]; then echo \'{"event":"progress","done":3,"total":9,"rate":2.5,"unit":"epochs"}\' '
    f">> $KGOPS_EVENTS; exit 1; fi; {WAITS}"
)


async def test_a_resumed_run_shows_its_attempt_and_no_rate_of_the_one_before(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "sh", "-c", RESUMED)
    run_cli("resume", "1", "--detach")
    run_cli.running(1)
    async with open_screens(run_cli.home, shows=("RUNNING", "attempt 2")) as seen:
        row = seen.row_of("1 exec")
        assert "3/9" not in row
        assert "epochs/s" not in row
        await seen.press("down", "enter", shows="Record")
        assert "attempt 2" in seen.lines()[0]
        assert "epochs/s" not in seen.text


HOSTILE = "[bold red]x[/] \x1b[31m \u202eevil 日本 @click=app.quit"


@pytest.mark.parametrize("width", [80, 120])
async def test_labels_are_drawn_as_text_and_columns_stay_aligned(run_cli: Console, width: int) -> None:
    run_cli("run", "exec", "--label", HOSTILE, "--", "true")
    run_cli("run", "exec", "--label", "plain", "--", "true")
    async with open_screens(run_cli.home, (width, 24), shows="2 runs in all") as seen:
        hostile, plain = seen.row_of("1 exec"), seen.row_of("2 exec")
        assert "[bold red]" in hostile
        assert "\x1b" not in seen.text
        assert "\u202e" not in seen.text
        assert width_of(hostile.partition("✓")[0]) == width_of(plain.partition("✓")[0])
        assert max(width_of(line) for line in seen.lines()) <= width


async def test_what_should_worry_somebody_is_said_at_the_top(run_cli: Console) -> None:
    oom = "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
    flags = ("--on-oom", "batch=64,32")
    run_cli("run", "exec", *flags, "--", "sh", "-c", f"if [ {{batch}} = 64 ]; then {oom}; fi")
    run_cli("run", "exec", "--", "sh", "-c", OPTION)
    run_cli(
        "run",
        "exec",
        "--",
        "sh",
        "-c",
        'echo \'{"event":"metric","name":"loss","value":null,"step":1}\' >> "$KGOPS_EVENTS"',
    )
    run_cli("run", "exec", "--", "sh", "-c", oom)
    async with open_screens(run_cli.home, shows="ALERTS") as seen:
        alerts = [line for line in seen.lines() if line.startswith("! ")]
        assert "run 4" in alerts[0]
        assert alerts[1].endswith("diverged: loss became NaN or infinite")
        assert len(alerts) == 2
        # What informs comes after what needs a person.
        notes = [line for line in seen.lines() if line.startswith("· ")]
        assert len(notes) == 1 and notes[0].endswith("out of memory once, succeeded in attempt 2")
        assert "compile" not in seen.text  # nobody must act: `show` and the run's page have it
        assert "batch 64 → 32" in seen.row_of("1 exec")
        assert "▼" in seen.row_of("1 exec")
    assert "capability 6.1 < 7.0" in run_cli("show", "2").out


async def test_the_cursor_stays_with_its_run_when_another_comes_above_it(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "first", "--", "true")
    async with open_screens(run_cli.home, (80, 24)) as seen:
        await seen.until(lambda: seen.cursor_is_on(1), "the cursor")
        run_cli("run", "exec", "--label", "second", "--", "true")
        await seen.until_shows("second")
        assert seen.cursor_is_on(1)
        await seen.press("up")
        assert seen.cursor_is_on(2)
        await seen.press("enter", shows="2 exec second  ✓ succeeded")
        await seen.press("escape", shows="RECENT")
        assert seen.cursor_is_on(2)


async def test_the_cursor_opens_off_what_runs_and_one_key_stops_or_starts_nothing(run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "ended", "--", "true")
    going = run_cli.detach("sleep", "600")
    async with open_screens(run_cli.home, shows=("RUNNING", "RECENT")) as seen:
        await seen.until(lambda: seen.cursor_is_on(1), "the cursor on the ended run")
        for key, asked in (("a", "run 1"), ("s", f"run {going}")):
            seen.app.screen.query_one("#body", Lines).point_at(1 if key == "a" else going)
            await seen.press(key, shows=f"{asked} (")
            await seen.press("escape", gone=f"{asked} (")
        assert seen.app.screen.query_one("#body", Lines).key == going
    assert [run["state"] for run in run_cli("runs", "--json").json()] == ["running", "succeeded"]


async def test_a_paused_screen_looks_no_more_but_opens_runs(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    async with open_screens(run_cli.home, (80, 24), shows="1 run in all") as seen:
        await seen.press("p", shows="paused")
        run_cli("run", "exec", "--", "true")
        await seen.wait(1.3)
        assert "1 run in all" in seen.text
        await seen.press("enter", shows=("paused", "Record"))  # what is opened is shown all the same
        await seen.press("escape", "p", shows="2 runs in all")


def test_gpus_show_what_is_used_and_whose_they_are(
    run_cli: Console, standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(cuda_build(tmp_path / "build")))
    busy = replace(t4("GPU-a", used_mib=11_204), utilization=97, temperature=71, power_mw=68_000)
    lost, idle = replace(t4("GPU-b"), lost=15), t4("GPU-c")
    standin.show(Machine((t4("GPU-a"), lost, idle)))
    environment = standin.environment()
    number = run_cli.going("sh", "-c", WAITS, flags=("--gpu", "0", "--gpu-memory", "12000"), env=environment)
    standin.show(Machine((busy, lost, idle)))
    lines = standin.ask(shown_after, run_cli.home, ((), ("GiB free", "RUNNING")))
    row = next(line for line in lines if line.startswith("0 Tesla T4"))
    assert row.split()[-7:] == ["0.0", "GiB", "free", "t4", "97%", "71", str(number)]
    width = row.index("│") - row.index("▒")
    # Nobody's processes are listed, so what is used is not known to be the run's, and its reservation is kept besides.
    assert row.count("▒") == round(11_204 / 14_909 * width)
    assert row.count("▒") + row.count("▇") == width
    assert "fallen off the bus" in next(line for line in lines if line.startswith("1 "))
    unreserved = next(line for line in lines if line.startswith("2 Tesla T4"))
    assert not {"▇", "▓", "▒", "░"} & set(unreserved)


def test_the_first_frame_does_not_wait_for_a_slow_driver(run_cli: Console, standin: StandIn) -> None:
    run_cli("run", "exec", "--label", "there", "--", "true")
    standin.show(Machine((t4(), t4("GPU-b")), delay_ms=200))
    lines = standin.ask(shown_after, run_cli.home, ((), ("there", "reading GPUs")), size=(80, 24))
    assert any("RECENT" in line for line in lines)


async def test_a_disk_that_is_nearly_full_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "small", "size=64m") as disk:
        monkeypatch.setenv("KGOPS_HOME", str(disk.path))
        console = Console(disk.path, tmp_path)
        console("run", "exec", "--", "true")
        async with open_screens(disk.path, shows="less than 256 MiB free on the disk of"):
            pass
        console.close()


@pytest.mark.parametrize(("oom_attempts", "sign"), [(0, "✓"), (1, "▼")])
def test_a_run_of_another_host_has_the_sign_it_has_there(oom_attempts: int, sign: str) -> None:
    run = {"workload": "train", "state": "succeeded", "label": "x", "oom_attempts": oom_attempts}
    mirror = Mirror()
    mirror.read(json.dumps({"type": "hello", "protocol": PROTOCOL, "kgops": "0.1.0"}).encode())
    picture = {"type": "picture", "host": {"host": {"problem": None}}, "run": {"4": run}}
    mirror.read(json.dumps(picture).encode())
    state = HostState("lab1", "lab1", "live", heard_at=1e9, tables=mirror.tables)
    (row,) = (row for row in rows([state], 120, 1e9) if row.key == ("run", "lab1", 4))
    assert f"{sign} succeeded" in "".join(piece.text for piece in row.pieces)
