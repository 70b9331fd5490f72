"""A known point at which a process waits to be killed: no kill that has to uncover a fault is left to luck.

The standard library alone: a worker without site-packages waits here, too.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

GAP = "KGOPS_KILL_GAP"  # names the folder of the gap; supervisors inherit it from their launcher
_PATIENCE_S = 600.0  # whoever was to kill us is gone


def wait_to_be_killed(folder: str | None) -> None:
    """The first process to come here after the gap was armed waits until it is killed or the gap is closed."""
    if folder is None:
        return
    mine = Path(folder) / f"open-{os.getpid()}"
    with suppress(FileNotFoundError):
        (Path(folder) / "armed").rename(mine)  # nobody else finds it any more
    until = time.monotonic() + _PATIENCE_S
    while mine.exists() and time.monotonic() < until:
        time.sleep(0.01)


class Gap:
    """The side of whoever kills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def arm(self) -> None:
        (self.folder / "armed").touch()

    def pid(self) -> int | None:
        """The process that waits; None if none does yet."""
        return next((int(path.name.removeprefix("open-")) for path in self.folder.glob("open-*")), None)

    def close(self) -> None:
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
