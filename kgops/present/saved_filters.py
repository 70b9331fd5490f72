"""Filters of runs that a person saved under a name, in the home's `filters.toml`: name = "filter"."""

from __future__ import annotations

import re

from kgops.errors import Usage
from kgops.jobs import toml
from kgops.jobs.files import read_named, write_durably
from kgops.jobs.option_reading import nearest
from kgops.present.listing import strictly
from kgops.settings import Home, make_home

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_LARGEST, _MOST, _LONGEST = 1 << 16, 100, 1000


def read(home: Home) -> dict[str, str]:
    """Filters by name, in their order; Usage if the file is not valid."""
    path = home.path / "filters.toml"
    if not path.exists():
        return {}
    try:
        table = toml.loads(read_named(path, "list of filters", _LARGEST))
    except ValueError as error:
        raise Usage(f"{path} is not valid TOML: {error}", "correct it, or remove it") from error
    wrong = [name for name, text in table.items() if not isinstance(text, str) or not _NAME.fullmatch(name)]
    if wrong:
        raise Usage(f'{path}: {wrong[0]!r:.60} is not a line name = "filter"', "correct it, or remove it")
    return table


def text_of(home: Home, name: str) -> str:
    """The filter of that name; Usage if there is none."""
    saved = read(home)
    if name not in saved:
        raise Usage(
            f"no filter is saved as {name!r:.60}{nearest(name, saved)}", "key F of the history saves one"
        )
    return saved[name]


def save(home: Home, name: str, text: str) -> None:
    """Saves the filter, replaces the one of that name, or drops it if the text is empty."""
    if not _NAME.fullmatch(name):
        raise Usage(f"{name!r:.60} is not a name: letters, digits, dots and hyphens, at most 40")
    text = text.strip()
    if len(text) > _LONGEST:
        raise Usage(f"a filter of {len(text):,} characters is not saved", f"at most {_LONGEST:,} are")
    strictly(text)
    make_home(home)
    saved = {**read(home), name: text}
    if not text:
        del saved[name]
    if len(saved) > _MOST:
        raise Usage(f"{_MOST} filters are saved already", "drop one: key F with an empty filter, its name")
    write_durably(home.path / "filters.toml", toml.dumps(saved).encode())
