"""Fields of the new-run form. A value has the type, range and default of the option that the field sets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from kgops.errors import Usage
from kgops.jobs.option import Option
from kgops.jobs.option_reading import nearest
from kgops.jobs.run_options import NAMES
from kgops.workloads.pipeline.job import TRACIN_OPTIONS
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.regress.options import ARCHITECTURES
from kgops.workloads.train.options import LOSSES, OPTIMIZERS, OWN_MODELS

# Of a pipeline's options, those that its training has not.
_ONLY_TRACIN = [
    name
    for name in WORKLOADS["tracin"].optimizations
    if name in TRACIN_OPTIONS and name not in WORKLOADS["train"].optimizations
]
# A few of PyKEEN's; any other is typed.
_MODELS = (*OWN_MODELS.values(), "TransE", "RotatE")


class BadField(Usage):
    """An error in one field of the form."""

    def __init__(self, field: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.field = field


class Field(NamedTuple):
    """One line of the form. `option` is what it sets; None: the form itself reads it. Arrows reach `steps`, which are
    common numbers, or `choices`."""

    name: str
    label: str
    help: str
    option: Option | None = None
    steps: tuple[float, ...] = ()
    choices: tuple[str, ...] = ()
    default: Any = None  # where the option has none
    empty: str = ""  # what an empty field means

    @property
    def shown_default(self) -> str:
        default = self.option.default if self.option is not None else None
        default = self.default if default is None else default
        return "" if default is None else shown(default)


def shown(value: object) -> str:
    """A number or a text as a person would type it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


_EPOCHS = (1, 5, 10, 20, 50, 100, 200, 500, 1000)
_RATES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
_SEEDS = (0, 1, 2, 3, 4)
_KEPT = (10, 25, 50, 100, 500, 1000)


def _setting(workload: str, name: str) -> Option:
    return next(option for option in WORKLOADS[workload].settings if option.name == name)


def _number(
    workload: str, name: str, label: str, help: str, steps: tuple[float, ...], default: int | None = None
) -> Field:
    return Field(name, label, help, _setting(workload, name), steps, default=default)


def _word(workload: str, name: str, label: str, help: str, choices: tuple[str, ...]) -> Field:
    return Field(name, label, help, _setting(workload, name), choices=choices)


_LABEL = Field(
    "label", "label", "name of the run in lists", next(one for one in NAMES if one.name == "label")
)
MORE = Field("more", "more", "other settings: name=value, spaces between")
_DATA = Field("data", "data", "a bundled graph, a folder, or a file")
_TEST_TRIPLE = Field(
    "test_triple", "test triple", "head, relation, tail; empty: all", _setting("tracin", "test_triple")
)
_TOP_K = _number("tracin", "top_k", "top", "number of strongest influences to keep", _KEPT, 100)
STRICT: dict[str, tuple[str, ...]] = {
    "ends": ("strict_hop_constraint",),
    "paths": ("strict_path_filtering",),
    "both": ("strict_hop_constraint", "strict_path_filtering"),
}
# Any of them turns filtering on, as the flags do.
FILTER_FIELDS = (
    Field(
        "n_hops",
        "hops",
        "how near to the test triple's entities",
        _setting("tracin", "n_hops").adapted(default=None),
        (1, 2, 3, 4),
        empty="no filtering",
    ),
    Field(
        "max_total_path_length",
        "path length",
        "longest path that keeps a triple",
        _setting("tracin", "max_total_path_length"),
        (2, 3, 4, 5, 6),
        empty="any",
    ),
    Field(
        "strict",
        "strict",
        "ends: within hops; paths: only those",
        choices=tuple(STRICT),
        empty="no",
    ),
)
_SEED = "same seed, same numbers"
_RATE = "of the optimizer"
_SIZES = (
    _number("train", "num_epochs", "epochs", "passes over the triples", _EPOCHS),
    _number(
        "train", "embedding_dim", "dimensions", "length of an entity's vector", (50, 100, 200, 300, 400, 800)
    ),
)
_OPTIMIZING = (
    _number("train", "learning_rate", "learning rate", _RATE, _RATES),
    _word("train", "optimizer", "optimizer", ", ".join(OPTIMIZERS), OPTIMIZERS),
    _word("train", "loss", "loss", "empty: kvsall-bce, or PyKEEN's own", LOSSES),
    _number("train", "seed", "seed", _SEED, _SEEDS),
)

FIELDS: dict[str, tuple[Field, ...]] = {
    "train": (
        _DATA,
        _word(
            "train", "model", "model", f"{', '.join(OWN_MODELS.values())}, or any model of PyKEEN", _MODELS
        ),
        *_SIZES,
        *_OPTIMIZING,
        MORE,
        _LABEL,
    ),
    "tracin": (
        Field("run", "run", "a training run with checkpoints", _setting("tracin", "run")),
        _TEST_TRIPLE,
        *FILTER_FIELDS,
        _TOP_K,
        MORE,
        _LABEL,
    ),
    "pipeline": (
        _DATA,
        *_SIZES,
        *_OPTIMIZING,
        _TEST_TRIPLE,
        _number(
            "tracin",
            "max_triples",
            "at most",
            "test triples to attribute; empty: all",
            (1, 5, 10, 50, 100, 500),
        ),
        *FILTER_FIELDS,
        _TOP_K,
        _LABEL,
    ),
    "regress": (
        Field("config", "config", "a bundled configuration, or a file"),
        Field("data_directory", "flights", "a folder with one file for each flight"),
        _number(
            "regress", "epochs", "epochs", "maximum passes over the windows", (1, 5, 10, 20, 50, 100, 200)
        ),
        _word(
            "regress",
            "architecture",
            "network",
            "network that combines the frames of a window",
            ARCHITECTURES,
        ),
        _number("regress", "learning_rate", "learning rate", _RATE, _RATES),
        _number("regress", "seed", "seed", _SEED, _SEEDS),
        _LABEL,
    ),
    "exec": (
        Field("command", "command", "the command line to run"),
        Field("cwd", "folder", "working folder; empty: the current one"),
        _LABEL,
    ),
}


def optimizations(workload: str) -> dict[str, Option]:
    """Options that the form offers; a pipeline has the options of its training and its TracIn run."""
    of_tracin = WORKLOADS["tracin"].optimizations
    first, *others = WORKLOADS[workload].stages or (workload,)
    found = {
        **WORKLOADS[first].optimizations,
        **{name: of_tracin[name] for name in _ONLY_TRACIN if "tracin" in others},
    }
    return {name: option for name, option in found.items() if option.in_form}


DRAFT_OPTIONS: dict[str, tuple[str, ...]] = {name: tuple(optimizations(name)) for name in WORKLOADS}


def value_of(field: Field, text: str) -> Any:
    """The text as the option's value. Raises BadField for a wrong type or value."""
    option = field.option
    assert option is not None
    value: Any = number_in(text) if option.type in ("int", "float") else text
    if option.type == "bool":
        value = _SWITCHES.get(text.casefold())
    if value is None or (option.type == "int" and not isinstance(value, int)):
        raise BadField(field.name, f"expected {option.expected}, found {text!r:.40}")
    if problem := option.problem(value):
        raise BadField(field.name, problem)
    return value


_SWITCHES = {"on": True, "off": False}


def more_of(workload: str, text: str) -> dict[str, Any]:
    """The settings that a person typed as name=value."""
    known = {option.name: option for option in WORKLOADS[workload].settings}
    found = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadField(MORE.name, f"cannot be read: {error}".lower()) from error
    for word in words:
        name, _, value = word.partition("=")
        option = known.get(name.lstrip("-").replace("-", "_"))
        if option is None:
            raise BadField(MORE.name, f"no setting {name!r:.40}{nearest(name, known)}")
        if option.type == "strings" or not value:
            raise BadField(MORE.name, f"expected {name}=value, found {word!r:.40}")
        found[option.name] = value_of(MORE._replace(option=option), value)
    return found


def more_text(settings: Mapping[str, Any]) -> str:
    return " ".join(shlex.quote(f"{name}={shown(value)}") for name, value in settings.items())


def number_in(text: str) -> int | float | None:
    """The number that a person typed, perhaps with commas between its digits."""
    text = text.strip().replace(",", "")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
