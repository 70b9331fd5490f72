"""Takes the picture that README shows: the dashboard over a tour, in a session that really takes place.

`python tests/picture.py docs/dashboard.svg` makes a tour in a temporary folder, opens the screens on it, writes what
they show as SVG, and removes the tour.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from driving import end_all_of
from screen_driving import Seen

from kgops.settings import Home
from kgops.tour import home as homes
from kgops.tour.filling import REAL, fill
from screens.app import KgopsApp

SIZE = (112, 30)
LARGEST = 150_000
WATCHED_S = 40.0  # until what is running has a curve


def taken(app: KgopsApp) -> str:
    """What is on the screen; the font is the reader's own, and nothing is asked of another machine."""
    drawn = app.export_screenshot(title="kgops")
    drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.S)
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)
    drawn = re.sub(r"font-family: [^;]+;", "font-family: ui-monospace, Menlo, Consolas, monospace;", drawn)
    return re.sub(r"\s*\n\s*", "\n", drawn).strip() + "\n"


def dashboard_of(home: Home) -> str:
    found: list[str] = []

    async def open_and_look() -> None:
        app = KgopsApp(home, unicode=True)
        async with app.run_test(size=SIZE) as pilot:
            seen = Seen(app, pilot)
            await seen.until_shows("RUNNING", "RECENT", "a curve to watch")
            await seen.wait(WATCHED_S)
            found.append(taken(app))

    asyncio.run(open_and_look())
    return found[0]


def main() -> None:
    where = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="kgops-picture-") as folder:
        home = Home(Path(folder) / "tour")
        try:
            fill(home, lambda line: print(line, file=sys.stderr), REAL)
            drawn = dashboard_of(home)
            homes.remove(home, own_too=True)
        finally:
            end_all_of(home.path)
    assert len(drawn.encode()) < LARGEST, f"{len(drawn.encode()):,} bytes"
    where.parent.mkdir(exist_ok=True)
    where.write_text(drawn, encoding="utf-8")
    print(f"{where}: {len(drawn.encode()):,} bytes")


if __name__ == "__main__":
    main()
