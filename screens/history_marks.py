"""Marked runs of the history: tag, delete, export or compare them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kgops.errors import KgopsError
from screens.background import begin
from storage.errors import StorageError

if TYPE_CHECKING:
    from kgops.present.listing import Deleted
    from screens.app import KgopsApp

_AT_ONCE = 50  # runs per transaction: other changes may run between, and progress is shown


class Marks:
    """Numbers of the marked runs, in the order of marking. Work goes on when the screen is closed."""

    def __init__(self, app: KgopsApp) -> None:
        self._app = app
        self._numbers: dict[int, None] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def toggle(self, number: int) -> None:
        """Marks the run or removes its mark."""
        if number in self._numbers:
            del self._numbers[number]
        else:
            self._numbers[number] = None

    def toggle_all(self, numbers: Sequence[int]) -> None:
        """Marks all of them; if all are marked already, removes their marks."""
        if all(number in self._numbers for number in numbers):
            self._forget(numbers)
        else:
            self._numbers |= dict.fromkeys(numbers)

    def keep_existing(self, existing: Collection[int]) -> None:
        """Forgets runs that were deleted by others."""
        known = frozenset(existing if self else ())
        self._forget([number for number in self if number not in known])

    # --- actions ---

    def tag(self) -> None:
        """Asks for tags to add or remove."""
        from screens import run_calls

        marked = list(self)

        async def tagged(words: str) -> None:
            results = await self._app.carry_out(lambda session: run_calls.tag_all(session, marked, words))
            if results is not None:
                self._app.say(results)

        many = f"the {_runs(len(marked), 'marked ')}: word adds a tag, -word removes it"
        self._app.prompt(f"tags of {many}", lambda words: begin(self._app, partial(tagged, words)))

    async def delete(self, under_cursor: int | None, shown: Sequence[int]) -> bool:
        """Deletes the ended runs after a confirmation, which counts those that the filter hides. False: nothing was
        deleted."""
        from screens.history_query import ended_of
        from screens.widgets.dialogs import Confirmation

        chosen = list(self) or ([under_cursor] if under_cursor is not None else [])
        try:
            ended, unfinished = await asyncio.to_thread(ended_of, self._app.home, chosen)
        except (KgopsError, StorageError) as error:
            self._app.say(error.message, "bad")
            return False
        if not ended:
            why = "nothing to delete: stop unfinished runs first" if unfinished else "nothing to delete"
            self._app.say(why, "warn")
            return False
        hidden = len(set(ended).difference(shown))
        if len(ended) == 1:
            named = f"run {ended[0]}{', not shown here,' if hidden else ''} and its folder"
        else:
            unseen = f", {hidden:,} of them not shown here," if hidden else ""
            named = f"{len(ended):,} runs{unseen} and their folders"
        stay = f" ({unfinished:,} unfinished {'is' if unfinished == 1 else 'are'} kept)" if unfinished else ""
        sure = await self._app.push_screen_wait(Confirmation(f"delete {named}{stay}? This cannot be undone"))
        if sure:
            await self._delete_in_blocks(ended)
        return bool(sure)

    async def _delete_in_blocks(self, numbers: Sequence[int]) -> None:
        from screens import run_calls

        results: list[Deleted] = []
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            deleted = await self._app.carry_out(partial(run_calls.delete, numbers=some))
            if deleted is None:
                return  # carry_out has shown the error
            results += deleted
            self._forget([one.run for one in deleted if one.done])
            self._app.say(f"deleting: {len(results):,} of {len(numbers):,}")
        left = [one for one in results if not one.done]
        why = f"; run {left[0].run} was not: {left[0].why}" if left else ""
        linked = next((one for one in results if one.done and one.why), None)
        why += f"; of run {linked.run} {linked.why}" if linked is not None else ""
        self._app.say(f"{_runs(len(results) - len(left))} deleted{why}", "warn" if left else "strong")

    def write(self, shown: Sequence[int], metric: str | None) -> None:
        """Exports the marked runs, or else all shown runs, to a file."""
        numbers = list(self) or shown
        if not numbers:
            self._app.say("no runs to write", "warn")
            return

        def named(name: str) -> None:
            metrics = (metric,) if metric is not None else ()
            begin(self._app, partial(self._write_file, name, numbers, metrics))

        many = _runs(len(numbers), "marked " if self._numbers else "shown ")
        self._app.prompt(f"write the {many} to which .csv or .json file, such as runs.csv", named)

    async def _write_file(self, name: str, numbers: Sequence[int], metrics: Sequence[str]) -> None:
        from screens.history_query import write

        try:
            path, written = await asyncio.to_thread(write, self._app.home, name, numbers, metrics)
        except (KgopsError, StorageError) as error:
            self._app.say(error.message, "bad")
            return
        self._app.say(f"{_runs(written)} written to {path}")

    def compare(self) -> None:
        from kgops.present.comparison import MOST
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
