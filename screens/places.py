"""Places of the command palette to jump to: runs by number or label, tags, saved filters, GPUs and models of GPUs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.markup import escape

from kgops.errors import KgopsError
from kgops.gpus.known import short_names
from kgops.jobs.text import one_line
from kgops.present import listing
from kgops.present.wording import sign_of, state_of
from screens.history_query import HistoryReader, Query
from storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kgops.settings import Home
    from screens.app import KgopsApp
    from storage.runs import Run

_NEWEST = 500  # of the runs; older ones are found by their number and in the history
_FIRST, _LAST = 1000.0, 0.1
_BELOW = 0.99  # an action that matches as well stands above a place


class _Place(NamedTuple):
    """Names and filters are a person's words: shown as they are, not as markup."""

    name: str
    help: str
    go: Callable[[], object]


class Places(Provider):
    """Reads the record once, when the palette opens: matches then follow each key at once, and Enter never takes a
    match of what was typed before. What cannot be read is not offered; the screen below says why."""

    async def startup(self) -> None:
        self._console = cast("KgopsApp", self.app)
        home = self._console.home
        runs, tags = await asyncio.to_thread(_of_record, self._console, HistoryReader(home))
        self._filters = await asyncio.to_thread(_saved, self._console, home)
        gpus = [
            _Place(f"GPU {index} {name}", "its processes and history", partial(self._console.open_gpu, index))
            for index, name in self._console.gpus()
        ]
        plans = [
            _Place(f"plan for {name}", "does a new run fit it?", partial(self._console.open_new_run, name))
            for name in short_names()
        ]
        self._runs = runs
        self._places = [*gpus, *plans, *self._filters, *tags, *runs.values()]

    async def discover(self) -> Hits:
        for place in self._filters:
            yield DiscoveryHit(Content(place.name), place.go, text=place.name, help=escape(place.help))

    async def search(self, query: str) -> Hits:
        words = query.strip()
        named = self._runs.get(int(words)) if words.isdecimal() else None
        if named is not None:
            yield _hit(_FIRST, named)
        matcher = self.matcher(words)
        for place in self._places:
            score = matcher.match(place.name)
            if score > 0 and place is not named:
                yield _hit(score * _BELOW, place)
        text = f"run:{words}" if words.isdecimal() else words
        go = partial(self._console.open_history, text)
        yield _hit(_LAST, _Place(f"history {text}", "runs that this filter finds", go))


def _hit(score: float, place: _Place) -> Hit:
    return Hit(score, Content(place.name), place.go, text=place.name, help=escape(place.help))


def _of_record(console: KgopsApp, reader: HistoryReader) -> tuple[dict[int, _Place], list[_Place]]:
    try:
        page = reader.look(Query("", size=_NEWEST))
        return dict(_runs(console, page.runs)), [
            _Place(f"tag {tag}", "runs with this tag", partial(console.open_history, f'tag:"{tag}"'))
            for tag in reader.tags()
        ]
    except (KgopsError, StorageError):
        return {}, []
    finally:
        reader.close()


def _runs(console: KgopsApp, runs: Mapping[int, Run]) -> Iterator[tuple[int, _Place]]:
    for number, run in runs.items():
        state = f"{sign_of(run).text} {state_of(run)}"
        yield (
            number,
            _Place(
                f"run {number} {one_line(run.label, 60)}",
                f"{run.workload}, {state}",
                partial(console.open_run, run),
            ),
        )


def _saved(console: KgopsApp, home: Home) -> list[_Place]:
    try:
        filters = listing.read(home)
    except KgopsError:
        return []
    return [
        _Place(f"filter {name}", text, partial(console.open_history, text)) for name, text in filters.items()
    ]
