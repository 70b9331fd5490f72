"""Plan of a draft: whether it fits, memory by part, expected time, its command and job file."""

from __future__ import annotations

import hashlib
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.cli.command_line import as_command
from kgops.gpus.facts import UnusableGpus
from kgops.jobs.files import write_durably
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.planning.filtering_preview import FilteringPreview
from kgops.planning.fit import Fit
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import Suggestion
from kgops.present import plan_sections
from kgops.present.draft_fields import DRAFT_OPTIONS
from kgops.present.drafts import is_what_if
from kgops.present.formats import fitted, width_of
from kgops.present.plan_words import suggested
from kgops.present.rows import BLANK, Piece, Row, joined, text_row, text_rows
from kgops.present.what_if import Answer
from kgops.settings import Home, make_home
from kgops.workloads.registry import workload_of
from screens.new_run_page import label_of


class Command(NamedTuple):
    """`file` does not exist before `write`."""

    text: str
    file: Path | None = None
    content: str = ""

    def write(self, home: Home) -> None:
        if self.file is not None:
            make_home(home)
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            write_durably(self.file, self.content.encode())


def command_of(answer: Answer, home: Home) -> Command | None:
    """The command that starts the draft; of a what-if, the one that plans it. None where there is no job."""
    if answer.requested is None:
        return None
    job = _planned(answer.requested, answer)
    there = ["--host", answer.draft.where] if answer.draft.where else []
    verb: list[str] = []
    if is_what_if(answer.draft):
        verb, there = ["suggest"], ["--gpu", str(answer.draft.gpu)]
    if workload_of(job).is_command and verb:
        return None  # nothing is planned of a person's own command
    if workload_of(job).is_command:
        return Command(shlex.join(_exec_words(job, answer, there)))
    words = as_command(job)
    if words is not None:
        return Command(shlex.join(["kgops", *verb, *words[1:], *there]))
    content = job.as_toml()
    # Named after its content: a file that an earlier command names is never changed.
    mark = hashlib.sha256(content.encode()).hexdigest()[:8]
    file = home.path / "jobs" / f"{job.workload}-{mark}.toml"
    return Command(shlex.join(["kgops", *(verb or ["run"]), str(file), *there]), file, content)


def _planned(job: Job, answer: Answer) -> Job:
    """With the profile and the changes of the planner."""
    planned, placed = answer.planned, answer.placed
    if planned is not None and placed is not None and not placed.mixed:
        job = replace(job, profile=planned.job.profile)
    changes = planned.best.changes if planned is not None and planned.best is not None else {}
    return replace(job, options={**job.options, **changes})


def _exec_words(job: Job, answer: Answer, there: list[str]) -> list[str]:
    gpu = ["--gpu", job.gpu.wanted] if job.gpu.wanted else []
    label = ["--label", job.label] if answer.draft.text("label").strip() else []
    where = ["--cwd", job.settings["cwd"]]
    return ["kgops", "exec", *where, *label, *gpu, *there, "--", *job.settings["command"]]


_MIB = 1 << 20
_WIDE = 90  # columns from which what is needed has a row of its own


def plan_rows(
    answer: Answer | None,
    command: Command | None,
    key: object,
    width: int,
    *,
    waits: str | None,
    filtering: FilteringPreview | None = None,
) -> list[Row]:
    """After a blank line what is suggested, the plan in five lines, and the command; `key` is the selected row."""
    if answer is None or waits is not None:
        return [BLANK, _plan(Piece(waits or "", "dim"), width=width)]
    if answer.trouble is not None:
        wrong = answer.trouble
        name = f"{label_of(answer.draft, wrong.field)}: " if wrong.field else ""
        hint = text_row(wrong.hint or "", width, "dim")
        return [BLANK, _plan(Piece(f"{name}{one_line(wrong.message)}", "bad"), width=width), hint]
    planned, placed = answer.planned, answer.placed
    assert planned is not None and placed is not None
    sentence = text_rows(suggested(planned, filtering) or "", width, "strong")
    note, time = _row_note(answer, key, width), _advice_or_time(answer, placed, filtering, width)
    if placed.unused is not None:
        rest = [one for one in (note, time) if one != BLANK]
        plan = [*_cpu_only(answer, placed, placed.unused, width), *sentence, *rest]
    elif planned.suggestion is None:
        waiting = text_row(placed.fit.words if placed.fit.state == "later" else "", width, "warn")
        plan = [*sentence, *_verdict(answer, placed, width), waiting, time, note, BLANK]
    else:
        tone = _tone_of_run(placed.fit)
        bar = _bar(planned.suggestion, tone, width)
        parts = _parts(planned.suggestion, tone, width)
        plan = [*sentence, *_verdict(answer, placed, width), bar, parts, time, note]
    return [BLANK, *plan, *_command(command, width)]


def in_panel(rows: Sequence[Row]) -> list[Row]:
    """The verdict is the title of the panel."""
    at = next(i for i, one in enumerate(rows) if one.pieces and one.pieces[0].tone == "head")
    head, verdict, *more = rows[at].pieces
    rest = [Row((Piece(more[0].text.removeprefix(" · ")), *more[1:]))] if more and more[0].text else []
    others = [*rows[:at], *rest, *rows[at + 1 :]]
    return [Row((head._replace(text="PLAN"), verdict)), *(one for one in others if one != BLANK)]


def plan_there(host: str, command: Command | None, width: int) -> list[Row]:
    """In the place of a plan: that host makes it when the run starts."""
    return [
        BLANK,
        _plan(Piece(f"{one_line(host)} plans it when it starts", "text"), width=width),
        text_row("Paths are paths there, and runs are runs there.", width, "dim"),
        BLANK,
        *_command(command, width),
    ]


def _plan(*pieces: Piece, width: int) -> Row:
    """Row headed PLAN, with all pieces cut to the width."""
    out, left = [Piece("PLAN  ", "head")], width - 6
    for piece in pieces:
        whole = one_line(piece.text)
        text = fitted(whole, left) if left > 0 else ""
        out.append(piece._replace(text=text))
        left = left - width_of(text) if text == whole else 0  # nothing after an ellipsis
    return Row(tuple(out))


def _cpu_only(answer: Answer, placed: Placement, unusable: UnusableGpus, width: int) -> list[Row]:
    """For a CPU beside GPUs that torch cannot use: why, and what to do, in place of memory by part."""
    head = plan_sections.headline(placed)
    words, tone = (head.text, head.tone) if answer.impossible is None else (answer.impossible, "bad")
    return [
        _plan(Piece(unusable.headline, "warn"), width=width),
        *text_rows(unusable.why, width),
        text_row(f"on the CPU: {words}", width, "text" if tone == "good" else tone),
    ]


def _verdict(answer: Answer, placed: Placement, width: int) -> list[Row]:
    """The verdict, and where; in two rows if it is long."""
    head = plan_sections.headline(placed)
    words = Piece(head.text, head.tone) if answer.impossible is None else Piece(answer.impossible, "bad")
    if width_of(words.text) > width - 6:
        first, *rest = textwrap.wrap(one_line(words.text), width - 6)
        return [_plan(words._replace(text=first), width=width), text_row(" ".join(rest), width, words.tone)]
    needed = plan_sections.needed_of(placed)
    there = Piece(f" on {placed.planned.target.title}", "dim")
    if width >= _WIDE and needed and width_of(words.text + needed + there.text) > width - 9:
        return [_plan(words, width=width), Row((Piece(needed), there))]
    return [_plan(words, Piece(f" · {needed}" if needed else ""), there, width=width)]


def _tone_of_run(fit: Fit) -> str:
    """Amber where almost nothing is left over or it has to wait, and red where it does not fit."""
    return "bad" if fit.state == "never" else "warn" if fit.is_tight or fit.state == "later" else "data"


def _bar(suggestion: Suggestion, tone: str, width: int) -> Row:
    """▓ what others have, ▇ the run, ░ its margin, │ end of the memory."""
    room = suggestion.target.room_mib
    taken = min(suggestion.target.taken_mib, room or 0.0)
    need = suggestion.best.need_mib
    whole = max(taken + need, room or 0.0)
    end = width if room is None else round(min(room / whole, 1.0) * (width - 1))
    cells = [("▓", "other-others")] * min(round(taken / whole * (width - 1)), width - 2)
    reached = round((taken + suggestion.best.estimate.total_mib) / whole * (width - 1))
    cells += [("▇", tone)] * max(reached - len(cells), 1)  # what is there is seen
    cells += [("░", f"{tone}-reserved")] * (round((taken + need) / whole * (width - 1)) - len(cells))
    if room is not None:
        cells += [(" ", "dim")] * (end - len(cells))
        cells.insert(end, ("│", "dim"))
    return Row(tuple(joined(cells)))


def _parts(suggestion: Suggestion, tone: str, width: int) -> Row:
    """What the colours of the bar mean, and as many parts of the run as fit, largest first."""
    taken, best = suggestion.target.taken_mib, suggestion.best
    shares = [
        (Piece("▓", "other-others"), Piece(f" others have {taken:,.0f}  ")),
        (Piece("▇", tone), Piece(f" this run {best.estimate.total_mib:,.0f}  ")),
        (Piece("░", f"{tone}-reserved"), Piece(f" margin {best.need_mib - best.estimate.total_mib:,.0f}  ")),
    ]
    legend = [piece for share in (shares if taken >= 1 else shares[1:]) for piece in share]
    words = [*plan_sections.part_texts(suggestion), f"in {one_line(best.estimate.phase)}"]
    left = width - sum(width_of(piece.text) for piece in legend)
    while words and width_of("  ".join(words)) > left:
        words.pop()
    return Row((*legend, Piece("  ".join(words), "dim")))


def _row_note(answer: Answer, key: object, width: int) -> Row:
    """Why a rule changed the selected option, else other changes by rules."""
    option = (answer.options or {}).get(str(key))
    corrected = (
        [one for one in answer.planned.choices if one.is_corrected] if answer.planned is not None else []
    )
    if option is not None and option.corrected:
        return text_row("; ".join(str(c) for c in corrected if c.option == key), width, "warn")
    others = [choice for choice in corrected if choice.option not in DRAFT_OPTIONS[answer.draft.workload]]
    return text_row(str(others[0]), width, "warn") if others else BLANK


def _advice_or_time(answer: Answer, placed: Placement, filtering: FilteringPreview | None, width: int) -> Row:
    """What would make it fit, else how the plan differs on other GPUs, else how long it takes."""
    planned = placed.planned
    suggestion, refused = planned.suggestion, answer.refusal is not None
    if answer.refusal is not None and (suggestion is None or suggestion.fits):  # the disk is too small
        return text_row(one_line(answer.refusal.message), width, "bad")
    if suggestion is not None and (advice := plan_sections.advice(placed)) is not None:
        return text_row(advice + (" · X starts it anyway" if refused else ""), width)
    if suggestion is not None and placed.differences:
        return text_row(placed.differences[0], width, "dim")
    facts = planned.target.facts
    if (problem := facts.cuda_problem if facts is not None else None) is not None:
        return text_row(f"{problem.reason}; {problem.hint}", width, "warn")
    if suggestion is None:
        return BLANK
    return text_row(f"time: {plan_sections.time_text(suggestion, filtering)}", width, "dim")


def _command(command: Command | None, width: int) -> list[Row]:
    """The command, wrapped."""
    if command is None:
        return [BLANK]
    note = " (y writes this job file)" if command.file is not None else ""
    first, *more = textwrap.wrap(
        one_line(command.text) + note, max(width - 2, 20), break_on_hyphens=False, break_long_words=True
    )
    head = Row((Piece("y ", "accent", "screen.copy"), *text_row(first, width - 2, "dim").pieces))
    return [head, *(text_row(f"  {line}", width, "dim") for line in more)]
