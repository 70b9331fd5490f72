"""Compare screen of runs of several hosts, whose records are fetched for it and not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from screens.compare import Compare, curves_of

if TYPE_CHECKING:
    from kgops.present.comparison import Comparison
    from screens.compare_page import Curves


class HostCompare(Compare):
    def __init__(self, names: Sequence[str]) -> None:
        """`names` as in lab2:17; the first run is the reference of the ratios."""
        super().__init__(())
        self._names = names

    @property
    def subject(self) -> None:
        """Nothing is opened: the runs have other numbers here."""
        return None

    @property
    def charts(self) -> list[str]:
        """None is zoomed: a zoomed chart reads this machine's record."""
        return []

    def _read(self) -> tuple[Comparison, list[Curves], list[tuple[str, ...]]]:
        from kgops.cli.compare_hosts import compared_over_hosts

        with compared_over_hosts(self._names, self.kgops.home) as (found, beside):
            return found, curves_of(beside.conn, found.runs), []  # their files lie there
