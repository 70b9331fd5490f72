"""Copying by OSC 52. A terminal that ignores it does not say so: nothing here claims that it was copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgops.jobs.text import one_line

if TYPE_CHECKING:
    from kgops.present.gpus import GpuUsage
    from screens.app import KgopsApp
    from storage.runs import Run


class Copyable(NamedTuple):
    """A text under the letter that copies it."""

    key: str
    name: str
    text: str


def of_run(run: Run, folder: str) -> list[Copyable]:
    """What people paste of a run."""
    found = [
        Copyable("i", "id", str(run.id)),
        Copyable("f", "folder", folder),
        Copyable("c", "command", f"kgops run --again {run.id}"),
    ]
    if run.metric is not None and run.metric_value is not None:
        found.append(Copyable("m", "metric", f"{run.metric} {run.metric_value!r}"))
    return found


def of_gpu(usage: GpuUsage) -> list[Copyable]:
    """`g` is what a run's --gpu takes; of a slice that is its UUID alone."""
    found = [] if usage.is_slice else [Copyable("g", "GPU", usage.label)]
    return found + [
        Copyable(key, name, text)
        for key, name, text in (("u", "UUID", usage.reading.uuid), ("n", "name", usage.reading.name))
        if text
    ]


def offer(console: KgopsApp, texts: Sequence[Copyable]) -> None:
    """Asks which text, by its letter."""

    def chosen(key: str | None) -> None:
        for one in texts:
            if one.key == key:
                copy(console, one.text)

    if texts:
        from screens.widgets.dialogs import CopyChoice

        console.push_screen(CopyChoice(texts), chosen)
    else:
        console.say("nothing to copy here", "warn")


def copy(console: KgopsApp, text: str) -> None:
    console.copy_to_clipboard(text)
    console.say(f"sent to the terminal: {one_line(text)}")
