"""Links in the place of a run's folder. People move a folder to another disk and leave a link: that is still the run's.

A worker may leave a link to the files of another run or of a person: nothing is written or removed there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from kgops.errors import Unavailable
from kgops.jobs.files import home_of, read_json, read_table, set_link_aside
from kgops.supervisor.run_folder import RunFolder, folder_name

_MOST_LINKS = 40  # as the kernel follows


def is_own(folder: RunFolder) -> bool:
    """Whether the path leads to the run's own folder: it is no link, or a link to it outside any home."""
    if not folder.path.is_symlink():
        return True
    at = _plain(folder.path)
    for _ in range(_MOST_LINKS):
        if not at.is_symlink():
            return _names(read_json(at / "plan.json")) == folder.path.name
        at = _plain(at.parent / os.readlink(at))  # noqa: PTH115 - the next link only
        if home_of(at) is not None:
            return False
    return False


def must_be_own(number: int, folder: RunFolder, key: str | None = None) -> None:
    """Raises Unavailable for a link to anything but the folder of run `number`; not where it leads nowhere. `key`: of
    the run's plan, if known."""
    is_others = key is not None and folder.path.is_symlink() and read_table(folder.plan).get("key") != key
    if (is_others or not is_own(folder)) and folder.path.exists():
        raise Unavailable(
            f"the folder of run {number} is a link to {os.path.realpath(folder.path)}, which is not that run's folder",
            f"put its folder back, or remove the run: `kgops delete {number}` leaves those files as they are",
        )


def put_right(folder: RunFolder) -> None:
    """Sets aside links to the files of somebody else that a worker put in the place of its run's folder, or of its
    folders of attempts. The files themselves stay; a link to a disk that is away stays, too."""
    if not is_own(folder) and folder.path.is_dir():
        folder.path.rename(folder.path.with_name(f".{folder.path.name}.link-{time.time_ns()}"))
    elif not set_link_aside(folder.attempts):
        for number in range(1, folder.last_attempt() + 1):
            set_link_aside(folder.attempt(number).path)


def _plain(path: Path) -> Path:
    """Without links above it."""
    return Path(os.path.realpath(path.parent)) / path.name


def _names(plan: object) -> str | None:
    """The name of the run's folder, by its plan."""
    if not isinstance(plan, dict):
        return None
    number, workload, label = (plan.get(name) for name in ("number", "workload", "label"))
    if not isinstance(number, int) or not isinstance(workload, str) or not isinstance(label, str):
        return None
    return folder_name(number, workload, label)
