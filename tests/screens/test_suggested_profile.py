"""The profile that suits this machine stands where people look: dashboard, GPU, profiles and New run."""

import re
from functools import partial
from pathlib import Path

import pytest
from driving import Console
from gpu_machine import GpuMachine
from nvml_standin import a100, h200, t4
from screen_driving import Seen, Step, look, open_screens, without_edges
from screen_picture import picture

from screens.widgets.lines import Lines

SIZES = [(60, 20), (80, 24), (120, 40), (200, 60)]
TOO_OLD = "driver 550.54.15 runs CUDA up to 12.4, and torch 2.12 is built for CUDA 13.0"
UPDATE = "update the driver to 580 or newer, or install a build of torch for CUDA 12"
OTHERS = ((999_999_999, 142_000),)  # a process that nobody here can see


def pictures(home: Path, sizes: list[tuple[int, int]], *steps: Step) -> list[list[str]]:
    """For each size, the pictures after each step from the dashboard."""
    found: list[list[str]] = []

    async def story(seen: Seen) -> None:
        await seen.until_shows("HOST")
        found.append([])
        for keys, texts in steps:
            await seen.press(*keys)
            await seen.until(partial(shows_words, seen, texts), str(texts))
            found[-1].append(picture(seen.app))

    for size in sizes:
        look(home, story, size)
    return found


def shows_words(seen: Seen, texts: tuple[str, ...]) -> bool:
    """Also where a line ends between two words."""
    return all(text in words_of(seen.text) for text in texts)


def words_of(shown: str) -> str:
    """Without the pane on the right."""
    lines = (re.split("[│╮╯] [│╭╰]", line)[0] for line in shown.partition("~~~")[0].splitlines())
    return " ".join(" ".join(without_edges(line).removeprefix("│") for line in lines).split())


def words_in_box(shown: str) -> str:
    """What stands in the box of a question, above what is behind it."""
    lines = shown.partition("~~~")[0].splitlines()
    top = next(i for i, line in enumerate(lines) if "╭─ sure?" in line)
    left = lines[top].index("╭─ sure?")
    right = lines[top].index("╮", left)
    height = next(i for i, line in enumerate(lines[top:]) if line[left : left + 1] == "╰")
    return " ".join(" ".join(line[left + 1 : right] for line in lines[top + 1 : top + height]).split())


def line_with(picture: str, text: str) -> tuple[str, str]:
    """The first line with that text, and its tones."""
    lines, tones = (part.splitlines() for part in picture.split("~~~", 1))
    number = next(i for i, line in enumerate(lines) if text in line)
    return lines[number], tones[1 + number]


# --- dashboard ---


@pytest.mark.parametrize("size", SIZES)
async def test_without_a_gpu_the_host_says_profile_cpu_as_plans_do(home: Path, size: tuple[int, int]) -> None:
    async with open_screens(home, size, shows=("HOST", "profile cpu", "no GPU: runs use the CPU")) as seen:
        await seen.press("n", shows="--profile cpu")


# --- New run from there ---


def started_tracin(home: Path) -> int:
    """How many keys a TracIn run takes from the dashboard."""
    keys = 0

    async def press(seen: Seen, key: str) -> None:
        nonlocal keys
        keys += 1
        await seen.press(key)

    async def story(seen: Seen) -> None:
        await seen.until_shows("14.6 GiB free", "t4")  # no key: the profile
        seen.app.screen.query_one("#body", Lines).point_at(("gpu", 0, "0"))
        await press(seen, "n")
        await seen.until_shows("t4, for the Tesla T4 in this machine", "GPU 0 Tesla T4")
        await press(seen, "right")
        await seen.until_shows("tracin", "kgops tracin --run 1 --profile t4 --gpu 0")
        await press(seen, "x")
        await seen.until_shows("2 tracin")

    look(home, story)
    return keys


def test_three_keys_start_tracin_with_the_suggested_profile(run_cli: Console, tmp_path: Path) -> None:
    small = ("--embedding-dim", "16", "--num-epochs", "1", "--checkpoint-frequency", "1", "--device", "cpu")
    assert run_cli("run", "train", "--dataset", "nations", *small).code == 0
    machine = GpuMachine(tmp_path / "machine", t4())
    assert machine.ask(started_tracin, run_cli.home) <= 3
    run = run_cli.ended(2)  # its worker's torch is only to look at
    assert (run.workload, run.profile, run.gpu) == ("tracin", "t4", "GPU-t4")


def test_the_second_gpu_is_filled_in_from_its_row_and_its_page(home: Path, tmp_path: Path) -> None:
    machine = GpuMachine(tmp_path, t4(), a100("GPU-a"))
    opened: Step = (("n",), ("GPU 1 NVIDIA A100", "--profile a100-40 --gpu 1"))
    page: Step = (("escape", "1"), ("39.4 GiB free · profile a100-40",))
    assert machine.ask(pictures, home, SIZES[2:3], (("home", "down"), ()), opened, page, opened)


def profiles_here(home: Path) -> dict[str, str]:
    """The tone of each mark."""
    found: dict[str, str] = {}

    async def story(seen: Seen) -> None:
        await seen.until_shows("GiB free")
        await seen.press("f", shows=("PROFILE", "GPU 0, 2"))
        body = seen.app.screen.query_one("#body", Lines)
        await seen.until(lambda: body.key == "t4", "the first GPU's profile")
        for row in body.rows:
            if row.key:
                found[str(row.key)] = [one.tone for one in row.pieces if one.tone != "edge"][2]
        await seen.press("n")
        await seen.until_shows("t4", "GPU 0 Tesla T4", "kgops train --dataset nations --profile t4 --gpu 0")
        await seen.press("escape")
        body.point_at("l4")
        await seen.press("n", shows="no L4 is here; plan for one: kgops suggest train --gpu l4")

    look(home, story, (120, 40))
    return found


def test_profiles_of_gpus_that_are_here_are_marked_and_start_a_run(home: Path, tmp_path: Path) -> None:
    machine = GpuMachine(tmp_path, t4(), a100("GPU-a"), t4("GPU-c"))
    tones = machine.ask(profiles_here, home)
    assert {name for name, tone in tones.items() if tone == "good"} == {"t4", "a100-40"}


# --- GPUs that torch cannot use ---


@pytest.fixture
def too_old(tmp_path: Path) -> GpuMachine:
    machine = GpuMachine(tmp_path)
    machine.use_torch(cuda="13.0")
    machine.show(*(h200(f"GPU-{i}") for i in range(8)), driver="550.54.15", cuda=12040)
    return machine


def test_gpus_that_torch_cannot_use_are_loud_on_every_screen(home: Path, too_old: GpuMachine) -> None:
    told = f"{TOO_OLD}; {UPDATE}"
    steps: tuple[Step, ...] = (
        ((), ("! CPU only: 8 GPUs unusable",)),
        (("n",), ("CPU only: 8 GPUs unusable", "fits now")),
        (("x",), ("y yes",)),
    )
    for dashboard, form, question in too_old.ask(pictures, home, SIZES, *steps):
        assert told in words_of(dashboard)
        assert "CPU only" in line_with(dashboard, "0 H200")[0] and "profile cpu" in dashboard
        assert f"PLAN CPU only: 8 GPUs unusable {told} on the CPU: fits now" in words_of(form)
        tones = [one for one in line_with(form, "8 GPUs unusable")[1].split() if set(one) == {"w"}]
        assert tones == ["www", "wwwww", "w", "wwww", "wwwwwwww"]
        assert "g" not in line_with(form, "fits now")[1]
        assert f"CPU only: 8 GPUs unusable: {told}. Start this run?" in words_in_box(question)


# --- the memory bar ---


def planned_on(home: Path, *gpus: tuple[str, str]) -> list[str]:
    """New run for each of these GPUs, once it shows that text."""
    found: list[str] = []

    async def story(seen: Seen) -> None:
        await seen.until_shows("GiB free")
        for gpu, text in gpus:
            seen.app.open_new_run(gpu)
            await seen.until_shows("PLAN", text)
            found.append(picture(seen.app))
            await seen.press("escape")

    look(home, story, (120, 40))
    return found


def test_the_bar_shows_others_memory_and_how_tight_it_is(home: Path, tmp_path: Path) -> None:
    full, fuller = 142_100, 142_900
    machine = GpuMachine(
        tmp_path,
        h200("GPU-0"),
        h200("GPU-1", used_mib=full, processes=OTHERS),
        h200("GPU-2", used_mib=fuller, processes=OTHERS),
    )
    asked = (("0", "to spare"), ("1", "MiB to spare"), ("2", "would wait now"))
    roomy, tight, waits = machine.ask(planned_on, home, *asked)
    _, tones = line_with(roomy, "▇")
    assert not {"m", "w"} & set(tones)  # others' memory is in a tone of its own
    assert "g" in line_with(roomy, "fits now")[1]
    _, tones = line_with(tight, "▇▇▇▇▇▇▇")
    assert tones.count("m") >= 112 and tones.count("w") == 1
    assert "b" not in tones
    assert "w" in line_with(tight, "fits now")[1] and "g" not in line_with(tight, "fits now")[1]
    assert f"others have {full:,}" in tight
    assert f"{fuller:,} MiB that another user holds" in waits
    assert "w" in line_with(waits, "▇▇▇▇▇▇▇")[1]
