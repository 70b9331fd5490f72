"""Convert the options of a workload to flags of its command, and the flags given back to settings and options."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from kgops.cli.output import tell
from kgops.jobs.workload import Workload
from kgops.options.option import Flag, Option


class FiniteRange(click.FloatRange):
    """A finite float, at least `least` if that is given."""

    def __init__(self, least: float | None = None) -> None:
        super().__init__(least)
        if least is None:
            self.name = "float"

    def _describe_range(self) -> str:
        return super()._describe_range() if self.min is not None else ""  # click would print `x<=None`

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r:.60} is not a finite number.", param, ctx)
        return float(super().convert(number, param, ctx))


F = TypeVar("F", bound=Callable[..., Any])

_TYPES: dict[str, Any] = {"str": str, "int": int, "float": FiniteRange(), "strings": str}
_ONCE = ("head", "relation", "tail", "queries", "triple", "triples", "test_triple", "test_triples")
_GROUPS = (
    "model",
    "questions",
    "data",
    "training",
    "attribution",
    "filter",
    "results",
    "memory and speed",
    "run",
    "cluster",
)


class GroupOption(click.Option):
    """A flag with its place on the help page."""

    def __init__(self, *names: Any, group: str = "run", **details: Any) -> None:
        super().__init__(*names, **details)
        self.group = group


class GroupedHelp(click.Command):
    """A command whose help page groups its flags, and which asks one question: of two the first would be dropped."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for param in given:
            if param.name in _ONCE and given.count(param) > 1:
                raise click.UsageError(f"{param.opts[0]} is given twice; it takes one value.", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups[getattr(param, "group", "run")].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(f"{name.capitalize()} options"):
                    formatter.write_dl(records)


def click_options(options: Collection[Option]) -> list[click.Option]:
    """All flags of these options."""
    return [GroupOption([name], **details) for name, details in _flags(options)]


def click_decorators(options: Collection[Option]) -> list[Callable[[F], F]]:
    """All flags of these options, to decorate the function of a command."""
    return [click.option(name, cls=GroupOption, **details) for name, details in _flags(options)]


def given_values(options: Collection[Option], given: dict[str, Any]) -> dict[str, Any]:
    """Remove the flags of these options from `given` and return the values that they set."""
    values: dict[str, Any] = {}
    for option in options:
        names = {option.flag_name(flag): flag for flag in option.flags}
        typed = {name: given.pop(name[2:].replace("-", "_")) for name in names}
        for name, flag in names.items():
            value = typed[name]
            if value is None or value == () or (flag.sets is not None and not value):
                continue
            if flag.needs and not typed[flag.needs]:
                tell(f"note: {name} {value} has no effect without {flag.needs}.")
                continue
            values.setdefault(option.name, _value(option, flag, value))
    return values


def job_table(workload: Workload, given: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Remove the workload's flags from `given` and return the job's table. Paths become absolute: the run, or a
    repetition of it, may have another working folder."""
    settings = given_values(workload.settings, given)
    settings |= {name: str(Path(settings[name]).absolute()) for name in paths if settings.get(name)}
    options = given_values(workload.optimizations.values(), given)
    return {"workload": workload.name, workload.name: settings, "options": options}


def add_options(target: click.Command, options: list[click.Option]) -> None:
    target.params[:0] = options


def _flags(options: Collection[Option]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The declaration of each flag, as click takes it."""
    for option in options:
        for flag in option.flags:
            name, text = option.flag_name(flag), flag.help or _help(option, flag)
            common = {"help": text, "hidden": flag.hidden, "default": None, "group": option.group}
            if flag.sets is not None:
                yield name, {"is_flag": True, **common}
            elif option.is_switch:
                yield f"{name}/--no-{name[2:]}", common
            else:
                yield name, {"multiple": option.type == "strings", **_type(option), **common}


def _type(option: Option) -> dict[str, Any]:
    if option.type != "choice":
        return {"type": _TYPES[option.type]}
    if int not in option.choices:
        return {"type": click.Choice(option.choices)}
    words = [one for one in option.choices if isinstance(one, str)]
    return {"type": str, "metavar": "|".join(["N", *words])} if words else {"type": int}


def _value(option: Option, flag: Flag, value: Any) -> Any:
    if flag.sets is not None:
        return flag.sets
    if isinstance(value, tuple):
        return list(value)
    # A number, where words are possible too: `all`, `auto`.
    return int(value) if int in option.choices and isinstance(value, str) and value.isdecimal() else value


def _help(option: Option, flag: Flag) -> str:
    if flag.sets is not None or flag.hidden:
        return option.help
    default = option.shown_default or ("" if option.default is None else _shown(option.default))
    return option.help + (f"  [default: {default}]" if default else "")


def _shown(default: Any) -> str:
    return ("on" if default else "off") if isinstance(default, bool) else str(default)
