"""Screens that were left are gone: however often they are opened, nothing of them stays in memory."""

from __future__ import annotations

import gc
from pathlib import Path

from driving import Console
from screen_driving import Seen, look
from textual._styles_cache import StylesCache


def caches() -> int:
    """How many widgets' painted lines are kept."""
    gc.collect()
    # Not isinstance: it asks each object for its class, and some of other libraries warn when they are asked.
    return sum(type(one) is StylesCache for one in gc.get_objects())


def test_a_screen_opened_again_and_again_keeps_no_more_than_opened_once(home: Path, run_cli: Console) -> None:
    run_cli("run", "exec", "--label", "one", "--", "true")
    kept: dict[str, list[int]] = {"h": [], "f": [], "b": []}

    async def story(seen: Seen) -> None:
        await seen.until_shows("one")
        for key, counts in kept.items():
            for _ in range(3):
                await seen.press(key)
                await seen.until(lambda: len(seen.app.screen_stack) == 2, "the screen")
                await seen.press("escape")
                await seen.until(lambda: len(seen.app.screen_stack) == 1, "the dashboard")
                await seen.wait(0)
                counts.append(caches())

    look(home, story)
    assert all(counts[-1] == counts[0] for counts in kept.values()), kept
