"""A new run from the screens: chosen row by row, its plan in sight all the time, started or copied."""

import shlex
from pathlib import Path

from driving import Console
from screen_driving import Seen, open_screens

from screens.new_run import NewRun


async def opened(seen: Seen) -> NewRun:
    await seen.press("n", shows=("PLAN", "kgops train"))
    screen = seen.app.screen
    assert isinstance(screen, NewRun)
    return screen


async def write(seen: Seen, key: str, text: str) -> None:
    await seen.go_to(key)
    await seen.press("enter")
    await seen.until_typing()
    await seen.press("ctrl+u", *text, "enter")
    await seen.until_typed()


async def turn(seen: Seen, key: str, until: str, *, by: str = "right") -> None:
    """Presses the arrow until the row's value is that."""
    await seen.go_to(key)
    for _ in range(30):
        if until in seen.row_of({"num_epochs": "epochs"}.get(key, key))[:40].split():
            return
        await seen.press(by)
        await seen.wait(0.05)
    raise AssertionError(f"{key} never showed {until!r}:\n{seen.text}")


def a_graph(folder: Path, triples: int = 60) -> Path:
    folder.mkdir(parents=True)
    for split, count in (("train", triples), ("valid", 6), ("test", 6)):
        lines = (f"e{i % 9973}\tr{i % 3}\te{(i * 7 + 1) % 4999}\n" for i in range(count))
        (folder / f"{split}.txt").write_text("".join(lines))
    return folder


async def test_the_plan_is_there_at_once_and_follows_each_key(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (80, 24), first=opened) as seen:
        assert "nations" in seen.row_of("data")
        assert "to spare" in seen.row_of("PLAN")
        await seen.go_to("batch_size")
        await seen.press("right", shows="kgops train --dataset nations --batch-size 512")
        await seen.press("backspace")
        await seen.until(lambda: "--batch-size" not in seen.text, "the option to be left alone again")
        await seen.press("e", *"many", "enter", shows="batch_size: ")  # what is wrong with it
        await seen.press("e", *"48", "enter", shows="kgops train --dataset nations --batch-size 48")


async def test_a_gpu_that_is_not_here_is_a_what_if_with_its_conflicts_and_is_never_started(
    run_cli: Console,
) -> None:
    async with open_screens(run_cli.home, (160, 40), first=opened) as seen:
        await turn(seen, "gpu", "t4")
        await seen.until_shows("on Tesla T4", "what-if")
        await turn(seen, "compile", "reduce-overhead")
        await turn(seen, "gradient_checkpointing", "on")
        await seen.until_shows("reduce-overhead replays CUDA graphs, and gradient checkpointing")
        assert seen.row_of("compile")[24:].startswith("default")
        assert "start" not in seen.lines()[-1]
        for key in ("x", "X"):
            await seen.press(key)
            await seen.until(lambda: "this machine has no t4" in seen.lines()[-1], "why it cannot start")
            assert "start this run" not in seen.text
            await seen.press("down", "up")
        await seen.press("y", shows="sent to the terminal: kgops suggest")
        words = shlex.split(seen.app.clipboard)
        assert words[:2] == ["kgops", "suggest"] and words[-2:] == ["--gpu", "t4"]
        planned = run_cli(*words[1:])
        assert planned.code == 0 and "Tesla T4" in planned.out


async def test_what_will_not_fit_is_refused_with_the_numbers_and_only_the_second_key_forces_it(
    run_cli: Console,
) -> None:
    async with open_screens(run_cli.home, (160, 40), first=opened) as seen:
        await write(seen, "embedding_dim", "40000")
        await seen.until_shows("does not fit")
        await seen.until_shows("no option makes it fit")
        await seen.press("x", shows=("needs about", "which has"))
        assert run_cli.run(1) is None


async def test_a_command_is_started_and_its_screen_opens(run_cli: Console) -> None:
    async with open_screens(run_cli.home, first=opened) as seen:
        await turn(seen, "workload", "exec")
        await seen.until_shows("command: the command is missing")
        await write(seen, "command", "echo hello")
        await seen.until_shows("-- echo hello")
        await seen.press("x", shows="start this run?")
        await seen.press("escape", gone="start this run?")
        assert run_cli.run(1) is None
        await seen.press("x", "enter", shows=("1 exec", "succeeded"))
        await seen.press("escape", shows="RECENT")
    assert run_cli.ended(1).state == "succeeded"


async def test_a_mistake_is_shown_at_its_field(run_cli: Console) -> None:
    async with open_screens(run_cli.home, first=opened) as seen:
        await write(seen, "num_epochs", "many")
        await seen.until_shows("PLAN  epochs: expected a whole number, found 'many'")
        assert "expected a whole number" in seen.row_of("epochs")
        await write(seen, "num_epochs", "0")
        await seen.until_shows("PLAN  epochs: must be at least 1, found 0")
        await seen.press("x")
        await seen.until(lambda: "must be at least 1" in seen.lines()[-1], "why it cannot start")
        assert "start this run" not in seen.text
        await seen.press("backspace", shows="to spare")
    assert run_cli.run(1) is None


async def test_tab_completes_a_path_and_shows_what_there_is(run_cli: Console, tmp_path: Path) -> None:
    folder = a_graph(tmp_path / "graphs" / "robokop")
    a_graph(tmp_path / "graphs" / "robots")
    async with open_screens(run_cli.home, (200, 40), first=opened) as seen:
        await seen.go_to("data")
        await seen.press("enter")
        await seen.until_typing()
        typed = f"{tmp_path}/graphs/r"
        await seen.press("ctrl+u", *typed, "tab", shows=("graphs/robokop/", "graphs/robots/"))
        await seen.press("k", "tab", "enter", shows=(f"--train {folder}/train.txt", "to spare"))


async def test_keys_do_not_wait_while_triples_are_counted(run_cli: Console, tmp_path: Path) -> None:
    folder = a_graph(tmp_path / "large", 150_000)

    def is_counted() -> bool:
        counts = run_cli.home / "counts.json"
        return counts.exists() and "large" in counts.read_text()

    async with open_screens(run_cli.home, (120, 40)) as seen:
        screen = await opened(seen)
        await seen.go_to("data")
        screen._change(screen._draft.with_field("data", str(folder)))
        await seen.go_to("num_epochs")
        await seen.press("right")
        assert "200" in seen.row_of("epochs")
        assert not is_counted(), "a key waited for the triples"
        assert "large" not in seen.text.partition("PLAN")[2]
        await seen.until_shows("counting triples")
        await turn(seen, "data", "nations", by="left")
        await seen.until_shows("kgops train --dataset")  # other data do not wait for these
        assert not is_counted()


async def test_names_of_folders_are_text_and_nothing_else(run_cli: Console, tmp_path: Path) -> None:
    folder = a_graph(tmp_path / "a\x1b[31mred [bold]b\u202e")
    async with open_screens(run_cli.home, (200, 40)) as seen:
        screen = await opened(seen)
        screen._change(screen._draft.with_field("data", str(folder)))
        await seen.until_shows("a�[31mred [bold]b�", "to spare")
        assert "\x1b" not in seen.text and "\u202e" not in seen.text
