"""Rows of the new run screen: fields and options of the draft, and the values that a field can take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgops.jobs.on_device import AUTO
from kgops.jobs.text import one_line
from kgops.planning.filtering_preview import FilteringPreview
from kgops.present.draft_fields import DRAFT_OPTIONS, FIELDS, Field, number_in, shown
from kgops.present.drafts import Draft, is_what_if
from kgops.present.formats import padded, width_of
from kgops.present.plan_words import about, shown_value
from kgops.present.rows import BLANK, Column, Columns, Piece, Row
from kgops.present.what_if import BY_HOST, Answer, Offers
from kgops.workloads.registry import WORKLOADS

_WORKLOADS = ("train", "tracin", "pipeline", "regress", "exec")

_LABEL = 13
_VALUE = 20
_MAY_BE_NONE = ("config", "architecture", "loss", "strict")
WIDEST = 150  # columns; wider tables are hard to follow


def rows(
    draft: Draft,
    offers: Offers,
    answer: Answer | None,
    width: int,
    hosts: Sequence[str] = (),
    filtering: FilteringPreview | None = None,
) -> list[Row]:
    """Fields, then the options of the workload. `filtering` has counts for the fields of filtering."""
    options = [_option(name, draft, answer, _option_columns(width)) for name in DRAFT_OPTIONS[draft.workload]]
    heading = [BLANK, _option_columns(width).heading()] if options else []
    return [*_fields(draft, offers, answer, width, hosts, filtering), *heading, *options]


def label_of(draft: Draft, name: str | None) -> str:
    """Label of a field."""
    return next((field.label for field in FIELDS[draft.workload] if field.name == name), name or "")


def field_of(draft: Draft, key: object) -> Field | None:
    """The field in the row with this key."""
    return next((field for field in FIELDS[draft.workload] if field.name == key), None)


def known_values(offers: Offers, name: str) -> tuple[str, ...]:
    """Known values of a field that names data."""
    known = {"data": offers.data, "run": offers.runs, "config": offers.configs}
    return {**known, "data_directory": offers.flights}.get(name, ())


# --- values to choose from ---


def stepped(
    draft: Draft, offers: Offers, answer: Answer | None, hosts: Sequence[str], key: str, by: int
) -> Draft:
    """With the next or previous value in the row with this key."""
    if key == "workload":
        return draft.with_choice(key, _next(_WORKLOADS, draft.workload, by))
    if key == "where":
        return draft.with_choice(key, _next((None, *hosts), draft.where, by))
    if key == "profile":
        return draft.with_choice(key, _next(offers.profiles, _shown_profile(draft, answer), by))
    if key == "gpu":
        here = tuple(index for index, _ in offers.gpus)
        return draft.with_choice(key, _next((None, *here, "cpu", *offers.known), draft.gpu, by))
    field = field_of(draft, key)
    if field is None:
        return draft
    known = known_values(offers, key) or field.choices
    if known:
        none = ("",) if key in _MAY_BE_NONE else ()
        now = draft.text(key) if none else _text_of(draft, answer, field)
        return draft.with_field(key, _next((*none, *known), now, by))
    number = number_in(_text_of(draft, answer, field))
    return draft.with_field(key, shown(_neighbour(field.steps, number, by))) if field.steps else draft


def _next(values: Sequence[Any], now: object, by: int) -> Any:
    at = values.index(now) + by if now in values else 0
    return values[min(max(at, 0), len(values) - 1)]


def _neighbour(steps: Sequence[float], now: float | None, by: int) -> float:
    if now is None:
        return steps[0]
    beyond = [value for value in steps if (value > now if by > 0 else value < now)]
    return now if not beyond else beyond[0] if by > 0 else beyond[-1]


def _text_of(draft: Draft, answer: Answer | None, field: Field) -> str:
    """Text in a field, or its default; of a regression the default is that of the configuration file."""
    text = draft.text(field.name)
    if text or field.option is None:
        return text
    job = answer.requested if answer is not None and answer.draft.workload == draft.workload else None
    if field.name == "label":
        return "" if job is None else job.label
    if WORKLOADS[draft.workload].has_configuration:
        value = None if job is None else job.settings[field.name]
        return "" if value is None else shown(value)
    return field.shown_default


# --- fields and options ---


def _fields(
    draft: Draft,
    offers: Offers,
    answer: Answer | None,
    width: int,
    hosts: Sequence[str],
    filtering: FilteringPreview | None,
) -> list[Row]:
    trouble = answer.trouble if answer is not None and answer.draft == draft else None
    lines = [("workload", "workload", draft.workload, " · ".join(_WORKLOADS))]
    if hosts or draft.where:
        where = draft.where or "this machine"
        lines.append(("where", "where", where, f"this machine · {' · '.join(hosts)}"))
    for field in FIELDS[draft.workload]:
        text = _text_of(draft, answer, field) or field.empty
        lines.append((field.name, field.label, text, filter_counts(filtering, field.name) or field.help))
    if not WORKLOADS[draft.workload].is_command:
        lines.append(("profile", "profile", *_profile(draft, answer)))
    if draft.where is None:
        lines.append(("gpu", "gpu", *_gpu(draft, offers, answer)))
    value_width = min(
        max(_VALUE, *(width_of(text) for _, _, text, _ in lines)), max(width - _LABEL - 34, _VALUE)
    )
    columns = Columns((Column("", _LABEL), Column(" ", value_width), Column("  ", 20, grows=True)), width)
    out = []
    for name, label, text, help in lines:
        is_wrong = trouble is not None and trouble.field == name
        value = _from_the_end(one_line(text), value_width)
        beside = Piece(one_line(trouble.message), "bad") if trouble and is_wrong else Piece(help, "dim")
        chosen = Piece(padded(value or "–", value_width), "bad" if is_wrong else "field")
        out.append(columns.row((Piece(label, "dim"), chosen, beside), key=name))
    return out


def filter_counts(filtering: FilteringPreview | None, name: str) -> str:
    """What the chosen filter leaves of the training triples and how long that takes; without one, what hops and path
    lengths would leave. Nothing where it is not counted."""
    if filtering is None or name not in ("n_hops", "max_total_path_length"):
        return ""
    if filtering.problem is not None:
        return filtering.problem if name == "n_hops" else ""
    own = filtering.requested
    if own is not None:
        is_here = own.settings["path_filtering"] == (name == "max_total_path_length")
        takes = "" if own.takes_s is None else f", about {about(own.takes_s)}"
        return f"{own.shown} of {filtering.train:,} left{takes}" if is_here else ""
    each = [one for one in filtering.filters if one.settings["path_filtering"] == (name != "n_hops")]
    left = " · ".join(f"{one.settings[name]}: {one.shown}" for one in each)
    return f"{left} of {filtering.train:,} left" if left else ""


def _shown_profile(draft: Draft, answer: Answer | None) -> str | None:
    """The chosen profile, or the one that suits the GPU."""
    planned = answer.planned if answer is not None and answer.draft.workload == draft.workload else None
    return draft.profile or (planned.job.profile if planned is not None else None)


def _profile(draft: Draft, answer: Answer | None) -> tuple[str, str]:
    """The profile and, if kgops chose it, why."""
    name, placed = _shown_profile(draft, answer), answer.placed if answer is not None else None
    if draft.where is not None and name is None:
        return "", "that host's own for its GPU"
    if draft.profile is not None or name is None or placed is None:
        return name or ("none" if placed is not None else "…"), "named set of option values"
    where = "" if is_what_if(draft) else " in this machine"
    gpu = placed.planned.target
    if not gpu.on_gpu or name == AUTO:
        return name, "suits any machine" if gpu.on_gpu else "for the CPU"
    others = [f"{one.job.profile} on {one.target.title}" for one in placed.others if one.job.profile != name]
    return name, "; ".join((f"{name}, for the {gpu.title}{where}", *others))


def _gpu(draft: Draft, offers: Offers, answer: Answer | None) -> tuple[str, str]:
    if draft.gpu == "cpu":
        return "the CPU", "of this machine"
    here = dict(offers.gpus).get(draft.gpu or "")
    if here is not None:
        return f"GPU {draft.gpu} {here}", "of this machine"
    target = answer.planned.target if answer is not None and answer.planned is not None else None
    if draft.gpu is None:
        return "any", "" if target is None else f"here: {target.title}"
    return draft.gpu, "what-if: not in this machine"


def _option_columns(width: int) -> Columns:
    value = 16 if width > 80 else 15  # `65536, then 2048`, where that does not cost the reasons
    return Columns(
        (Column("OPTIONS", 22), Column("value", value), Column("why", 39, grows=True), Column("by", 15)),
        min(width, WIDEST),
    )


def _option(name: str, draft: Draft, answer: Answer | None, columns: Columns) -> Row:
    option = (answer.options or {}).get(name) if answer is not None else None
    requested = draft.options.get(name)
    if option is None or option.requested != requested:
        cells = (
            Piece(name),
            Piece("…" if requested is None else shown_value(requested), "accent"),
            Piece(""),
            Piece(""),
        )
        return columns.row(cells, key=name)
    is_open = option.by == BY_HOST
    tone = "warn" if option.corrected else "accent" if requested is not None else "text"
    cells = (
        Piece(name),
        Piece("…" if is_open else shown_value(option.applied), tone),
        Piece(option.why, "text" if option.corrected or option.by == "planner" else "dim"),
        Piece(option.by, "dim"),
    )
    return columns.row(cells, key=name)


def _from_the_end(text: str, columns: int) -> str:
    """Cuts the beginning: the end of a path says more."""
    if width_of(text) <= columns:
        return text
    while text and width_of(text) > columns - 1:
        text = text[1:]
    return "…" + text
