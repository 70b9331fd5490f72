"""The home folder ($KGOPS_HOME or ~/.kgops) with the database and run folders, readable by its owner only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from kgops.errors import Unavailable, Usage
from kgops.jobs.folders import Folder, Inside


class Home(Folder):
    """$KGOPS_HOME, or ~/.kgops."""

    __slots__ = ()
    database = Inside("kgops.db")
    runs = Inside("runs")
    hooks = Inside("hooks.toml")
    pending = Inside("pending")  # marker files of runs that are being created or deleted


def find_home() -> Home:
    """Return the configured home; it may not exist yet."""
    configured = os.environ.get("KGOPS_HOME")
    if configured:
        return Home(Path(configured).absolute())
    try:
        return Home(Path.home() / ".kgops")
    except RuntimeError as error:
        raise Usage(
            "your home folder cannot be found", "set KGOPS_HOME to a folder on a local disk"
        ) from error


_original_umask: int | None = None


def home_here() -> Home:
    """The home that is the working folder, by its full path: as the user wrote it, if that still leads here."""
    home = find_home()
    try:
        is_here = home.path.samefile(Path())
    except OSError:
        is_here = False
    return home if is_here else Home(Path.cwd())


def guard_files() -> int:
    """Set the umask so that new files are readable by their owner only. Return the original umask."""
    global _original_umask
    previous = os.umask(0o077)  # SQLite's -wal and -shm files copy the database's mode
    if _original_umask is None:
        _original_umask = previous
    return _original_umask


def make_home(home: Home) -> None:
    """Create missing folders with mode 0700. Raise Unavailable if the user cannot write there.

    A full disk does not raise for an existing home: stopping and deleting runs need no space.
    """
    guard_files()
    try:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_ownership(home)
        _close_to_others(home)
        for folder in (home.runs, home.pending):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OSError(_why_not(folder), os.strerror(_why_not(folder)), str(folder))
    except OSError as error:
        raise Unavailable(
            f"the home {home.path} cannot be written: {os.strerror(error.errno or 0)}",
            "set KGOPS_HOME to a folder you own"
            if error.errno in (errno.EACCES, errno.EPERM)
            else "free or remount the disk, or set KGOPS_HOME to a folder you may write",
        ) from error


def _why_not(folder: Path) -> int:
    """Return the errno that explains why os.access returned False."""
    return errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES


def _require_ownership(home: Home) -> None:
    """Raise if another user owns the home: files that this user (root included) creates there are closed to the owner.

    Checks the owner of the database, since a folder mounted into a container may have any owner.
    """
    try:
        owner = home.database.stat().st_uid
    except FileNotFoundError:
        return
    if owner != os.geteuid():
        raise Unavailable(
            f"the home {home.path} belongs to user {_name_of(owner)}, and you are {_name_of(os.geteuid())}",
            f"run kgops as {_name_of(owner)}, or set KGOPS_HOME to a folder you own",
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
    # KGOPS_HOME may be a shared folder: closing /tmp to other users would break them.
    if not home.database.exists() and any(home.path.iterdir()):
        raise Unavailable(
            f"{home.path} has other files and is open to other users",
            "set KGOPS_HOME to a new folder; kgops makes it readable by you only",
        )
    home.path.chmod(0o700)
