"""`kgops doctor`: checks of Python, packages, torch, NVML, disk, home and database. Does not import torch."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from kgops.gpus.facts import torch_build
from kgops.gpus.sampler import read_once
from kgops.planning.targets import gpus_here
from kgops.settings import Home
from kgops.supervisor import locks, run_folder
from kgops.supervisor.attempt_end import ending_of, write_end
from kgops.supervisor.end_hook import hooks_of
from kgops.supervisor.pending import is_being_launched
from kgops.supervisor.run_folder import RunFolder, is_own, number_of
from storage import run_list, runs
from storage.database import integrity_problems, library_version, open_reader
from storage.errors import DatabaseMissing, StorageError
from storage.row_check import unreadable_rows
from storage.runs import Run

Level = Literal["ok", "note", "trouble"]
_DRIVER_WITHIN_S = 5.0
_OLDEST_TORCH = (2, 10)  # below it, weights_only can be got around
_LOW_SPACE_GIB = 2.0
_NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "9p",
    "afs",
}


class Finding(NamedTuple):
    level: Level
    found: str
    advice: str | None = None


def examine(home: Home) -> dict[str, Finding]:
    """What every check found, by its subject, in the order in which they are shown."""
    checks: dict[str, Callable[[Home], Finding]] = {
        "Python": lambda _: _python(),
        "SQLite": lambda _: _sqlite(),
        "torch": lambda _: _torch(),
        "NVML": lambda _: _nvml(),
        "home": _home,
        "file system": _file_system,
        "disk": _space,
        "hooks": _hooks,
        "database": _database,
        "runs": _runs,
        "logout": lambda _: _logout(),
    }
    return {subject: _checked(check, home) for subject, check in checks.items()}


def _checked(check: Callable[[Home], Finding], home: Home) -> Finding:
    """One check, with an OSError reported as its finding, so that the other checks still run."""
    try:
        return check(home)
    except OSError as error:
        return Finding(
            "trouble", f"{error.filename}: {error.strerror}", "set KGOPS_HOME to a folder of yours"
        )


def _python() -> Finding:
    version = f"{platform.python_version()} at {sys.executable}"
    if not hasattr(os, "pidfd_open"):
        return Finding("trouble", version, "built without pidfd: use a Python made for Linux 5.3 or newer")
    return Finding("ok", version)


def _sqlite() -> Finding:
    version, will_do = library_version()
    if not will_do:
        return Finding("trouble", version, "kgops needs SQLite 3.37 or newer: use a Python built with it")
    return Finding("ok", version)


def _torch() -> Finding:
    """torch's version and CUDA build, read from its files: importing torch takes a second and 200 MB."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Finding("trouble", "not installed", "pip install 'torch>=2.10'")
    build = torch_build()
    cuda = build.cuda if build is not None else None
    found = f"{version}, {f'built for CUDA {cuda[0]}.{cuda[1]}' if cuda else 'CPU build'}"
    if build is not None and build.version < _OLDEST_TORCH:
        return Finding("trouble", found, "kgops needs torch 2.10 or newer: pip install -U torch")
    gpus = gpus_here() if read_once(_DRIVER_WITHIN_S) is not None else []
    problem = next((gpu.facts.cuda_problem for gpu in gpus if gpu.facts is not None), None)
    if problem is not None:
        return Finding("trouble", found, f"no GPU is used: {problem.reason}; {problem.hint}")
    return Finding("ok", found)


def _nvml() -> Finding:
    found = read_once(_DRIVER_WITHIN_S)
    if found is None:
        said = f"the NVIDIA driver does not answer within {_DRIVER_WITHIN_S:.0f} s"
        return Finding("trouble", said, "see whether `nvidia-smi` answers; `sudo dmesg` may say more")
    if found.problem is not None:
        level: Level = "note" if found.problem.kind == "no-library" else "trouble"
        return Finding(level, found.problem.message, found.problem.hint)
    names = ", ".join(gpu.name or "unnamed" for gpu in found.gpus) or "no GPUs"
    lost = [gpu.problem for gpu in found.gpus if gpu.problem is not None]
    if lost:
        return Finding("trouble", lost[0].message, lost[0].hint)
    newest = found.cuda_version
    cuda = f", CUDA up to {newest[0]}.{newest[1]}" if newest is not None else ""
    return Finding("ok", f"driver {found.driver_version or 'n/a'}{cuda}: {names}")


def _home(home: Home) -> Finding:
    try:
        status = home.path.stat()
    except FileNotFoundError:
        return Finding("ok", f"{home.path} (created with the first run)")
    except OSError as error:
        return Finding(
            "trouble", f"{home.path}: {os.strerror(error.errno or 0)}", "set KGOPS_HOME to another folder"
        )
    if status.st_uid != os.getuid():
        return Finding(
            "trouble", f"{home.path} belongs to another user", "set KGOPS_HOME to a folder of yours"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        return Finding(
            "trouble", f"{home.path} is readable by other users (mode {mode:04o})", f"chmod 700 {home.path}"
        )
    trouble = _write_error(home.path)
    if trouble is not None:
        return Finding(
            "trouble",
            f"{home.path} cannot be written: {trouble}",
            "free or remount the disk, or set KGOPS_HOME to another folder",
        )
    return Finding("ok", f"{home.path}, private and writable")


def _write_error(folder: Path) -> str | None:
    """The error of a test write: a disk with errors may look writable."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None


_REBUILD = "`kgops doctor --rebuild` adds them to the database"


def _runs(home: Home) -> Finding:
    """Finds run folders that the database lacks, and runs that lack theirs; removes leftover temporary files, and
    repairs the folders of ended runs."""
    try:
        conn = open_reader(home.database)
    except StorageError:  # the database's own check says why
        conn = None
    if not home.runs.is_dir():
        return Finding("ok", "none yet")
    if conn is None:
        there = sum(number_of(path.name) is not None for path in home.runs.iterdir())
        if there and not home.database.exists():
            return Finding("trouble", f"{there:,} run folders, and no database", _REBUILD)
        return Finding("ok", "none yet")
    # Folders first: a launch makes its folder before its row. Its marker goes last.
    folders = [
        path.name
        for path in home.runs.iterdir()
        if number_of(path.name) is not None and not is_being_launched(home, path.name)
    ]
    try:
        known = {run.folder: run for run in run_list.page(conn, limit=1 << 40)}
    except StorageError:
        return Finding("note", "n/a: the database cannot be read")
    finally:
        conn.close()
    _remove_temporary_files(home)
    count = sum(_repair_end(RunFolder(home.runs / name), known[name]) for name in folders if name in known)
    repaired = f"; repaired {count} folders of ended runs" if count else ""
    missing = sorted(set(folders) - set(known))
    if missing:
        text = f"{len(missing)} run folders are missing from the database, such as {missing[0]}{repaired}"
        return Finding("trouble", text, _REBUILD)
    without = known.keys() - {"", *folders}
    gone = sorted(known[name].id for name in without if known[name].ended and not (home.runs / name).is_dir())
    if gone:
        others = f", and of {len(gone) - 1:,} others" if len(gone) > 1 else ""
        text = f"the folder of run {gone[0]} is gone{others}{repaired}"
        return Finding("note", text, f"put it back, or `kgops delete {gone[0]}`")
    return Finding("note" if count else "ok", f"every run folder is in the database{repaired}")


def _remove_temporary_files(home: Home) -> None:
    """Removes temporary files of killed commands, once they are an hour old."""
    for half in (*home.path.glob(".*.tmp"), *home.path.glob(".doctor-*")):
        try:
            if time.time() - half.lstat().st_mtime > 3600:
                half.unlink()
        except OSError:
            continue  # gone already, or removed by the next check


def _repair_end(folder: RunFolder, run: Run) -> bool:
    """Writes the end of a run that the disk refused when it ended, and removes its saved environment."""
    if not run.ended or folder.record.exists():
        return False
    is_whole = not folder.private.exists() and run_folder.read_ending(folder.outcome) is not None
    if is_whole or not is_own(folder) or (lock := locks.take(folder.supervisor_lock)) is None:
        return False
    try:
        write_end(folder, ending_of(run, folder.last_attempt()))
        return True
    except OSError:
        return False  # the check of the home reports what is wrong with the disk
    finally:
        os.close(lock)


def _file_system(home: Home) -> Finding:
    kind = _file_system_of(home.path)
    if kind in _NETWORK_FILE_SYSTEMS:
        return Finding(
            "trouble",
            f"{kind}: file locks and SQLite's write-ahead log are not reliable on a network file system",
            "set KGOPS_HOME to a folder on a local disk of this machine",
        )
    return Finding("ok", kind or "n/a")


def _file_system_of(path: Path) -> str | None:
    """The file system type of the path, or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    path = path.resolve()
    best: tuple[int, str] | None = None
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    for line in mounts:
        _, point, kind, *_ = line.split(" ")
        mount = Path(point.encode().decode("unicode_escape"))
        # Later mounts cover earlier ones at the same mount point.
        if path.is_relative_to(mount) and (best is None or len(mount.parts) >= best[0]):
            best = (len(mount.parts), kind)
    return best[1] if best else None


def _space(home: Home) -> Finding:
    path = home.path
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free / (1 << 30)
    if free < _LOW_SPACE_GIB:
        return Finding(
            "trouble", f"{free:.2f} GiB free", "free some space, or delete old runs with `kgops delete`"
        )
    return Finding("ok", f"{free:,.0f} GiB free")


def _hooks(home: Home) -> Finding:
    commands, troubles = hooks_of(home)
    if troubles:
        return Finding("trouble", "; ".join(troubles), f"edit {home.hooks}")
    for name, command in commands.items():
        if shutil.which(command[0]) is None:
            text = f"{name} cannot start: there is no program {command[0]!r:.100}"
            return Finding("trouble", text, f"edit {home.hooks}, or make it executable")
    return Finding("ok", ", ".join(commands) or "none")


def _database(home: Home) -> Finding:
    try:
        conn = open_reader(home.database)
    except DatabaseMissing:
        return Finding("ok", "none yet (created with the first run)")
    except StorageError as error:
        return Finding("trouble", error.message, error.hint)
    try:
        problems = integrity_problems(conn)
        rows = unreadable_rows(conn, thorough=bool(problems))
        count = runs.count(conn)
    except StorageError as error:
        return Finding("trouble", error.message, error.hint)
    finally:
        conn.close()
    if rows:
        others = f", and {len(rows) - 1} others" if len(rows) > 1 else ""
        return Finding("trouble", f"damaged: {rows[0]}{others}", _TAKE_AGAIN)
    if problems:
        is_index = all("index" in problem for problem in problems)
        advice = "`kgops doctor --rebuild` writes its indexes again" if is_index else _MOVE_AWAY
        return Finding("trouble", problems[0], advice)
    return Finding("ok", f"intact, {count:,} runs, {home.database.stat().st_size / (1 << 20):,.1f} MiB")


_TAKE_AGAIN = "`kgops doctor --rebuild` takes these rows again from the runs' folders"
_MOVE_AWAY = "move it away and run `kgops doctor --rebuild`"


def _logout() -> Finding:
    """Whether systemd kills a user's processes at logout (KillUserProcesses), which no process can escape."""
    try:
        done = subprocess.run(
            [
                *("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"),
                *("org.freedesktop.login1.Manager", "KillUserProcesses"),
            ],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Finding("ok", "no systemd login manager: runs continue after logout")
    if done.returncode != 0 or "true" not in done.stdout:
        return Finding("ok", "runs continue after logout")
    user = os.environ.get("USER") or str(os.getuid())
    if Path("/var/lib/systemd/linger", user).exists():
        return Finding("ok", "lingering is enabled: runs continue after logout")
    return Finding(
        "trouble",
        "KillUserProcesses=yes: systemd kills your runs at logout",
        f"loginctl enable-linger {user}",
    )
