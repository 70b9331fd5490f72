"""`kgops NAME`: the command of a workload, made from its declarations."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kgops.cli.job_options import (
    GroupedHelp,
    GroupOption,
    add_options,
    click_options,
    job_of_flags,
    job_table,
)
from kgops.cli.launching import common_options, merged, start
from kgops.cli.output import tell
from kgops.jobs.job import Job
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.workload import Words


class _OfModel(GroupedHelp):
    """Accepts `1` before the flags as `--run 1`, and the words after it as the triple, or as head and relation of a
    question. Accepts `--triple a treats b` as three words, so that labels may have spaces."""

    flag = ""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[RUN]", *super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((i for i, word in enumerate(args) if word.startswith("-")), len(args))
        if first and not any(word.partition("=")[0] == "--run" for word in args):
            args = ["--run", args[0], *self._asked(args[1:first]), *args[first:]]
        if self.flag in args:
            at = args.index(self.flag) + 1
            three = args[at : at + 3]
            if len(three) == 3 and not any(part.startswith("--") for part in three):
                args = [*args[:at], "\t".join(three), *args[at + 3 :]]
        return super().parse_args(ctx, args)

    def _asked(self, words: list[str]) -> list[str]:
        if self.flag:
            return [self.flag, *words] if words else []
        if self.name != "predict":
            return words
        flags = ("--head", "--relation", "--tail")
        return [one for pair in zip(flags, words, strict=False) for one in pair] + words[len(flags) :]


def words_of(name: str) -> Words:
    words = WORKLOADS[name].words
    assert words is not None  # workloads without flags have no command here
    return words


def parser_of(name: str) -> type[GroupedHelp]:
    """Class of a command with the flags of this workload."""
    if not WORKLOADS[name].reads_model:
        return GroupedHelp
    triple = words_of(name).triple
    return type(
        "OfModel", (_OfModel,), {"flag": "" if triple is None else f"--{triple[0].replace('_', '-')}"}
    )


def command_of(name: str) -> click.Command:
    words = words_of(name)

    @click.command(
        name, cls=parser_of(name), help=words.help, epilog=f"\b\nExample:  kgops {name} {words.example}"
    )
    @common_options
    @click.pass_context
    def command(ctx: click.Context, /, **given: Any) -> None:
        job = job_of(name, given)
        for note in words.notes(job.settings):
            tell(f"note: {note}")
        ctx.exit(start(job, merged(ctx, given)))

    made: click.Command = command
    add_options(made, flags_of(name))
    return made


def job_of(name: str, given: dict[str, Any]) -> Job:
    """Remove the job's flags from `given` and return the job."""
    words = words_of(name)
    start_from = import_module(words.starts_from) if words.starts_from is not None else None
    named = given.pop(start_from.FLAG) if start_from is not None else None
    if words.triple is not None:
        one, file = words.triple
        if given[one] is not None and given[file] is None and Path(given[one]).is_file():
            given |= {one: None, file: given[one]}
    table = job_table(WORKLOADS[name], given, words.paths)
    for option, value in words.implied(table[name]).items():
        table["options" if option in WORKLOADS[name].optimizations else name].setdefault(option, value)
    if start_from is not None and named is not None:
        table = start_from.with_changes(named, table)
    return job_of_flags(table)


def flags_of(name: str) -> list[click.Option]:
    words = words_of(name)
    flags: list[click.Option] = []
    if words.starts_from is not None:
        start_from = import_module(words.starts_from)
        flag = f"--{start_from.FLAG}"
        flags.append(
            GroupOption([flag], metavar=start_from.METAVAR, help=start_from.help_text(), group="data")
        )
    return [*flags, *click_options(WORKLOADS[name].options)]
