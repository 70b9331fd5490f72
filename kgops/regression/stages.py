"""Stages of a regression: pretraining, final training and leave-one-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kgops.errors import BadInput
from kgops.regression.flights import Flight
from kgops.regression.settings import RegressionSettings
from kgops.regression.splits import find_flight, hold_out, leave_one_out

__all__ = ["Stage", "plan_stages"]


@dataclass(frozen=True, eq=False)
class Stage:
    """Training on `flights`, with metrics on `held_out` if set.

    `scaled_by` are the flights used for normalisation; with `fresh` the weights are initialised.
    """

    name: str
    flights: tuple[Flight, ...]
    scaled_by: tuple[Flight, ...]
    held_out: Flight
    judged: bool
    epochs: int
    fresh: bool
    weights_file: str
    heavier: dict[str, float] = field(default_factory=dict)


def plan_stages(flights: Sequence[Flight], settings: RegressionSettings) -> list[Stage]:
    """The stages in `settings`, in order. Held-out flights are never trained on."""
    s = settings
    stages: list[Stage] = []
    if s.pretrain or s.final:
        split = hold_out(flights, s.validation_flight)
        first = _pretrained(flights, split.train, split.held_out, s.pretrain_flight)
        heavier = _heavier(split.train, split.held_out, s, first)
        common = {"scaled_by": split.train, "held_out": split.held_out, "epochs": s.epochs}
        if s.pretrain:
            stages.append(
                Stage(
                    "pretrain",
                    flights=(first,),
                    judged=not s.final,
                    fresh=True,
                    weights_file="pretrained_model.pt",
                    **common,  # type: ignore[arg-type]
                )
            )
        if s.final:
            stages.append(
                Stage(
                    "final",
                    flights=split.train,
                    judged=True,
                    fresh=not s.pretrain,
                    weights_file="best_model.pt",
                    heavier=heavier,
                    **common,  # type: ignore[arg-type]
                )
            )
    if s.loo:
        for split in leave_one_out(flights):
            name = split.held_out.name
            weights = {} if s.overweight_flight == name else _given_weight(s)
            stages.append(
                Stage(
                    f"loo {name}",
                    split.train,
                    split.train,
                    split.held_out,
                    judged=True,
                    epochs=s.loo_epochs,
                    fresh=True,
                    weights_file=f"loo/{name}.pt",
                    heavier=weights,
                )
            )
    return stages


def _pretrained(
    flights: Sequence[Flight], train: tuple[Flight, ...], held_out: Flight, name: str | None
) -> Flight:
    if name is None:
        return max(train, key=len)
    chosen = find_flight(flights, name)
    _not_held_out(chosen, held_out, "pretrain_flight")
    return chosen


def _heavier(
    train: tuple[Flight, ...], held_out: Flight, settings: RegressionSettings, first: Flight
) -> dict[str, float]:
    if settings.overweight_flight is None:
        return {first.name: settings.overweight_factor} if settings.pretrain else {}
    _not_held_out(find_flight([*train, held_out], settings.overweight_flight), held_out, "overweight_flight")
    return _given_weight(settings)


def _given_weight(settings: RegressionSettings) -> dict[str, float]:
    name = settings.overweight_flight
    return {name: settings.overweight_factor} if name is not None else {}


def _not_held_out(flight: Flight, held_out: Flight, key: str) -> None:
    if flight is held_out:
        raise BadInput(
            f"{key} and the held-out flight are both {flight.name!r}: metrics on training data are meaningless.",
            hint="set validation_flight to another flight.",
        )
