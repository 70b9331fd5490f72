"""What is copied goes to the terminal by OSC 52, also through tmux; nobody claims that it arrived."""

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from driving import Console, Terminal
from nvml_standin import Machine, Slice, StandIn, a100, t4
from screen_driving import Seen, look, open_screens

from kgops.present.formats import value_text
from screens.widgets.lines import Lines

REPORTS = (
    """echo '{"event":"metric","name":"loss","value":0.25,"step":1}' >> $KGOPS_EVENTS; echo größe; true"""
)


def osc52(text: str) -> bytes:
    return b"\x1b]52;c;" + base64.b64encode(text.encode()) + b"\x07"


async def test_a_letter_names_what_of_a_run_is_copied_a_command_as_a_shell_takes_it(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "sh", "-c", REPORTS)
    folder = str(run_cli.folder(1))
    async with open_screens(run_cli.home, (200, 40), shows="RECENT") as seen:
        for key, text in (("i", "1"), ("f", folder), ("c", "kgops run --again 1"), ("m", "loss 0.25")):
            await seen.press("y")
            await seen.until_shows("i id", "f folder", "c command", "m metric", "RECENT")  # above the list
            await seen.press(key, shows="sent to the terminal: ")
            assert seen.app.clipboard == text
        await seen.press("y", "x", gone="i id")
        assert seen.app.clipboard == "loss 0.25"
        await seen.press("enter", shows=("Record", "größe"))
        await seen.press("shift+tab", shows=("exec.command", "sh -c 'echo"))
        await seen.press("y", "e", shows="sent to the terminal: ")
        assert seen.app.clipboard == value_text(["sh", "-c", REPORTS])


def copied_of_gpus(home: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    async def story(seen: Seen) -> None:
        await seen.until_shows("Tesla T4", "1:0")
        for keys in (("home", "y", "g"), ("y", "u"), ("down", "down", "y", "u"), ("1", "y", "g")):
            await seen.press(*keys[:-1], shows="any other key: nothing")
            offered = seen.app.screen.query_one("#question", Lines).rows[:-1]
            letters = " · ".join(
                "".join(piece.text for piece in row.pieces[:2])[:6].strip() for row in offered
            )
            await seen.press(keys[-1], shows="sent to the terminal: ")
            found.append((letters, seen.app.clipboard))

    look(Path(home), story, (120, 40))
    return found


def test_number_and_uuid_of_a_gpu_are_copied_on_both_screens(run_cli: Console, standin: StandIn) -> None:
    divided = replace(a100("GPU-b"), mig=True, slices=(Slice(0, "MIG 1g.5gb", "MIG-c", 4864),))
    standin.show(Machine((t4("GPU-a"), divided)))
    whole, part = "g GPU · u UUID · n name", "u UUID · n name"
    assert standin.ask(copied_of_gpus, str(run_cli.home)) == [
        *((whole, "0"), (whole, "GPU-a"), (part, "MIG-c"), (whole, "1")),
    ]


def test_copies_reach_the_terminal_and_tmux_hands_them_on(
    run_cli: Console, open_terminal: Callable[..., Terminal]
) -> None:
    run_cli("run", "exec", "--", "true")
    for variables, sent in (
        ({"TMUX": ""}, osc52("kgops run --again 1")),
        (
            {"TMUX": "/tmp/tmux-0/default,1,0"},
            b"\x1bPtmux;\x1b" + osc52("kgops run --again 1") + b"\x1b\\",
        ),
    ):
        terminal = open_terminal("tui", environment=run_cli.environment(variables))
        terminal.wait_for_text(b"RECENT")
        terminal.type(b"y")
        terminal.wait_for_text(b"any other key")
        terminal.type(b"c")
        terminal.wait_for_text(b"sent to the terminal")
        assert sent in terminal.seen
