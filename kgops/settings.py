"""Where kgops keeps its things: one home, private to its person."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple

from kgops.errors import Unavailable, Usage


class Home(NamedTuple):
    """$KGOPS_HOME, or ~/.kgops."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "kgops.db"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def pending(self) -> Path:
        """Small files that say which run is being made or deleted right now."""
        return self.path / "pending"


def find_home() -> Home:
    """The home as configured; it may not exist yet."""
    configured = os.environ.get("KGOPS_HOME")
    if configured:
        return Home(Path(configured).absolute())
    try:
        return Home(Path.home() / ".kgops")
    except RuntimeError as error:
        raise Usage("cannot tell your home folder", "set KGOPS_HOME to a folder on a local disk") from error


_umask_found: int | None = None


def guard_files() -> int:
    """From here on this process makes files for its person alone. Returns the umask the person had."""
    global _umask_found
    found = os.umask(0o077)  # the database's own side files copy its mode
    if _umask_found is None:
        _umask_found = found
    return _umask_found


def make_home(home: Home) -> None:
    """Makes what is missing, 0700. Raises Unavailable where this person cannot write there.

    A full disk is no reason to refuse a home that is there: stopping and deleting runs needs no room.
    """
    guard_files()
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _must_be_own(home)
        _close_to_others(home)
        for folder in (home.runs, home.pending):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OSError(_why_not(folder), os.strerror(_why_not(folder)), str(folder))
    except OSError as error:
        raise Unavailable(
            f"the home {home.path} cannot be written: {os.strerror(error.errno or 0)}",
            "set KGOPS_HOME to a folder of yours"
            if error.errno in (errno.EACCES, errno.EPERM)
            else "free or remount the disk, or set KGOPS_HOME to a folder you may write",
        ) from error


def _why_not(folder: Path) -> int:
    """The reason behind a False of os.access."""
    return errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES


def _must_be_own(home: Home) -> None:
    """What another user, root too, leaves in somebody's home is closed to its owner.

    By the database's owner: a folder that was mounted into a container may be anybody's.
    """
    try:
        owner = home.database.stat().st_uid
    except FileNotFoundError:
        return
    if owner != os.geteuid():
        raise Unavailable(
            f"the home {home.path} belongs to user {_name_of(owner)}, and you are {_name_of(os.geteuid())}",
            f"run it as {_name_of(owner)}, or set KGOPS_HOME to a folder of your own",
        )


def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _close_to_others(home: Home) -> None:
    if not stat.S_IMODE(home.path.stat().st_mode) & 0o077:
        return
    # Somebody may have named a folder that others use: closing /tmp to them would be no service.
    if not home.database.exists() and any(home.path.iterdir()):
        raise Unavailable(
            f"{home.path} holds other things and is open to others",
            "set KGOPS_HOME to a folder of its own; kgops makes it readable by you alone",
        )
    home.path.chmod(0o700)
