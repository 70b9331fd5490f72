"""Files of text that a person names: jobs, profiles, configurations."""

from __future__ import annotations

import os
from pathlib import Path

from kgops.errors import BadJob, Usage
from kgops.jobs.files import NotAFile, read_regular

__all__ = ["read_named"]


def read_named(path: Path, what: str, largest: int) -> str:
    """The text in the file at `path`, which may be a link; refused by its name, unread where it is no file."""
    try:
        content = read_regular(path, at_most=largest + 1, follow=True)
    except NotAFile as error:
        raise Usage(
            f"cannot read the {what} {path}: {error.strerror}", f"write the {what} to a file, and name that"
        ) from error
    except OSError as error:
        raise Usage(f"cannot read the {what} {path}: {os.strerror(error.errno or 0)}") from error
    if len(content) > largest:
        size = f"{largest >> 20} MiB" if largest >> 20 else f"{largest >> 10} KiB"
        raise BadJob(str(path), [f"larger than {size}: this is no {what}"])
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadJob(str(path), [f"not UTF-8 at byte {error.start}"]) from error
