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
    """`does` is Textual's name of it; `sign` is what people call the key."""

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
        "enter", "⏎", "open", "Open the run under the cursor.", "open", DASHBOARD | HISTORY | COMPARE, "run"
    ),
    Action("n", "n", "new run", "Choose what to run, and see its plan at once.", "new", DASHBOARD | HISTORY),
    Action(
        "slash",
        "/",
        "search",
        "Only what has these words.",
        "search",
        INFLUENCES | HISTORY | RUN | BENCHMARKS,
    ),
    Action("space", "spc", "mark", "Mark the run, or take its mark away.", "mark", HISTORY, "run"),
    Action(
        "asterisk", "*", "mark all", "Mark all that are shown, or none.", "mark_all", HISTORY, in_footer=False
    ),
    Action("greater_than_sign", ">", "sort", "Sort by the next column.", "sort_next", HISTORY | BENCHMARKS),
    Action(
        "less_than_sign",
        "<",
        "sort",
        "Sort by the column before.",
        "sort_before",
        HISTORY | BENCHMARKS,
        in_footer=False,
    ),
    Action(
        "u", "u", "reverse", "Sort the other way round.", "reverse", HISTORY | BENCHMARKS, in_footer=False
    ),
    Action("z", "z", "sort by", "Sort by any column or figure.", "sort_by", HISTORY, in_footer=False),
    Action("equals_sign", "=", "compare", "Two to eight marked runs side by side.", "compare", HISTORY),
    Action("d", "d", "delete", "Delete the marked runs that ended, or this one.", "delete", HISTORY),
    Action("right", "→", "change", "The next value; the left arrow has the one before.", "more", NEW_RUN),
    Action("left", "left", "before", "The value before.", "less", NEW_RUN, in_footer=False),
    Action("e", "e", "edit", "Write the value; of a profile, edit a copy.", "edit", NEW_RUN | PROFILES),
    Action("backspace,delete", "del", "unset", "Leave it to profile and planner.", "unset", NEW_RUN),
    Action("x", "x", "start", "Start it, unless it is predicted not to fit.", "start", NEW_RUN),
    Action("X", "X", "force", "Start it whatever was predicted.", "force", NEW_RUN, in_footer=False),
    Action("y", "y", "copy", "Copy the command that does the same.", "copy", NEW_RUN | BENCHMARKS),
    Action("escape", "esc", "back", "Back to where you came from.", "back", EVERYWHERE - DASHBOARD),
    Action("o", "o", "side", "Proponents, opponents, or both.", "side", INFLUENCES),
    Action("F", "F", "figures", "Every figure one by one, or benchmarks again.", "figures", BENCHMARKS),
    Action("M", "M", "machines", "Other machines and versions, too.", "machines", BENCHMARKS),
    Action("v", "v", "relation", "Only the next relation; after the last, all.", "relation", INFLUENCES),
    Action("w", "w", "write", "Write what is shown to a file.", "write", INFLUENCES | HISTORY),
    Action("l", "l", "log", "Give the log more room, or less.", "log", RUN),
    Action("L", "L", "level", "Of the log only what sounds bad, only the worst, or all.", "level", RUN),
    Action("s", "s", "stop", "Ask the run to stop; it can be resumed.", "stop", RUNS, needs="unfinished run"),
    Action(
        "r", "r", "resume", "Go on with a run that did not succeed.", "resume", RUNS, needs="resumable run"
    ),
    Action("a", "a", "again", "Start the same job once more.", "again", RUNS, needs="ended run"),
    Action("h", "h", "history", "All runs there ever were.", "history", DASHBOARD | RUN),
    Action(
        "b",
        "b",
        "benchmarks",
        "What was claimed, beside what was measured here.",
        "benchmarks",
        EVERYWHERE - BENCHMARKS,
    ),
    Action(
        "i",
        "i",
        "influences",
        "What the run traced; of another run, what the newest did.",
        "influences",
        DASHBOARD | RUN,
    ),
    Action("f", "f", "profiles", "Named sets of lever values.", "profiles", DASHBOARD | RUN, in_footer=False),
    Action("t", "t", "tag", "Add tags, or take them away.", "tag", RUNS, needs="run"),
    Action("m", "m", "note", "Write a note on the run.", "note", RUNS, needs="run"),
    Action("p", "p", "pause", "Look no more until you press it again.", "pause", in_footer=False),
    Action(
        "c", "c", "colours", "The next theme: dark, light, colour-blind-safe.", "colours", in_footer=False
    ),
    Action("ctrl+p", "^p", "commands", "All of this by name.", "command_palette", in_footer=False),
    Action("question_mark", "?", "help", "What can be done here.", "help"),
    Action("q,ctrl+q,ctrl+c", "q", "quit", "Leave; runs go on.", "quit"),
    Action("ctrl+z", "^z", "suspend", "Back to the shell; `fg` returns.", "suspend_process", in_footer=False),
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
