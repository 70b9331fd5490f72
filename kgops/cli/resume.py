"""`kgops resume`: continue an ended run with a new attempt."""

from __future__ import annotations

import click

from kgops.cli.follow import follow
from kgops.cli.output import say, tell
from kgops.cli.session import for_writing, is_far
from kgops.jobs.files import size_of
from kgops.settings import find_home
from kgops.streams import tolerate_output_errors
from kgops.supervisor.launch import resume


@click.command(epilog="\b\nExample:  kgops resume 42 --detach")
@click.argument("name", metavar="RUN")
@click.option("--detach", is_flag=True, help="Print the run number and return at once.")
@click.option("--token", hidden=True, help="Resume it once, however often it is asked for with this word.")
@click.pass_context
def command(ctx: click.Context, name: str, detach: bool, token: str | None) -> None:
    """Continue a run that was interrupted, stopped, failed or out of memory with a new attempt.

    The attempt continues from the last checkpoint if the workload writes checkpoints. An exec command restarts,
    with KGOPS_ATTEMPT increased. lab2:17 is run 17 of host lab2, where it goes on without being followed."""
    if is_far(name):
        _resume_there(name)
        return
    session = for_writing()
    run = session.run(name)
    log = session.folder(run).log
    log_from = size_of(log)
    resume(session.home, session.conn, run.id, lambda text: tell(f"Warning: {text}."), token=token)
    tolerate_output_errors()
    if detach:
        say(str(run.id))
        return
    ctx.exit(follow(session, run.id, log_from=log_from))


def _resume_there(name: str) -> None:
    from kgops.hosts import registry
    from kgops.hosts.run_actions import split_name
    from kgops.hosts.starting import resume_there

    home = find_home()
    host, number = split_name(name, registry.read(home))
    say(f"{host.name}:{resume_there(home, host, number, lambda text: tell(f'Note: {text}'))}")
