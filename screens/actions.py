"""Table of all key actions, from which key bindings, footer, command palette and help are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from textual.binding import Binding, BindingType

if TYPE_CHECKING:
    from storage.runs import Run

ScreenName = Literal[
    "dashboard",
    "gpu",
    "run",
    "chart",
    "new run",
    "influences",
    "profiles",
    "history",
    "compare",
    "benchmarks",
    "hosts",
    "host run",
    "predictions",
    "explanation",
]
Needs = Literal[
    "nothing", "row", "chart", "run", "unfinished run", "ended run", "resumable run", "model", "answers"
]

EVERYWHERE: frozenset[ScreenName] = frozenset(get_args(ScreenName))
DASHBOARD: frozenset[ScreenName] = frozenset({"dashboard"})
GPU: frozenset[ScreenName] = frozenset({"gpu"})
RUN: frozenset[ScreenName] = frozenset({"run"})
CHART: frozenset[ScreenName] = frozenset({"chart"})
NEW_RUN: frozenset[ScreenName] = frozenset({"new run"})
INFLUENCES: frozenset[ScreenName] = frozenset({"influences"})
PROFILES: frozenset[ScreenName] = frozenset({"profiles"})
HISTORY: frozenset[ScreenName] = frozenset({"history"})
RUNS = DASHBOARD | RUN | HISTORY  # screens that show the effect of run actions
COMPARE: frozenset[ScreenName] = frozenset({"compare"})
CHARTS = RUN | COMPARE  # screens with several charts
BENCHMARKS: frozenset[ScreenName] = frozenset({"benchmarks"})
HOSTS: frozenset[ScreenName] = frozenset({"hosts"})
HOST_RUN: frozenset[ScreenName] = frozenset({"host run"})
PREDICTIONS: frozenset[ScreenName] = frozenset({"predictions"})
EXPLANATION: frozenset[ScreenName] = frozenset({"explanation"})


@dataclass(frozen=True, slots=True)
class Action:
    """`does` is the Textual action, of the app or the screen; `sign` is the key as shown, empty if another shows it."""

    key: str
    sign: str
    name: str
    help: str
    does: str
    where: frozenset[ScreenName] = EVERYWHERE
    needs: Needs = "nothing"
    in_footer: bool = True

    def holds(self, screen: ScreenName, run: Run | None) -> bool:
        """Whether the action applies on this screen to this run."""
        return screen in self.where and _applies_to(self.needs, run)


ACTIONS: tuple[Action, ...] = (
    Action(
        "tab", "tab", "next page", "Next page of the run; a click opens any.", "screen.turn", RUN | HOST_RUN
    ),
    Action(
        "enter",
        "⏎",
        "open",
        "Open what is under the cursor, or the marked chart.",
        "app.open",
        DASHBOARD | GPU | RUN | HISTORY | COMPARE | HOSTS | PREDICTIONS | EXPLANATION,
        "row",
    ),
    Action(
        "0,1,2,3,4,5,6,7,8,9",
        "0-9",
        "GPU",
        "Open the GPU of that number.",
        "screen.gpu",
        DASHBOARD | GPU,
        in_footer=False,
    ),
    Action(
        "1,2,3,4,5,6,7,8",
        "1-8",
        "zoom",
        "Zoom the chart of that number to the whole screen.",
        "screen.zoom",
        CHARTS,
        needs="chart",
        in_footer=False,
    ),
    Action("right", "←→", "cursor", "Next point; the left arrow goes back.", "screen.next_point", CHART),
    Action("left", "", "cursor", "Point before.", "screen.point_before", CHART, in_footer=False),
    Action("l", "l", "log y", "Logarithmic or linear y axis.", "screen.log_y", CHART),
    Action(
        "s",
        "s",
        "smooth",
        "Smooth by 0.6, by 0.9 or not; the curve itself stays, faint.",
        "screen.smooth",
        CHART,
    ),
    Action(
        "x", "x", "epochs or time", "Over epochs or steps, or over time, where known.", "screen.x_axis", CHART
    ),
    Action("plus", "+", "add run", "Also draw the curve of another run.", "screen.add_run", CHART),
    Action("minus", "-", "remove", "Remove the run that is marked.", "screen.remove_run", CHART),
    Action("down", "↓", "run", "Mark the next run; ↑ goes back.", "screen.next_run", CHART, in_footer=False),
    Action("up", "", "run", "Mark the run before.", "screen.run_before", CHART, in_footer=False),
    Action(
        "V",
        "V",
        "verify",
        "Retrain without these triples, to check the explanations; asks first.",
        "screen.verify",
        EXPLANATION,
    ),
    Action("T", "T", "end", "End your process under the cursor (SIGTERM).", "screen.end", GPU),
    Action("K", "K", "kill", "Kill your process under the cursor (SIGKILL).", "screen.kill", GPU),
    Action(
        "n",
        "n",
        "new run",
        "Choose a job and see its plan; of a run, begin with its job.",
        "app.new",
        DASHBOARD | GPU | RUN | PROFILES | HISTORY | HOSTS,
    ),
    Action(
        "slash",
        "/",
        "search",
        "Filter the list, or search the log.",
        "screen.search",
        INFLUENCES | HISTORY | RUN | HOST_RUN | BENCHMARKS,
    ),
    Action(
        "full_stop",
        ".",
        "last filter",
        "Filter as the last time.",
        "screen.last_filter",
        HISTORY,
        in_footer=False,
    ),
    Action(
        "W",
        "W",
        "week",
        "Only runs of the last 7 days; again: all.",
        "screen.week",
        HISTORY,
        in_footer=False,
    ),
    Action(
        "F",
        "F",
        "save filter",
        "Save this filter under a name, for `:` and `kgops runs --saved`.",
        "screen.save_filter",
        HISTORY,
        in_footer=False,
    ),
    Action("space", "spc", "mark", "Mark or unmark the run.", "screen.mark", HISTORY, "run"),
    Action(
        "equals_sign",
        "=",
        "compare",
        "Compare two to eight marked runs, or a benchmark with the next other machine's.",
        "screen.compare",
        HISTORY | BENCHMARKS,
    ),
    Action(
        "asterisk",
        "*",
        "mark all",
        "Mark all shown runs, or none.",
        "screen.mark_all",
        HISTORY,
        in_footer=False,
    ),
    Action(
        "greater_than_sign", ">", "sort", "Sort by the next column.", "screen.sort_next", HISTORY | BENCHMARKS
    ),
    Action(
        "less_than_sign",
        "<",
        "sort",
        "Sort by the previous column.",
        "screen.sort_before",
        HISTORY | BENCHMARKS,
        in_footer=False,
    ),
    Action(
        "u", "u", "reverse", "Reverse the order.", "screen.reverse", HISTORY | BENCHMARKS, in_footer=False
    ),
    Action("z", "z", "sort by", "Sort by any column or metric.", "screen.sort_by", HISTORY, in_footer=False),
    Action("d", "d", "delete", "Delete the marked runs, or this one, once ended.", "screen.delete", HISTORY),
    Action(
        "right", "→", "change", "Next value; the left arrow goes back.", "screen.more", NEW_RUN | PREDICTIONS
    ),
    Action("left", "", "previous", "Previous value.", "screen.less", NEW_RUN | PREDICTIONS, in_footer=False),
    Action(
        "e",
        "e",
        "edit",
        "Type a value; of a profile, edit a copy.",
        "screen.edit",
        NEW_RUN | PROFILES | PREDICTIONS,
    ),
    Action(
        "backspace,delete", "del", "unset", "Leave the value to profile and planner.", "screen.unset", NEW_RUN
    ),
    Action(
        "x",
        "x",
        "start",
        "Start the run; asks first unless it fits now.",
        "screen.start",
        NEW_RUN,
    ),
    Action(
        "x",
        "x",
        "ask",
        "Ask the model: the answers of an earlier run, or of one that starts at once.",
        "screen.ask",
        PREDICTIONS,
    ),
    Action(
        "tab",
        "tab",
        "other list",
        "Move between the two lists of this screen; the cursor of the other is dim.",
        "screen.other_list",
        PREDICTIONS | EXPLANATION,
    ),
    Action(
        "X",
        "X",
        "force",
        "Start the run even if it is predicted not to fit.",
        "screen.force",
        NEW_RUN,
        in_footer=False,
    ),
    Action("x", "x", "start", "Start this benchmark here, asking first.", "screen.measure", BENCHMARKS),
    Action(
        "s", "s", "stop", "Stop the running benchmark; `x` continues it.", "screen.stop_measuring", BENCHMARKS
    ),
    Action("escape", "esc", "back", "Back to the previous screen.", "app.back", EVERYWHERE - DASHBOARD),
    Action("o", "o", "side", "Show proponents, opponents, or both.", "screen.side", INFLUENCES),
    Action(
        "v",
        "v",
        "relation",
        "Show the next relation only; after the last, all.",
        "screen.relation",
        INFLUENCES,
    ),
    Action("w", "w", "write", "Write the shown rows to a file.", "screen.write", HISTORY),
    Action("l", "l", "log", "The page of the log, and back.", "screen.log", RUN | HOST_RUN),
    Action(
        "L", "L", "level", "Log level: all, warnings and errors, errors only.", "screen.level", RUN | HOST_RUN
    ),
    Action(
        "s",
        "s",
        "stop",
        "Stop the run; it can be resumed.",
        "screen.stop",
        RUNS | HOSTS | HOST_RUN,
        needs="unfinished run",
    ),
    Action(
        "r",
        "r",
        "resume",
        "Resume a run that did not succeed.",
        "screen.resume",
        RUNS | HOSTS | HOST_RUN,
        needs="resumable run",
    ),
    Action(
        "a",
        "a",
        "again",
        "Start the job of this run again.",
        "screen.again",
        RUNS | HOSTS | HOST_RUN,
        needs="ended run",
    ),
    Action(
        "right",
        "←→",
        "chart",
        "Mark the next chart; the left arrow goes back.",
        "screen.next_chart",
        CHARTS,
        needs="chart",
    ),
    Action(
        "left",
        "",
        "chart",
        "Mark the chart before.",
        "screen.chart_before",
        CHARTS,
        needs="chart",
        in_footer=False,
    ),
    Action("h", "h", "history", "All runs, with filter and sorting.", "app.history", DASHBOARD | RUN),
    Action(
        "b",
        "b",
        "benchmarks",
        "Measurements, and which options pay.",
        "app.benchmarks",
        EVERYWHERE - BENCHMARKS,
    ),
    Action(
        "H",
        "H",
        "hosts",
        "GPUs and runs of the hosts that `kgops hosts` names.",
        "app.hosts",
        DASHBOARD | HISTORY,
        in_footer=False,
    ),
    Action("R", "R", "retry", "Try hosts that do not answer at once.", "screen.retry", HOSTS | HOST_RUN),
    Action(
        "i",
        "i",
        "influences",
        "This run's influences or explanations, or the newest; on the page of a model, trace it.",
        "app.influences",
        DASHBOARD | RUN,
    ),
    Action(
        "P",
        "P",
        "predictions",
        "Ask the model of this run: its ranked answers, and why.",
        "app.predictions",
        RUNS,
        "answers",
        in_footer=False,
    ),
    Action(
        "E",
        "E",
        "evaluate",
        "Rank the test triples by the model of this run, by relation and degree.",
        "screen.evaluate",
        RUN,
        "model",
        in_footer=False,
    ),
    Action(
        "f", "f", "profiles", "Named sets of option values.", "app.profiles", DASHBOARD | RUN, in_footer=False
    ),
    Action(
        "A",
        "A",
        "acknowledge",
        "Acknowledge the alert under the cursor; on other rows all, asking first.",
        "screen.acknowledge",
        DASHBOARD,
    ),
    Action("t", "t", "tag", "Add or remove tags.", "screen.tag", RUNS, needs="run"),
    Action("m", "m", "note", "Add a note to the run.", "screen.note", RUNS, needs="run"),
    Action(
        "y",
        "y",
        "copy",
        "Copy by the terminal: a command, or what a letter then names (id, folder, UUID, metric).",
        "screen.copy",
        RUNS | GPU | INFLUENCES | NEW_RUN | BENCHMARKS,
    ),
    Action("p", "p", "pause", "Pause or resume updates.", "app.pause", in_footer=False),
    Action(
        "c", "c", "colours", "Next theme: dark, light, colour-blind-safe.", "app.colours", in_footer=False
    ),
    Action(
        "colon,ctrl+p",
        ":",
        "jump",
        "Go to a run, GPU, tag or saved filter, or act, by name.",
        "app.command_palette",
    ),
    Action("question_mark", "?", "help", "Keys of this screen.", "app.help"),
    Action("q,ctrl+q,ctrl+c", "q", "quit", "Quit; runs go on.", "app.quit"),
    Action("ctrl+l", "^l", "redraw", "Draw the whole screen again.", "app.redraw", in_footer=False),
    Action(
        "ctrl+z",
        "^z",
        "suspend",
        "Suspend to the shell; `fg` returns.",
        "app.suspend_process",
        in_footer=False,
    ),
)


def bindings() -> list[BindingType]:
    return [
        Binding(key, _called(action.does, key), action.name, show=False, priority=key == "ctrl+p")
        for action in ACTIONS
        for key in action.key.split(",")
    ]


def _called(does: str, key: str) -> str:
    """A digit says which: `screen.gpu(1)`."""
    return f"{does}({key})" if key.isdigit() else does


def holding(screen: ScreenName, run: Run | None) -> Iterator[Action]:
    """Actions that apply on this screen to this run, in table order."""
    return (action for action in ACTIONS if action.holds(screen, run))


_OF_NO_RUN = ("nothing", "row", "chart")  # a screen knows its rows and charts: see `RunScreenBase.has`


def _applies_to(needs: Needs, run: Run | None) -> bool:
    if needs in _OF_NO_RUN or run is None:
        return needs in _OF_NO_RUN
    if needs == "unfinished run":
        return not run.ended
    if needs in ("model", "answers"):
        from kgops.workloads.results import is_answered, leaves

        if needs == "answers" and is_answered(run.workload):
            return True
        trained = leaves(run.workload, "model") and run.ended
        return trained and (run.state == "succeeded" or run.metric is not None)
    if needs == "resumable run":
        return run.ended and run.state != "succeeded"
    return run.ended if needs == "ended run" else True
