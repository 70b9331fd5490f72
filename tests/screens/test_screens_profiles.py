"""All profiles with what they set and why; a copy can be edited, and what is wrong with it is said."""

from pathlib import Path

import pytest
from screen_driving import Seen, open_screens


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def opened(seen: Seen) -> None:
    await seen.press("f", shows=("PROFILE", "any machine"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_selected_profile_is_shown_with_its_reasons(
    home: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with open_screens(home, size, first=opened) as seen:
        await seen.go_to("a10")
        await seen.until_shows("# A10, and A10G as Amazon's g5 has it", 'precision = "bf16"')
        await seen.press("tab", "end")
        await seen.until_shows("MEMORY ESTIMATES SO FAR", "No run has a predicted and a measured peak yet")


async def test_a_copy_is_written_once_and_is_in_the_list(home: Path, tmp_path: Path) -> None:
    async with open_screens(home, first=opened) as seen:
        await seen.go_to("a10")
        await seen.press("e", shows="my-a10.toml")
        await seen.until(lambda: (tmp_path / "my-a10.toml").exists(), "the copy")
        (tmp_path / "my-a10.toml").write_text("# mine\n")
        await seen.go_to("a10")
        await seen.press("e", shows="already exists")
        assert (tmp_path / "my-a10.toml").read_text() == "# mine\n"


async def test_what_is_wrong_with_ones_own_profile_is_shown_as_text(home: Path, tmp_path: Path) -> None:
    text = '# [bold]x[/] 蛋白质 \u202eسلام\nsummary = "mine"\n[options]\nbach_size = 3\n'
    (tmp_path / "my-own.toml").write_text(text)
    async with open_screens(home, first=opened) as seen:
        await seen.go_to("my-own.toml")
        await seen.until_shows("PROBLEMS", "options.bach_size: no such option", "[bold]x[/]")
        assert "\u202e" not in seen.text
