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


def test_a_screen_opened_again_and_again_keeps_no_more_than_the_dashboard_alone(
    home: Path, run_cli: Console
) -> None:
    run_cli("run", "exec", "--label", "one", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("one")
        alone = caches()
        for key in ("h", "f", "b") * 3:
            await seen.press(key)
            await seen.until(lambda: len(seen.app.screen_stack) == 2, "the screen")
            await seen.press("escape")
            await seen.until(lambda: len(seen.app.screen_stack) == 1, "the dashboard")
            # A moment later: who is leaving may still be on the way out.
            await seen.until(lambda: caches() <= alone, f"no more than the {alone} of before")

    look(home, story)
