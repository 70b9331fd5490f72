"""Option: one setting of a job, declared once. Flags, job files, forms, profiles and help pages are made from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


def at_least(lowest: float, at_most: float = 1 << 53) -> Check:
    """And no more than a column holds exactly."""

    def check(value: float) -> str | None:
        if value < lowest:
            return f"must be at least {lowest:g}, found {value}"
        return None if value <= at_most else f"must be at most {at_most:g}, found {value}"

    return check


def triple_in(text: str) -> tuple[str, str, str] | None:
    """Head, relation and tail as typed, separated by tabs, else by commas, else by spaces; None if it is another."""
    for separator in ("\t", ",", None):
        parts = text.split(separator)
        if len(parts) == 3 and all(map(str.strip, parts)):
            return parts[0], parts[1], parts[2]
    return None


def not_a_triple(text: str) -> str | None:
    if triple_in(text) is not None:
        return None
    return f"must be head, relation and tail, separated by tabs, commas or spaces, found {text!r:.60}"


def above(lowest: float) -> Check:
    return lambda value: None if value > lowest else f"must be above {lowest:g}, found {value}"


def between_0_and_1(value: float) -> str | None:
    return None if 0 < value < 1 else f"must be above 0 and below 1, found {value}"


def below_one(value: float) -> str | None:
    return None if 0 <= value < 1 else f"must be at least 0 and below 1, found {value}"


def share(value: float) -> str | None:
    return None if 0 <= value <= 1 else f"must be from 0 to 1, found {value}"


def one_of(*allowed: str) -> Check:
    return lambda value: (
        None if value in allowed else f"must be one of {', '.join(allowed)}; found {value!r:.60}"
    )


def device_name(value: str) -> str | None:
    if value in ("auto", "cpu", "cuda") or (value.startswith("cuda:") and value[5:].isdecimal()):
        return None
    return f"must be auto, cpu, cuda or cuda:N; found {value!r:.60}"


def gpu_request(value: str) -> str | None:
    if ":" not in value or re.fullmatch(r"auto:[1-9]\d{0,5}", value, re.ASCII):
        return None
    return f"must be auto, auto:N, all, a model, or indexes or UUIDs as in 0,1; found {value!r:.60}"


def size(value: str) -> str | None:
    """Of an image: one number, or height x width."""
    parts = value.split("x")
    good = 1 <= len(parts) <= 2 and all(part.isdecimal() and len(part) < 6 for part in parts)
    return None if good else f"must be a size like 224 or 440x640, found {value!r:.60}"


def progress_pattern(value: str) -> str | None:
    wrong = regular_expression(value)
    if wrong is None and not re.compile(value).groups:
        wrong = "no group for the number of what is done, as in (\\d+)/(\\d+)"
    return wrong


def regular_expression(value: str) -> str | None:
    try:
        re.compile(value)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


Check = Callable[[Any], str | None]
Effect = Literal["exact", "rounding", "changes results"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of the option. It takes a value, or stands for the value `sets`. Hidden flags are listed in the migration
    page alone."""

    name: str
    sets: Any = None
    help: str = ""  # the option's, if empty
    hidden: bool = False
    needs: str = ""  # another flag of the option, without which this one has no effect


DEFAULT_FLAG = (Flag(""),)  # named after the option
HIDDEN = "No effect; kept for compatibility."


@dataclass(frozen=True, slots=True)
class Option:
    """A setting, or with an `effect` an optimization that profiles, plans and OOM fallbacks may choose: `exact` gives
    the same numbers, `rounding` the same up to rounding."""

    name: str
    type: str = "str"  # str, int, float, bool, strings, table, or choice: one of `choices`
    default: Any = None
    help: str = ""
    check: Check | None = None  # of a value of the right type: what is wrong with it
    required: bool = False
    effect: Effect | None = None
    choices: tuple[Any, ...] = ()  # `int` stands for any whole number from 1 on
    pattern: str | None = None  # of other allowed texts
    example: str = ""  # of a text that matches the pattern
    summary: str = ""  # what the option is, in a few words; for lists of options
    flags: tuple[Flag, ...] = DEFAULT_FLAG  # the first one given counts
    group: str = "run"  # on the help page
    shown_default: str = ""  # on the help page, where it is not `default`
    steps: tuple[float, ...] = ()  # numbers that New run offers
    in_form: bool = False  # New run offers the option
    off_because: str = ""  # accepted without effect, for this reason

    def adapted(self, **changes: Any) -> Option:
        """The option as another workload has it."""
        return replace(self, **changes)

    def as_read(self, value: Any) -> Any:
        """The value with the option's type: a float also where a whole number was written."""
        if self.type != "float" or not _fits(value, "float"):
            return value
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return math.inf if value > 0 else -math.inf

    def mistyped(self, value: Any) -> str | None:
        """The problem with the value's type, or None."""
        if self.type == "choice" or _fits(value, self.type):
            return None
        return f"expected {self.expected}, found {describe(value)}"

    def problem(self, value: Any) -> str | None:
        """The problem with the value, or None."""
        if self.type == "choice":
            return self._not_a_choice(value)
        if wrong := self.mistyped(value):
            return wrong
        number = self.as_read(value)
        if isinstance(number, float) and not math.isfinite(number):
            return f"must be a finite number, found {number}"  # TOML and YAML have infinity and NaN
        return self.check(number) if self.check else None

    def of_text(self, text: str) -> Any:
        """The value that a person typed. Raises ValueError with the problem."""
        value: Any = _WORDS.get(text.lower(), text)
        if isinstance(value, str) and self.takes_numbers:
            for number in (int, float):
                try:
                    value = number(text)
                    break
                except ValueError:
                    continue
        if problem := self.problem(value):
            raise ValueError(problem)
        return self.as_read(value)

    def _not_a_choice(self, value: Any) -> str | None:
        if any(value is one or (isinstance(value, str) and value == one) for one in self.choices):
            return None
        if int in self.choices and _fits(value, "int") and value >= 1:
            return None
        if self.pattern is not None and isinstance(value, str) and re.fullmatch(self.pattern, value):
            return None
        return f"must be {' or '.join(self._choices())}; found {value!r:.60}"

    def _choices(self) -> list[str]:
        words = ["a whole number from 1 on" if one is int else word_of(one) for one in self.choices]
        return [*words, self.example] if self.example else words

    @property
    def expected(self) -> str:
        return _EXPECTED.get(self.type, "a value")

    @property
    def is_switch(self) -> bool:
        return self.type == "bool" or self.choices == (True, False)

    @property
    def takes_numbers(self) -> bool:
        return self.type in ("int", "float") or int in self.choices

    def flag_name(self, flag: Flag) -> str:
        return flag.name or f"--{self.name.replace('_', '-')}"


_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
_EXPECTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "strings": "a list of texts",
    "table": "a table",
}


def defaults_of(options: tuple[Option, ...]) -> dict[str, Any]:
    return {option.name: option.default for option in options}


def problems_of(options: Iterable[Option], values: Mapping[str, Any]) -> list[str]:
    """Problems of values that are already Python's; None is unset."""
    return [
        f"{option.name}: {problem}"
        for option in options
        if values.get(option.name) is not None and (problem := option.problem(values[option.name]))
    ]


def describe(value: object) -> str:
    """A value in the words of a problem."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return f"{value!r:.60}"


def word_of(value: Any) -> str:
    """A value as job files and flags spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fits(value: object, wanted: str) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted == "str":
        return isinstance(value, str)
    if wanted == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted == "float":
        return number
    if wanted == "bool":
        return isinstance(value, bool)
    if wanted == "strings":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, Mapping)
