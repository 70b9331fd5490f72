"""Charts of a screen of which one is marked; Enter or its number zooms it to the whole screen."""

from __future__ import annotations

from screens.actions import Needs
from screens.run_screen import RunScreenBase
from screens.widgets.lines import Lines


class MarksCharts(RunScreenBase):
    chart: str | None = None  # the marked one

    @property
    def charts_in(self) -> str:
        """Selector of the lines that show the charts."""
        return "#body"

    @property
    def charts(self) -> list[str]:
        """Names of the shown charts, in order."""
        raise NotImplementedError

    @property
    def charted_runs(self) -> tuple[int, ...]:
        raise NotImplementedError

    def has(self, needed: Needs) -> bool:
        return bool(self.charts) if needed == "chart" else super().has(needed)

    def zoom(self, name: str) -> None:
        from screens.chart import ChartScreen

        self.app.push_screen(ChartScreen(name, self.charted_runs))

    def action_zoom(self, number: int | None = None) -> None:
        """Without a number, as from the palette, the marked chart, else the first."""
        charts = self.charts
        if number is None:
            number = charts.index(self.chart) + 1 if self.chart in charts else 1
        if number > len(charts):
            self.say(f"there is no chart {number}", "warn")
            return
        self.chart = charts[number - 1]
        self.draw()
        self.zoom(self.chart)

    def action_next_chart(self) -> None:
        self._mark(1)

    def action_chart_before(self) -> None:
        self._mark(-1)

    def _mark(self, by: int) -> None:
        charts = self.charts
        if not charts:
            return
        at = charts.index(self.chart) + by if self.chart in charts else 0 if by > 0 else -1
        self.chart = charts[at % len(charts)]
        self.draw()
        lines = self.query_one(self.charts_in, Lines)
        lines.show_row_with(f"screen.zoom({charts.index(self.chart) + 1})")
