"""Sections of a report: memory by part, the strongest influences, and explanations next to their pictures."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.jobs.numbers import share_between
from kgops.jobs.text import one_line
from kgops.present.explained_run import ExplainedRun, title_of, verdict_of
from kgops.present.explanation_pictures import picture_of
from kgops.present.explanations import ExplainedPrediction
from kgops.present.html_page import HUES, mib, table, text
from kgops.present.influences import RunInfluences
from kgops.present.memory_parts import MemoryPart, memory_parts
from kgops.present.pictures import as_inline_svg
from kgops.present.predictions import COLUMNS, NUMBERS, read_answers
from kgops.present.run_detail import RunDetail
from storage.influences import Influence, TestTriple

_Piece = tuple[str, float, str]  # of a bar: name, MiB and class of its colour
_NOT_BY_PART = "not measured by part"
_MOST_TESTS = 20
_MOST_EACH = 5  # proponents, and as many opponents
_MOST_EXPLAINED = 20
_MOST_QUESTIONS = 10
_MOST_ANSWERS = 20
_SMALLEST = 0.8  # of a picture's size, for its letters
_HEADS = ("effect alone", "head", "relation", "tail")


def memory(detail: RunDetail) -> str:
    """Bars and their legend; without an estimate by part only the peaks."""
    parts = memory_parts(detail)
    if not parts:
        return table(("", "MiB"), _peaks(detail), right=(1,))
    predicted, measured = detail.run.predicted_mib, _comparable_peak(detail)
    hues = [min(i, HUES - 1) for i in range(len(parts))]
    estimate = [(one.name, one.predicted_mib, f"hue{hue}") for one, hue in zip(parts, hues, strict=True)]
    whole = max(sum(one.predicted_mib for one in parts), predicted or 0.0, measured or 0.0)
    bars = _bar("estimate", estimate, whole)
    if measured is not None:
        bars += _bar("measured", _measured(parts, hues, measured), whole)
    rows = [(one.name, mib(one.predicted_mib), mib(one.measured_mib)) for one in parts]
    legend = table(
        ("part", "estimate, MiB", "measured, MiB"),
        [*rows, (f"peak of the {_subject(detail)}", mib(predicted), mib(measured))],
        right=(1, 2),
        hues=[*hues, None],
        marked=[*[False] * len(rows), True],
    )
    return f"{bars}\n{legend}\n{_about(detail)}"


def _subject(detail: RunDetail) -> str:
    """The subject of the estimate."""
    if detail.process is not None:
        return "worker process"
    return "GPU memory" if (detail.forecast or {}).get("on_gpu") else "tensors"


def _peaks(detail: RunDetail) -> list[tuple[str, str]]:
    run = detail.run
    rows = [("host memory, measured peak", mib(run.peak_host_mib))]
    if run.gpu or run.peak_gpu_mib is not None:
        rows.append(("GPU memory, measured peak", mib(run.peak_gpu_mib)))
    if run.predicted_mib is not None:
        rows.append((f"{_subject(detail)}, predicted", mib(run.predicted_mib)))
    return rows


def _comparable_peak(detail: RunDetail) -> float | None:
    """The measured peak of what the estimate is about; older records estimate tensors, which nobody measured."""
    if (detail.forecast or {}).get("on_gpu"):
        return detail.run.peak_gpu_mib
    return detail.process_mib if detail.process is not None else None


def _measured(parts: Sequence[MemoryPart], hues: Sequence[int], peak: float) -> list[_Piece]:
    pieces = [
        (one.name, one.measured_mib, f"hue{hue}")
        for one, hue in zip(parts, hues, strict=True)
        if one.measured_mib is not None
    ]
    rest = peak - sum(mib for _, mib, _ in pieces)
    return [*pieces, (_NOT_BY_PART, rest, "rest")] if rest > 0 else pieces


def _bar(name: str, pieces: Sequence[_Piece], whole: float) -> str:
    drawn = "".join(
        f'<span class="{colour}" style="width:{100 * share_between(size, 0.0, whole):.2f}%" '
        f'title="{text(f"{part} {mib(size)} MiB")}"></span>'
        for part, size, colour in pieces
    )
    return f'<div class="bar"><b>{text(name)}</b><div>{drawn}</div></div>'


def _about(detail: RunDetail) -> str:
    """Where the peak is expected, how much there is, and what grey stands for."""
    forecast = detail.forecast or {}
    estimate = forecast.get("estimate")
    phase = estimate.get("phase") if isinstance(estimate, dict) else None
    notes = [f"estimated peak: in {phase}"] if isinstance(phase, str) else []
    usable = forecast.get("usable_mib")
    if isinstance(usable, (int, float)):
        notes.append(f"{usable:,.0f} MiB usable on {forecast.get('on') or 'the device'}")
    notes += [f"{name} {value} MiB" for name, value in _peaks(detail)[:-1] if value != mib(None)]
    notes.append(f"grey: {_NOT_BY_PART}")
    return f'<p class="dim">{text(" · ".join(notes))}</p>'


def traces(influences: RunInfluences, start: int, stop: int) -> str:
    """HTML of the test triples from `start` to `stop`; empty where there are none."""
    stop = min(stop, _MOST_TESTS)
    shown = [_test_triple(influences, test) for test in influences.tests[start:stop]]
    left = len(influences.tests) - _MOST_TESTS if stop == _MOST_TESTS else 0
    more = f'<p class="dim">and {left:,} more: kgops influences {influences.run.id}</p>' if left > 0 else ""
    return "\n".join([*shown, more]) if shown else ""


def _test_triple(influences: RunInfluences, test: TestTriple) -> str:
    candidates = f", {test.candidates:,} training triples compared" if test.candidates is not None else ""
    head = f"test {test.test} · {_triple(influences, test.head, test.relation, test.tail)}{candidates}"
    if test.trouble is not None:
        return f"<p>{_line(head)}: <strong>{_line(test.trouble)}</strong></p>"
    rows = [_influence(influences, one) for one in _strongest(influences.by_test.get(test.test, ()))]
    return f"<p>{_line(head)}</p>\n{table(('score', 'head', 'relation', 'tail'), rows, right=(0,))}"


def _strongest(influences: tuple[Influence, ...]) -> list[Influence]:
    return [one for one in influences if abs(one.rank) <= _MOST_EACH]


def _influence(influences: RunInfluences, one: Influence) -> tuple[str, ...]:
    labels = (one.head, one.relation, one.tail)
    return (f"{one.score:+.4g}", *(one_line(influences.name_of(label)) for label in labels))


def _triple(influences: RunInfluences, *labels: str) -> str:
    return " · ".join(influences.name_of(label) for label in labels)


def _line(value: str) -> str:
    return text(one_line(value))


def answers(detail: RunDetail) -> str:
    """HTML of the first answers to the first questions; empty where there are none."""
    found = read_answers(detail.path / "results", questions=_MOST_QUESTIONS + 1, answers=_MOST_ANSWERS + 1)
    out = []
    for one in found[:_MOST_QUESTIONS]:
        rows = [answer.cells for answer in one.answers[:_MOST_ANSWERS]]
        right = tuple(range(len(NUMBERS)))
        out.append(f"<p>{_line(' · '.join(one.text))}</p>\n{table(COLUMNS, rows, right=right)}")
    if len(found) > _MOST_QUESTIONS or any(len(one.answers) > _MOST_ANSWERS for one in found):
        out.append(f'<p class="dim">the first; all are in {text(str(detail.path / "results"))}</p>')
    return "\n".join(out)


def explanations(explained: ExplainedRun) -> str:
    """HTML; empty where there are none."""
    if not explained.predictions:
        return ""
    out = [_explanation(explained, one) for one in explained.predictions[:_MOST_EXPLAINED]]
    if explained.verification is not None:
        out.insert(0, f"<p>{text(one_line(explained.verification.sentence))}</p>")
    if explained.without_paths is not None:
        out.insert(0, f'<p class="dim">no paths: {text(one_line(explained.without_paths))}</p>')
    left = len(explained.predictions) - _MOST_EXPLAINED
    if left > 0:
        out.append(f'<p class="dim">and {left:,} more: kgops export {explained.run.id} --to svg</p>')
    return "\n".join(out)


def _explanation(explained: ExplainedRun, one: ExplainedPrediction) -> str:
    said = f"<p><strong>{text(title_of(one))}</strong></p>\n<p>{text(verdict_of(one))}</p>"
    if not one.facts:
        return said
    rows = [
        (None if fact.effect is None else f"{fact.effect:+.4g}", *map(one_line, fact.triple))
        for fact in one.facts
    ]
    picture = picture_of(explained.graph(one), title_of(one))
    # A picture too wide to be read beside the list goes below it.
    drawn = f'<div style="flex-basis: {round(picture.width * _SMALLEST)}px">{as_inline_svg(picture)}</div>'
    return f'{said}\n<div class="beside-picture"><div>{table(_HEADS, rows, right=(0,))}</div>{drawn}</div>'
