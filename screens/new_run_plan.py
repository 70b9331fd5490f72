"""Plan of a draft: whether it fits, memory by part, expected time, and its command."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from kgops.gpus.facts import UnusableGpus
from kgops.jobs.text import one_line
from kgops.planning.filtering_preview import FilteringPreview
from kgops.planning.fit import Fit, State
from kgops.planning.memory_estimate import MemoryEstimate
from kgops.planning.memory_estimate import Row as Part
from kgops.planning.plan_job import describe_changes
from kgops.planning.plan_per_gpu import Placement
from kgops.planning.planner import Suggestion
from kgops.planning.targets import Target
from kgops.present.draft_fields import DRAFT_OPTIONS
from kgops.present.formats import amount, duration, fitted, width_of
from kgops.present.plan_words import shown_value, starts_now, verdict
from kgops.present.rows import BLANK, Piece, Row, row, text_row, text_rows
from kgops.present.suggestion import about, suggested
from kgops.present.what_if import Answer, Need, predicted_time
from kgops.workloads.registry import workload_of
from screens.new_run_command import Command
from screens.new_run_page import label_of

_MIB = 1 << 20
_ALTERNATING = ("accent", "dim")  # to separate adjacent parts


def plan_rows(
    answer: Answer | None,
    command: Command | None,
    needs: Sequence[Need],
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
    planned = answer.planned
    assert planned is not None and answer.placed is not None
    sentence = text_rows(suggested(planned, filtering) or "", width, "accent")
    if answer.placed.unused is not None:
        rest = [_row_note(answer, needs, key, width), *_time_rows(answer, filtering, width)]
        return [
            *_cpu_only(answer, answer.placed, answer.placed.unused, sentence, rest, width),
            *_command(command, width),
        ]
    if planned.suggestion is None:
        head = _plan(
            Piece(f"no memory estimate: {planned.unknown}", "dim"), _where(planned.target), width=width
        )
        fit = answer.placed.fit
        waiting = text_row(fit.words if fit.state == "later" else "", width, "warn")
        return [
            BLANK,
            *sentence,
            *(
                [head, waiting]
                if answer.impossible is None
                else _wrapped(Piece(answer.impossible, "bad"), width)
            ),
            text_row(_unused_gpus(answer.placed), width, "warn"),
            _row_note(answer, needs, key, width),
            BLANK,
            *_command(command, width),
        ]
    return [
        BLANK,
        *sentence,
        *_verdict(answer.placed, planned.suggestion, width),
        _parts(planned.suggestion, width),
        _row_note(answer, needs, key, width),
        _hint_or_time(answer, planned.suggestion, filtering, width),
        *_command(command, width),
    ]


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


def _cpu_only(
    answer: Answer,
    placed: Placement,
    unusable: UnusableGpus,
    sentence: Sequence[Row],
    rest: Sequence[Row],
    width: int,
) -> list[Row]:
    """The plan for a CPU beside GPUs that torch cannot use: why, and what to do, in place of memory by part."""
    planned, state = placed.planned, placed.fit.state
    fits = f"no memory estimate: {planned.unknown}" if planned.suggestion is None else verdict(placed)
    fits, tone = answer.impossible or fits, "text" if state == "now" else _TONES[state]
    return [
        BLANK,
        _plan(Piece(unusable.headline, "warn"), width=width),
        *text_rows(unusable.why, width),
        text_row(f"on the CPU: {fits}", width, tone),
        *sentence,
        *(row for row in rest if row != BLANK),
    ]


def _time_rows(answer: Answer, filtering: FilteringPreview | None, width: int) -> list[Row]:
    suggestion = answer.planned.suggestion if answer.planned is not None else None
    return [] if suggestion is None else [_hint_or_time(answer, suggestion, filtering, width)]


def _where(target: Target) -> Piece:
    return Piece(f" on {target.title}", "dim")


_TONES: dict[State, str] = {
    "now": "good",
    "empty": "good",
    "later": "warn",
    "never": "bad",
    "unknown": "text",
}


def _verdict(placed: Placement, suggestion: Suggestion, width: int) -> list[Row]:
    """Verdict and memory bar."""
    need, room = suggestion.best.need_mib, suggestion.target.room_mib
    text, disk = verdict(placed), placed.planned.disk
    fits_on_disk = disk is None or disk.fits
    words = Piece(text, _TONES[placed.fit.state] if fits_on_disk else "bad")
    if placed.fit.is_tight:
        words = words._replace(tone="warn")
    of = (
        ""
        if room is None or placed.fit.state in ("never", "unknown") or not fits_on_disk
        else f" · needs {need:,.0f} of {room:,.0f} MiB"
    )
    bar = _bar(suggestion, placed.fit, width)
    if width_of(words.text) > width - 6:
        return [*_wrapped(words, width), bar]
    return [_plan(words, Piece(of, "text"), _where(suggestion.target), width=width), bar]


def _wrapped(words: Piece, width: int) -> list[Row]:
    """In two rows."""
    first, *rest = textwrap.wrap(one_line(words.text), width - 6)
    return [_plan(words._replace(text=first), width=width), text_row(" ".join(rest), width, words.tone)]


def _bar(suggestion: Suggestion, fit: Fit, width: int) -> Row:
    """▓ what others have, ▇ parts, ░ margin, │ end of the memory. The run is amber where almost nothing is left over,
    and red where it does not fit now."""
    estimate, room = suggestion.best.estimate, suggestion.target.room_mib
    taken = min(suggestion.target.taken_mib, room or 0.0)
    need = suggestion.best.need_mib
    whole = max(taken + need, room or 0.0)
    end = width if room is None else round(min(room / whole, 1.0) * (width - 1))
    alarm = "bad" if fit.state in ("later", "never") else "warn" if fit.is_tight else None
    cells = [("▓", "other")] * min(round(taken / whole * (width - 1)), width - 2)
    before, reached = len(cells), taken
    for i, part in enumerate(_by_size(estimate)):
        reached += part.size / _MIB
        tone = alarm or _ALTERNATING[i % 2]
        cells += [("▇", tone)] * (round(reached / whole * (width - 1)) - len(cells))
    if len(cells) == before:
        cells.append(("▇", alarm or "accent"))  # what is there is seen
    cells += [("░", alarm or "dim")] * (round((taken + need) / whole * (width - 1)) - len(cells))
    if room is not None:
        cells += [(" ", "dim")] * (end - len(cells))
        cells.insert(end, ("│", "dim"))
    return Row(
        tuple(Piece("".join(c[0] for c in same), tone) for tone, same in groupby(cells, lambda c: c[1]))
    )


def _by_size(estimate: MemoryEstimate) -> list[Part]:
    """Parts of the estimate, largest first, with the GPU context: the largest part of a small model."""
    return sorted(estimate.explain(), key=lambda part: -part.size)


def _parts(suggestion: Suggestion, width: int) -> Row:
    """Parts in the colours of the bar, largest first, as many as fit."""
    taken = suggestion.target.taken_mib
    parts = [Piece(f"others have {taken:,.0f}", "other")] if taken >= 1 else []
    parts += [
        Piece(f"{part.part} {part.size / _MIB:,.0f}", _ALTERNATING[i % 2])
        for i, part in enumerate(_by_size(suggestion.best.estimate))
        if abs(part.size) >= _MIB / 2
    ]
    best = suggestion.best
    parts.append(Piece(f"margin {best.need_mib - best.estimate.total_mib:,.0f}", "dim"))
    parts.append(Piece(f"in {one_line(best.estimate.phase)}", "dim"))
    return row(_fitting(parts, width))


def _fitting(pieces: Iterable[Piece], width: int) -> list[Piece]:
    """From the left; a `…` says that there are others."""
    every, cut = list(pieces), Piece("…", "dim")
    for count in range(len(every), 0, -1):
        fitting = every if count == len(every) else [*every[:count], cut]
        if sum(width_of(piece.text) + 2 for piece in fitting) - 2 <= width:
            return fitting
    return []


def _row_note(answer: Answer, needs: Sequence[Need], key: object, width: int) -> Row:
    """Why a rule changed the selected option, or memory needs of neighbouring values, else other changes by rules."""
    option = (answer.options or {}).get(str(key))
    corrected = (
        [one for one in answer.planned.choices if one.is_corrected] if answer.planned is not None else []
    )
    if option is not None and option.corrected:
        return text_row("; ".join(str(c) for c in corrected if c.option == key), width, "warn")
    if needs:
        return _neighbours(needs, width)
    others = [choice for choice in corrected if choice.option not in DRAFT_OPTIONS[answer.draft.workload]]
    return text_row(str(others[0]), width, "warn") if others else BLANK


def _neighbours(needs: Sequence[Need], width: int) -> Row:
    """Memory needs of neighbouring values; only of the larger one where narrow."""
    fitting = [
        Piece(one_line(f"{shown_value(need.value)} {_need_text(need)}"), "dim" if need.fits else "warn")
        for need in needs
    ]
    head, left = Piece("instead", "dim"), width - len("instead") - 2
    if sum(width_of(piece.text) + 2 for piece in fitting) - 2 > left:
        fitting = [piece._replace(text=fitted(piece.text, left)) for piece in fitting[-1:]]
    return row((head, *fitting))


def _need_text(need: Need) -> str:
    if need.why_not is not None:
        return f"not possible: {need.why_not}"
    if need.need_mib is None:
        return "no estimate"
    return f"needs {need.need_mib:,.0f} MiB" + ("" if need.fits else ": would not fit")


def _hint_or_time(
    answer: Answer, suggestion: Suggestion, filtering: FilteringPreview | None, width: int
) -> Row:
    if answer.refusal is not None and suggestion.fits:  # memory suffices, but the disk is too small
        return text_row(one_line(answer.refusal.message), width, "bad")
    placed = answer.placed
    if answer.refusal is not None:
        return text_row(_nearest_fit(suggestion), width)
    if placed is not None and placed.fit.state == "later":
        return text_row(starts_now(placed) or "no option makes it fit now", width)
    if placed is not None and placed.differences:
        return text_row(placed.differences[0], width, "dim")
    if placed is not None and (unused := _unused_gpus(placed)):
        return text_row(unused, width, "warn")
    if suggestion.is_filtered:
        own = None if filtering is None else filtering.requested
        takes_s = None if own is None else own.takes_s
        return text_row(
            f"time: {'not counted yet' if takes_s is None else f'about {about(takes_s)}'}", width, "dim"
        )
    expected = suggestion.expected
    if predicted := predicted_time(suggestion):
        return text_row(f"time: {predicted}", width, "dim")
    if expected is None:
        if workload_of(suggestion.job_size.job).stages is not None:
            return text_row("time: not estimated for a pipeline as a whole", width, "dim")
        return text_row(f"time: no run on {suggestion.target.title} yet", width, "dim")
    if (again := suggestion.retrainings) is not None:
        return text_row(f"expected: {amount(expected.s)} s, {again}", width)
    middle, low, high, many = expected
    runs = "from 1 run here" if many == 1 else f"{amount(low)} to {amount(high)} in {many} runs here"
    job = suggestion.job_size.job
    epochs = workload_of(job).epochs
    if epochs is None:
        return text_row(f"expected: {amount(middle)} s ({runs})", width)
    whole = duration(middle * job.settings[epochs])
    return text_row(f"expected: {whole} for all epochs, {amount(middle)} s each ({runs})", width)


def _unused_gpus(placed: Placement) -> str:
    """Why the installed torch cannot use this machine's GPUs, or nothing."""
    facts = placed.planned.target.facts
    problem = facts.cuda_problem if facts is not None else None
    return f"{problem.reason}; {problem.hint}" if problem is not None else ""


def _nearest_fit(suggestion: Suggestion) -> str:
    near = suggestion.nearest
    if near is None:
        return "no option makes it fit · X starts it anyway"
    return f"{describe_changes(near.changes)} would need {near.need_mib:,.0f} MiB ({near.effect}) · X starts it anyway"


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
