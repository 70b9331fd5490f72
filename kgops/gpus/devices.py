"""What the kernel shows of a GPU driver. Standard library alone: every supervisor imports it."""

from __future__ import annotations

import os


def has_driver() -> bool:
    """Whether a driver for NVIDIA GPUs is loaded."""
    return os.path.exists("/dev/nvidiactl") or is_wsl2()  # noqa: PTH110  pathlib takes long to import


def is_wsl2(root: str = "/") -> bool:
    """Whether this Linux runs in Windows, whose driver lists no processes and has no /dev/nvidiactl. `root` is the file
    system's."""
    if os.path.exists(f"{root}/dev/dxg"):  # noqa: PTH110  pathlib takes long to import
        return True
    try:
        with open(f"{root}/proc/version", encoding="utf-8", errors="replace") as version:  # noqa: PTH123  as above
            return "microsoft" in version.read().lower()
    except OSError:
        return False
