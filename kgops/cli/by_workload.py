"""Click group that takes a workload or a job file (`-`: standard input): `kgops run train …`, `kgops run job.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from kgops.options.reading import nearest

__all__ = ["ByWorkload"]


class ByWorkload(click.Group):
    """Subclasses define `kinds` (workload → summary), `find` (its command) and `of_file` (command for job files)."""

    kinds: Mapping[str, str]

    def find(self, workload: str) -> click.Command:
        raise NotImplementedError

    def of_file(self) -> click.Command:
        raise NotImplementedError

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.kinds)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.find(cmd_name) if cmd_name in self.kinds else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Workloads"):
            formatter.write_dl(list(self.kinds.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.kinds:
            if args[0] != "-" and not args[0].endswith(".toml") and not Path(args[0]).is_file():
                ctx.fail(f"no such workload or job file: {args[0]!r}{nearest(args[0], self.kinds)}")
            return "FILE", self.of_file(), args
        return super().resolve_command(ctx, args)
