"""Marked runs, and what is done to all of them: tagged, deleted, written to a file, compared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kgops.errors import KgopsError
from screens.background import begin
from storage.errors import StorageError

if TYPE_CHECKING:
    from kgops.views.listing import Deleted
    from screens.app import KgopsApp

__all__ = ["Marks"]

_AT_ONCE = 50  # are deleted before another change has its turn, and before it is said how far it is


class Marks:
    """The numbers of marked runs, in the order in which they were. What is begun goes on when the screen is left."""

    def __init__(self, app: KgopsApp) -> None:
        self._app = app
        self._numbers: dict[int, None] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def turn(self, number: int) -> None:
        """Marks it, or takes its mark away."""
        if number in self._numbers:
            del self._numbers[number]
        else:
            self._numbers[number] = None

    def turn_all(self, numbers: Sequence[int]) -> None:
        """Marks all of them; where they are already, none of them is any more."""
        if all(number in self._numbers for number in numbers):
            self._forget(numbers)
        else:
            self._numbers |= dict.fromkeys(numbers)

    # --- what is done to them ---

    def tag(self) -> None:
        """Asks which tags they get."""
        from screens import run_calls
        from screens.question import Ask

        marked = list(self)

        async def tagged(words: str) -> None:
            done = await self._app.carry_out(lambda session: run_calls.tag_all(session, marked, words))
            if done is not None:
                self._app.say(done)

        def answered(words: str | None) -> None:
            if words:
                begin(self._app, partial(tagged, words))

        many = f"the {_runs(len(marked), 'marked ')}: words add them, -word takes one away"
        self._app.push_screen(Ask(f"tags for {many}"), answered)

    async def delete(self, or_else: int | None) -> bool:
        """Ended ones alone, and only once somebody said so: there is no way back. False: nothing was done."""
        from screens.history_query import ended_of
        from screens.widgets.confirm import Sure

        chosen = list(self) or ([or_else] if or_else is not None else [])
        try:
            ended, going = await asyncio.to_thread(ended_of, self._app.home, chosen)
        except (KgopsError, StorageError) as error:
            self._app.say(error.message, "bad")
            return False
        if not ended:
            why = "there is no ended run to delete: stop it first" if going else "there is no run to delete"
            self._app.say(why, "warn")
            return False
        named = f"run {ended[0]}" if len(ended) == 1 else f"{len(ended):,} runs with their folders"
        stay = f", and leave {going:,} that {'has' if going == 1 else 'have'} not ended" if going else ""
        sure = await self._app.push_screen_wait(Sure(f"delete {named}{stay}? It cannot be undone"))
        if sure:
            await self._deleted(ended)
        return bool(sure)

    async def _deleted(self, numbers: Sequence[int]) -> None:
        from screens import run_calls

        done: list[Deleted] = []
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            found = await self._app.carry_out(partial(run_calls.delete, numbers=some))
            if found is None:
                return  # why not is said
            done += found
            self._forget([one.run for one in found if one.done])
            self._app.say(f"deleting: {len(done):,} of {len(numbers):,}")
        left = [one for one in done if not one.done]
        why = f"; run {left[0].run} is not: {left[0].why}" if left else ""
        self._app.say(f"{_runs(len(done) - len(left))} deleted{why}", "warn" if left else "strong")

    def write(self, shown: Sequence[int], metric: str | None) -> None:
        """Asks for a file: for the marked runs, or else for all that are shown."""
        from screens.question import Ask

        numbers = list(self) or shown
        if not numbers:
            self._app.say("there is nothing to write", "warn")
            return

        def answered(name: str | None) -> None:
            if name:
                metrics = (metric,) if metric is not None else ()
                begin(self._app, partial(self._written, name, numbers, metrics))

        many = _runs(len(numbers), "marked " if self._numbers else "shown ")
        self._app.push_screen(
            Ask(f"write the {many} to which .csv or .json file, such as runs.csv"), answered
        )

    async def _written(self, name: str, numbers: Sequence[int], metrics: Sequence[str]) -> None:
        from screens.history_query import write

        try:
            path = await asyncio.to_thread(write, self._app.home, name, numbers, metrics)
        except (KgopsError, StorageError) as error:
            self._app.say(error.message, "bad")
            return
        self._app.say(f"{_runs(len(numbers))} written to {path}")

    def compare(self) -> None:
        from kgops.views.comparison import MOST
        from screens.compare import Compare

        if 2 <= len(self) <= MOST:
            self._app.push_screen(Compare(tuple(self)))
        else:
            self._app.say(f"mark 2 to {MOST} runs with the space bar to compare them", "warn")

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._numbers.pop(number, None)


def _runs(count: int, how: str = "") -> str:
    return f"{count:,} {how}run{'' if count == 1 else 's'}"
