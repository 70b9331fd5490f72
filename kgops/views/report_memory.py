"""Memory of a report: the estimate by part beside what was measured, as bars of one scale with their legend."""

from __future__ import annotations

from collections.abc import Sequence

from kgops.jobs.numbers import share_between
from kgops.views.html_page import HUES, mib, table, text
from kgops.views.memory_parts import MemoryPart, memory_parts
from kgops.views.run_detail import RunDetail

__all__ = ["memory"]

_Piece = tuple[str, float, str]  # of a bar: name, MiB and class of its colour
_NOT_BY_PART = "not measured by part"


def memory(detail: RunDetail) -> str:
    """Bars and their legend; without an estimate by part the peaks alone."""
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
    """What the estimate is about."""
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
