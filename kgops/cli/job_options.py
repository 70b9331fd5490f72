"""Convert the options of a workload to flags of its command, and the flags given back to settings and options."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from kgops.cli.output import tell
from kgops.errors import BadJob, Usage
from kgops.jobs.job import Job
from kgops.jobs.option import Flag, Option
from kgops.jobs.option_reading import SHORT_NAMES
from kgops.jobs.run_options import CLUSTER_OPTIONS
from kgops.jobs.text import on_or_off
from kgops.workloads.job_files import read_job
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.workload import Workload


class FiniteRange(click.FloatRange):
    """A finite float, at least `least` if there is one."""

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


class RunName(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions
    """A run's number; otherwise `last` or a label, as text."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return int(value) if str(value).isdecimal() and len(str(value)) <= 18 else str(value)


# Settings that name a run → workloads of the run that `last` or a label means.
RUN_OF = {"run": ("train", "pipeline"), "from_predictions": ("predict", "pipeline")}

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


# Of `--help`; `--help-all` shows all.
_OF_A_RUN = ("profile", "label", "gpu", "tags", "detach", "dry_run", "as_json")
_OF_A_MODEL = ("run", "model_path", "output", "output_dir", *_OF_A_RUN)
_MOST_NEEDED: dict[str, tuple[str, ...]] = {
    "regress": (
        *("config", "data_directory", "output_dir", "architecture", "temporal_frames", "num_epochs"),
        *("batch_size", "learning_rate", "seed", "precision", "gradient_checkpointing"),
        *_OF_A_RUN,
    ),
    "exec": ("progress_regex", "metric_regex", "on_oom", "cwd", "grace", "memory_limit", *_OF_A_RUN),
}
SHOWS_ALL = "kgops.help_all"


def _most_needed(name: str | None) -> tuple[str, ...] | None:
    """Flags on the help page of this command; None: all."""
    workload = WORKLOADS.get(name or "")
    if workload is None or workload.words is None:
        return _MOST_NEEDED.get(name or "")
    return (*workload.words.shown, *(_OF_A_MODEL if workload.reads_model else _OF_A_RUN))


def _print_all(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given:
        ctx.meta[SHOWS_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


class GroupedHelp(click.Command):
    """A command whose help page groups its flags, and which asks one question: of two the first would be dropped."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if _most_needed(self.name) is None:
            return params
        help_all = GroupOption(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_all,
            help="Show all flags and exit.",
        )
        return [*params, help_all]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [self._long(word) for word in args]
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for param in given:
            if param.name in _ONCE and given.count(param) > 1:
                raise click.UsageError(f"{param.opts[0]} is given twice; it takes one value.", ctx)
        return super().parse_args(ctx, args)

    def _long(self, word: str) -> str:
        """`--lr=3` as `--learning-rate=3`, and `--fp16` as `--precision=fp16`."""
        flags = {param.name: param.opts[-1] for param in self.params}
        name, equals, value = word.partition("=")
        meant = SHORT_NAMES.get(name[2:]) if name.startswith("--") and name not in flags.values() else None
        if meant not in flags:
            return word
        return f"{flags[meant]}=fp16" if meant == "precision" else flags[meant] + equals + value

    def _without_effect(self) -> set[str]:
        """Flags that this workload refuses or ignores: no help page has them."""
        workload = WORKLOADS.get(self.name or "")
        if workload is None or workload.on_clusters:
            return set()
        cluster = {option.flag_name(option.flags[0])[2:] for option in CLUSTER_OPTIONS}
        return {*cluster, "allow_approximate"} if workload.is_command else {"tasks", "address"}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        shown = None if ctx.meta.get(SHOWS_ALL) else _most_needed(self.name)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or param.name in self._without_effect():
                continue
            if shown is None or param.name in (*shown, "help", "help_all"):
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


def job_of_flags(table: dict[str, Any]) -> Job:
    """Return the job of a command line; problems name its flags."""
    try:
        return read_job(table, "this command")
    except BadJob as error:
        workload = WORKLOADS[table["workload"]]
        tables = ((workload.name, workload.settings), ("options", tuple(workload.optimizations.values())))
        flags = {
            f"{key}.{one.name}": one.flag_name(one.flags[0])
            for key, many in tables
            for one in many
            if one.flags
        }
        raise BadJob(
            "this command", [_by_flag(problem, flags) for problem in error.problems], error.hint
        ) from None


def _by_flag(problem: str, flags: dict[str, str]) -> str:
    """The problem with flags in place of keys. A key of one plain word needs its table in front."""
    bare = {key.partition(".")[2]: flag for key, flag in flags.items() if "_" in key}
    return re.sub(
        r"[a-z_]+(\.[a-z_]+)?", lambda word: flags.get(word[0]) or bare.get(word[0], word[0]), problem
    )


def job_table(workload: Workload, given: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Remove the workload's flags from `given` and return the job's table. Paths become absolute: the run, or a
    repetition of it, may have another working folder."""
    settings = _with_numbers(given_values(workload.settings, given), given.get("host"))
    settings |= {name: str(Path(settings[name]).absolute()) for name in paths if settings.get(name)}
    options = given_values(workload.optimizations.values(), given)
    return {"workload": workload.name, workload.name: settings, "options": options}


def _with_numbers(settings: dict[str, Any], host: str | None) -> dict[str, Any]:
    """The settings with a number for each run named `last` or by its label."""
    for name, workloads in RUN_OF.items():
        if not isinstance(named := settings.get(name), str):
            continue
        if host is not None:
            raise Usage(f"--{name.replace('_', '-')} {named} names a run here", f"give its number on {host}")
        from kgops.cli.session import existing

        settings[name] = existing().run(named, workloads).id
    return settings


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
    if option.name in RUN_OF:
        return {"type": RunName(), "metavar": "RUN"}
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
    default = option.shown_default or ("" if option.default is None else str(on_or_off(option.default)))
    return option.help + (f"  [default: {default}]" if default else "")
