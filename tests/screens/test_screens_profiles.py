"""All profiles with what they set and why; a copy can be edited, and what is wrong with it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from screen_driving import Seen, look

from screens.widgets.lines import Lines


async def opened(seen: Seen) -> None:
    await seen.press("f")
    await seen.until_shows("PROFILE", "any machine")


async def go_to(seen: Seen, name: str) -> None:
    body = seen.app.screen.query_one("#body", Lines)
    await seen.press("home")
    for _ in range(len(body.rows)):
        if body.key == name:
            return
        await seen.press("down")
    raise AssertionError(f"there is no profile {name}:\n{seen.text}")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_selected_profile_is_shown_with_its_reasons(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.chdir(tmp_path)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "a10")
        await seen.until_shows("# A10, and A10G as Amazon's g5 has it", 'precision = "bf16"')
        await seen.press("tab", "end")
        await seen.until_shows("MEMORY ESTIMATES SO FAR", "No run has a predicted and a measured peak yet")

    look(home, story, size)


def test_a_copy_is_written_once_and_is_in_the_list(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "a10")
        await seen.press("e")
        await seen.until_shows("my-a10.toml")
        await seen.until(lambda: (tmp_path / "my-a10.toml").exists(), "the copy")
        (tmp_path / "my-a10.toml").write_text("# mine\n")
        await go_to(seen, "a10")
        await seen.press("e")
        await seen.until_shows("already exists")
        assert (tmp_path / "my-a10.toml").read_text() == "# mine\n"

    look(home, story)


def test_what_is_wrong_with_ones_own_profile_is_shown_as_text(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = '# [bold]x[/] 蛋白质 \u202eسلام\nsummary = "mine"\n[options]\nbach_size = 3\n'
    (tmp_path / "my-own.toml").write_text(text)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "my-own.toml")
        await seen.until_shows("PROBLEMS", "options.bach_size: no such option", "[bold]x[/]")
        assert "\u202e" not in seen.text

    look(home, story)
