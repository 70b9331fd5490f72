"""Whether a run fits its GPU or CPU now, later or never, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from storage.runs import Run

State = Literal["now", "later", "empty", "never", "unknown"]
_TIGHT = 0.05  # of the memory that one run can have


@dataclass(frozen=True, slots=True)
class Fit:
    """`now`: it would start at once. `later`: it fits the GPU and waits. `empty`: it fits an empty GPU, not in this
    machine. `never`: it does not fit. `unknown`: its memory is not predicted."""

    state: State
    words: str
    is_tight: bool = False  # it fits now, and almost nothing is left over

    @property
    def fits(self) -> bool:
        return self.state != "never"


def fit_of(
    need_mib: float | None,
    *,
    on: str,
    room_mib: float | None,
    of_limit: bool = False,
    on_gpu: bool = True,
    spare_mib: float | None = None,
    waits_for: str | None = None,
    waits: bool = False,
) -> Fit:
    """Of a job that needs so much, margin included, on a GPU called `on`, of which one run can have `room_mib`.
    `of_limit`: that is the job's own limit of host memory.

    `spare_mib` is left over if it starts now; `waits_for` is why it would not. Without either the GPU's
    state is unknown. `waits`: it waits already. None is unknown.
    """
    would = "waits" if waits else "would wait now"
    if need_mib is not None and room_mib is not None and need_mib > room_mib:
        free = "" if on_gpu else " that --memory-limit allows" if of_limit else " that are free"
        return Fit("never", f"does not fit: needs {need_mib:,.0f} of {room_mib:,.0f} MiB{free}")
    if waits_for is not None:
        fits = f"fits an empty {on}" if on_gpu else "fits"
        known = need_mib is not None and room_mib is not None
        return Fit("later", f"{fits}; {would} for {waits_for}" if known else f"{would} for {waits_for}")
    if need_mib is None or room_mib is None:
        return Fit(
            "unknown", "its memory is not predicted" if need_mib is None else f"needs {need_mib:,.0f} MiB"
        )
    if on_gpu and spare_mib is None:
        return Fit("empty", f"fits an empty {on}, {room_mib - need_mib:,.0f} MiB to spare")
    spare = spare_mib if spare_mib is not None else room_mib - need_mib
    return Fit("now", f"fits now, {spare:,.0f} MiB to spare", spare < _TIGHT * room_mib)


def fit_of_run(run: Run, forecast: Mapping[str, Any] | None) -> Fit | None:
    """Fit of a queued run, from its prediction and its recorded reason to wait; None for other runs."""
    if run.gpu_request is None or run.state != "queued" or not run.reason:
        return None
    plan = forecast or {}
    return fit_of(
        run.reserved_mib,
        on=str(plan.get("on") or f"GPU {run.gpu_request}"),
        room_mib=plan.get("usable_mib"),
        waits_for=run.reason,
        waits=True,
    )
