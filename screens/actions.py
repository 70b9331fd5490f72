"""Everything a person can do: the one table that keys, footer, command palette and help are made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from textual.binding import Binding, BindingType

from storage.runs import Run

__all__ = ["ACTIONS", "Action", "bindings", "holding"]

Place = Literal["dashboard", "run", "new run", "influences", "profiles", "history", "compare", "benchmarks"]
Needs = Literal["nothing", "run", "unfinished run", "ended run", "resumable run"]

EVERYWHERE: frozenset[Place] = frozenset(get_args(Place))
DASHBOARD: frozenset[Place] = frozenset({"dashboard"})
RUN: frozenset[Place] = frozenset({"run"})
NEW_RUN: frozenset[Place] = frozenset({"new run"})
INFLUENCES: frozenset[Place] = frozenset({"influences"})
PROFILES: frozenset[Place] = frozenset({"profiles"})
HISTORY: frozenset[Place] = frozenset({"history"})
RUNS = DASHBOARD | RUN | HISTORY  # where what is done to a run can be seen
COMPARE: frozenset[Place] = frozenset({"compare"})
BENCHMARKS: frozenset[Place] = frozenset({"benchmarks"})


@dataclass(frozen=True, slots=True)
class Action:
    """`does` says who carries it out, the application or the screen; `sign` is what people call the key."""

    key: str
    sign: str
    name: str
    help: str
    does: str
    where: frozenset[Place] = EVERYWHERE
    needs: Needs = "nothing"
    in_footer: bool = True

    def holds(self, place: Place, run: Run | None) -> bool:
        """Whether it can be done here and now, to the run in question."""
        return place in self.where and _has_it(self.needs, run)


ACTIONS: tuple[Action, ...] = (
    Action(
        "enter",
        "⏎",
        "open",
        "Open the run under the cursor.",
        "app.open",
        DASHBOARD | HISTORY | COMPARE,
        "run",
    ),
    Action(
        "n", "n", "new run", "Choose what to run, and see its plan at once.", "app.new", DASHBOARD | HISTORY
    ),
    Action(
        "slash",
        "/",
        "search",
        "Only what has these words.",
        "screen.search",
        INFLUENCES | HISTORY | RUN | BENCHMARKS,
    ),
    Action("space", "spc", "mark", "Mark the run, or take its mark away.", "screen.mark", HISTORY, "run"),
    Action(
        "asterisk",
        "*",
        "mark all",
        "Mark all that are shown, or none.",
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
        "Sort by the column before.",
        "screen.sort_before",
        HISTORY | BENCHMARKS,
        in_footer=False,
    ),
    Action(
        "u",
        "u",
        "reverse",
        "Sort the other way round.",
        "screen.reverse",
        HISTORY | BENCHMARKS,
        in_footer=False,
    ),
    Action("z", "z", "sort by", "Sort by any column or metric.", "screen.sort_by", HISTORY, in_footer=False),
    Action(
        "equals_sign", "=", "compare", "Two to eight marked runs side by side.", "screen.compare", HISTORY
    ),
    Action("d", "d", "delete", "Delete the marked runs that ended, or this one.", "screen.delete", HISTORY),
    Action(
        "right", "→", "change", "The next value; the left arrow has the one before.", "screen.more", NEW_RUN
    ),
    Action("left", "left", "before", "The value before.", "screen.less", NEW_RUN, in_footer=False),
    Action(
        "e", "e", "edit", "Write the value; of a profile, edit a copy.", "screen.edit", NEW_RUN | PROFILES
    ),
    Action("backspace,delete", "del", "unset", "Leave it to profile and planner.", "screen.unset", NEW_RUN),
    Action("x", "x", "start", "Start it, unless it is predicted not to fit.", "screen.start", NEW_RUN),
    Action("X", "X", "force", "Start it whatever was predicted.", "screen.force", NEW_RUN, in_footer=False),
    Action("y", "y", "copy", "Copy the command that does the same.", "screen.copy", NEW_RUN | BENCHMARKS),
    Action("escape", "esc", "back", "Back to where you came from.", "app.back", EVERYWHERE - DASHBOARD),
    Action("o", "o", "side", "Proponents, opponents, or both.", "screen.side", INFLUENCES),
    Action(
        "F", "F", "metrics", "Every metric one by one, or benchmarks again.", "screen.metrics", BENCHMARKS
    ),
    Action("M", "M", "machines", "Other machines and versions, too.", "screen.machines", BENCHMARKS),
    Action(
        "v", "v", "relation", "Only the next relation; after the last, all.", "screen.relation", INFLUENCES
    ),
    Action("w", "w", "write", "Write what is shown to a file.", "screen.write", INFLUENCES | HISTORY),
    Action("l", "l", "log", "Give the log more room, or less.", "screen.log", RUN),
    Action("L", "L", "level", "Of the log only what sounds bad, the worst, or all.", "screen.level", RUN),
    Action(
        "s",
        "s",
        "stop",
        "Ask the run to stop; it can be resumed.",
        "screen.stop",
        RUNS,
        needs="unfinished run",
    ),
    Action(
        "r",
        "r",
        "resume",
        "Go on with a run that did not succeed.",
        "screen.resume",
        RUNS,
        needs="resumable run",
    ),
    Action("a", "a", "again", "Start the same job once more.", "screen.again", RUNS, needs="ended run"),
    Action("h", "h", "history", "All runs there ever were.", "app.history", DASHBOARD | RUN),
    Action(
        "b",
        "b",
        "benchmarks",
        "What was claimed, beside what was measured here.",
        "app.benchmarks",
        EVERYWHERE - BENCHMARKS,
    ),
    Action(
        "i",
        "i",
        "influences",
        "What the run traced; of another, what the newest did.",
        "app.influences",
        DASHBOARD | RUN,
    ),
    Action(
        "f", "f", "profiles", "Named sets of option values.", "app.profiles", DASHBOARD | RUN, in_footer=False
    ),
    Action("t", "t", "tag", "Add tags, or take them away.", "screen.tag", RUNS, needs="run"),
    Action("m", "m", "note", "Write a note on the run.", "screen.note", RUNS, needs="run"),
    Action("p", "p", "pause", "Look no more until you press it again.", "app.pause", in_footer=False),
    Action(
        "c", "c", "colours", "The next theme: dark, light, colour-blind-safe.", "app.colours", in_footer=False
    ),
    Action("ctrl+p", "^p", "commands", "All of this by name.", "app.command_palette", in_footer=False),
    Action("question_mark", "?", "help", "What can be done here.", "app.help"),
    Action("q,ctrl+q,ctrl+c", "q", "quit", "Leave; runs go on.", "app.quit"),
    Action(
        "ctrl+z", "^z", "suspend", "Back to the shell; `fg` returns.", "app.suspend_process", in_footer=False
    ),
)


def bindings() -> list[BindingType]:
    return [
        Binding(action.key, action.does, action.name, show=False, priority=action.key == "ctrl+p")
        for action in ACTIONS
    ]


def holding(place: Place, run: Run | None) -> Iterator[Action]:
    """What can be done at this place with this run, in the table's order."""
    return (action for action in ACTIONS if action.holds(place, run))


def _has_it(needs: Needs, run: Run | None) -> bool:
    if needs == "nothing" or run is None:
        return needs == "nothing"
    if needs == "unfinished run":
        return not run.ended
    if needs == "resumable run":
        return run.ended and run.state != "succeeded"
    return run.ended if needs == "ended run" else True
