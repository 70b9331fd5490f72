"""Settings of a regression, validated together; its stages, and the flights that each trains on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from kgops.errors import BadInput, BadJob
from kgops.jobs.option import defaults_of, problems_of
from kgops.jobs.option_reading import nearest
from kgops.maths.regress.flights import Flight
from kgops.workloads.regress.options import REGRESS_OPTIONS

_DEFAULTS = defaults_of(REGRESS_OPTIONS)

# Settings that a resumed run may change: OOM fallbacks that keep the network, training length, validation.
MAY_DIFFER = frozenset(
    {
        *("batch_size", "microbatch", "precision", "gradient_checkpointing", "compile"),
        *("epochs", "loo_epochs", "early_stopping_patience", "resume_every"),
    }
)


@dataclass(frozen=True)
class RegressionSettings:
    """Training settings, named as in the job. `early_stopping_patience` 0 turns early stopping off; `microbatch` None
    means the whole batch; `kgops.maths.regress.loop` chooses flights that are None."""

    epochs: int = _DEFAULTS["epochs"]
    loo_epochs: int = _DEFAULTS["loo_epochs"]
    batch_size: int = _DEFAULTS["batch_size"]
    microbatch: int | None = None
    loss_type: str = _DEFAULTS["loss_type"]
    loss_alpha: float = _DEFAULTS["loss_alpha"]
    huber_delta: float = _DEFAULTS["huber_delta"]
    gamma: float = _DEFAULTS["gamma"]
    under_weight: float = _DEFAULTS["under_weight"]
    optimizer: str = _DEFAULTS["optimizer"]
    scheduler: str = _DEFAULTS["scheduler"]
    learning_rate: float = _DEFAULTS["learning_rate"]
    weight_decay: float = _DEFAULTS["weight_decay"]
    warmup_steps: int = _DEFAULTS["warmup_steps"]
    early_stopping_patience: int = _DEFAULTS["early_stopping_patience"]
    early_stopping_min_delta: float = _DEFAULTS["early_stopping_min_delta"]
    precision: str = _DEFAULTS["precision"]
    gradient_checkpointing: bool = _DEFAULTS["gradient_checkpointing"]
    compile: str = _DEFAULTS["compile"]
    augment: bool = _DEFAULTS["augment"]
    flat_field_correction: bool = _DEFAULTS["flat_field_correction"]
    zscore_normalize: bool = _DEFAULTS["zscore_normalize"]
    pretrain: bool = _DEFAULTS["pretrain"]
    pretrain_flight: str | None = None
    final: bool = _DEFAULTS["final"]
    loo: bool = _DEFAULTS["loo"]
    validation_flight: str | None = None
    overweight_flight: str | None = None
    overweight_factor: float = _DEFAULTS["overweight_factor"]
    seed: int = _DEFAULTS["seed"]
    resume_every: float = _DEFAULTS["resume_every"]

    def __post_init__(self) -> None:
        problems = problems_of(REGRESS_OPTIONS, asdict(self))
        if not (self.pretrain or self.final or self.loo):
            problems.append("final, pretrain and loo are all off: there is nothing to train")
        if problems:
            raise BadJob("the settings of the regression", problems)

    @property
    def at_once(self) -> int:
        """Windows whose gradients are computed together."""
        return min(self.microbatch or self.batch_size, self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Split:
    """`train` has all flights except `held_out`."""

    train: tuple[Flight, ...]
    held_out: Flight


def hold_out(flights: Sequence[Flight], name: str | None = None) -> Split:
    """Holds out the flight `name`, or else the last by name."""
    if len(flights) < 2:
        raise BadInput(
            f"{flights[0].path.parent} has one flight; training needs at least two, since one is held out.",
            hint="`kgops data flights --make DIR` writes several.",
        )
    held = find_flight(flights, name) if name else flights[-1]
    return Split(tuple(flight for flight in flights if flight is not held), held)


def leave_one_out(flights: Sequence[Flight]) -> Iterator[Split]:
    """Holds out each flight once, in order."""
    for flight in flights:
        yield hold_out(flights, flight.name)


def find_flight(flights: Sequence[Flight], name: str) -> Flight:
    by_name = {flight.name: flight for flight in flights}
    if name not in by_name:
        raise BadInput(f"{flights[0].path.parent} has no flight {name!r:.60}{nearest(name, by_name)}.")
    return by_name[name]


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
    weights_file: str = "best_model.pt"
    heavier: dict[str, float] = field(default_factory=dict)
    leaves_one_out: bool = False


def plan_stages(flights: Sequence[Flight], settings: RegressionSettings) -> list[Stage]:
    """The stages in `settings`, in order. Held-out flights are never trained on."""
    s = settings
    stages: list[Stage] = []
    if s.pretrain or s.final:
        split = hold_out(flights, s.validation_flight)
        first = _pretrained(flights, split.train, split.held_out, s.pretrain_flight)
        heavier = _heavier(split.train, split.held_out, s, first)
        stage = partial(Stage, scaled_by=split.train, held_out=split.held_out, epochs=s.epochs)
        if s.pretrain:
            file = "pretrained_model.pt"
            stages.append(
                stage("pretrain", flights=(first,), judged=not s.final, fresh=True, weights_file=file)
            )
        if s.final:
            whole = stage("final", flights=split.train, judged=True, fresh=not s.pretrain, heavier=heavier)
            stages.append(whole)
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
                    leaves_one_out=True,
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
