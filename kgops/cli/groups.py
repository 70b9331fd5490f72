"""Click groups that know their commands by name and summary, and import only the one that is called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import click

from kgops.errors import Usage

hosts_option = click.option(
    "--hosts",
    "--host",
    "hosts",
    metavar="NAMES",
    help="Of these hosts: all, or names and groups with commas.",
)


class NamedCommands(click.Group, ABC):
    """Subclasses define `summaries` (command → summary) and `find` (its command)."""

    summaries: Mapping[str, str]
    heading = "Commands"

    @abstractmethod
    def find(self, name: str) -> click.Command: ...

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.find(cmd_name) if cmd_name in self.summaries else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.summaries:
            self.fail_unknown(ctx, "command", args[0])
        return super().resolve_command(ctx, args)

    def fail_unknown(self, ctx: click.Context, what: str, name: str) -> None:
        from kgops.jobs.option_reading import nearest  # here: only a typing error needs it

        ctx.fail(f"no such {what} {name!r:.60}{nearest(name, self.summaries)}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(self.heading):
            formatter.write_dl(list(self.summaries.items()))


def of_trainings(command: click.Command, args: list[str]) -> list[str]:
    """Flags that stand where a workload is missing are those of a training."""
    own = {"--help", *(name for one in command.params for name in one.opts)}
    is_foreign = bool(args) and args[0].startswith("--") and args[0].partition("=")[0] not in own
    return ["train", *args] if is_foreign else args


class OfRuns(click.Command):
    """A command that takes filters as arguments. It reads `--state failed` as `state:failed`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, [*args])
        except click.NoSuchOption:
            if (words := self._with_filter(args)) is None:
                raise
            return super().parse_args(ctx, words)

    def _with_filter(self, args: list[str]) -> list[str] | None:
        """The words with their unknown flags as one filter; None if they are none."""
        from kgops.cli.session import is_filter
        from storage.filters import FIELDS

        takes_value = {name: not getattr(one, "is_flag", True) for one in self.params for name in one.opts}
        terms, others, words = [], [], iter(args)
        for word in words:
            name, equals, value = word.partition("=")
            key = name.lstrip("-").removesuffix("-than").replace("status", "state")
            if name in takes_value:
                others += [word, next(words, "")] if takes_value[name] and not equals else [word]
            elif is_filter(word) or word == "--all":
                terms.append(key if word == "--all" else word)
            elif word.startswith("--") and is_filter(key):
                terms.append(f"state:{key}")
            elif word.startswith("--") and key in FIELDS and (value := value or next(words, "")):
                terms.append(f"{key}:{value}")
            else:
                return None
        return [" ".join(terms), *others]


class ByWorkload(NamedCommands):
    """Takes a workload or a job file (`-`: standard input): `kgops run train …`, `kgops run job.toml`."""

    heading = "Workloads"

    @abstractmethod
    def of_file(self) -> click.Command:
        """The command for job files."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.summaries:
            if args[0] == "pipeline":
                raise Usage(
                    "a pipeline is a job file: it trains, predicts and traces as one run",
                    'write workload = "pipeline" in FILE.toml, then  kgops run FILE.toml',
                )
            if args[0] != "-" and not args[0].endswith(".toml") and not Path(args[0]).is_file():
                self.fail_unknown(ctx, "workload or job file:", args[0])
            if args[0].endswith((".py", ".sh")):
                raise Usage(f"{args[0]} is a script, not a job file", f"kgops exec -- {_started_by(args)}")
            return "FILE", self.of_file(), args
        return super().resolve_command(ctx, args)


def _started_by(words: list[str]) -> str:
    """The words that start a script."""
    import shlex  # here, or every command would wait for it

    program = "python" if words[0].endswith(".py") else "sh"
    return shlex.join([program, *words])
