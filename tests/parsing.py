"""Asking click whether a command line would be taken, without doing what it says."""

import click


def parse(command: click.Command, name: str, args: list[str], parent: click.Context | None = None) -> None:
    """As click does before it calls anything; raises where the arguments are wrong."""
    ctx = command.make_context(name, list(args), parent=parent)
    rest = [*ctx._protected_args, *ctx.args]
    if isinstance(command, click.Group) and rest:
        _, sub, left = command.resolve_command(ctx, rest)
        assert sub is not None
        parse(sub, rest[0], left, ctx)
