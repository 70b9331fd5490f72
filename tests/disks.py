"""A small file system of its own for a test: filled, emptied, made read-only."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driving import Console, end_all_of


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 16, 4096, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    def use_up_names(self) -> None:
        """No file can be made any more, whatever room there is."""
        try:
            for n in range(1 << 20):
                (self.path / f"name-{n}").touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC

    def free(self) -> None:
        self._ballast.unlink()

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)


@contextmanager
def small_disk(path: Path, options: str = "size=3m") -> Iterator[Disk]:
    """A tmpfs at `path`; the test is skipped where this person may not mount one."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "kgops-test", str(path)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        end_all_of(path / "kgops")
        if subprocess.run(["umount", str(path)], capture_output=True).returncode:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def console_on_disk(folder: Path, options: str = "size=3m") -> Iterator[tuple[Disk, Console]]:
    """A console whose home is on such a disk, and whose folder is not."""
    (folder / "work").mkdir()
    with small_disk(folder / "disk", options) as disk:
        console = Console(disk.path / "kgops", folder / "work")
        yield disk, console
        console.close()
