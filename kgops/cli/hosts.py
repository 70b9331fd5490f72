"""`kgops hosts`: name other machines with kgops, list, check and remove them."""

from __future__ import annotations

import click

from kgops.cli.output import print_json, say, say_lines, tell
from kgops.hosts import registry
from kgops.hosts.registry import Host
from kgops.present.formats import table
from kgops.settings import find_home


@click.group(invoke_without_command=True, epilog="\b\nExample:  kgops hosts")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the named hosts, which your own SSH configuration, keys and agent reach; no password is asked for."""
    if ctx.invoked_subcommand is not None:
        return
    hosts = registry.read(find_home())
    if as_json:
        print_json([host._asdict() for host in hosts.values()])
    elif not hosts:
        tell("No host is named yet. Name one:  kgops hosts add lab1 user@host")
    else:
        rows = [(host.name, host.address, host.kgops, host.group or "") for host in hosts.values()]
        say_lines(table(("HOST", "ADDRESS", "KGOPS THERE", "GROUP"), rows))


@command.command(
    epilog="\b\nExample:  kgops hosts add lab1 ada@lab1.example.org --kgops '~/kgops/.venv/bin/kgops'"
)
@click.argument("name")
@click.argument("address", required=False)
@click.option(
    "--kgops", "path", default="kgops", show_default=True, help="The command there; ~/ is its home."
)
@click.option("--group", help="Name of a group, to name its hosts together.")
def add(name: str, address: str | None, path: str, group: str | None) -> None:
    """Name a host. ADDRESS is user@host, or an alias of ~/.ssh/config; without one, NAME is the alias.

    A host that has the name already is replaced.
    """
    is_new = registry.add(find_home(), Host(name, address or name, path, group))
    tell(f"{'Added' if is_new else 'Changed'} host {name}. Try it:  kgops hosts check {name}")


@command.command(epilog="\b\nExample:  kgops hosts remove lab1")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Forget hosts. Nothing changes there."""
    registry.remove(find_home(), names)
    tell(f"Removed {', '.join(names)}.")


@command.command(epilog="\b\nExample:  kgops hosts check all")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Connect to hosts or groups (default: all), and say what answers; exit code 1 if one does not."""
    from kgops.hosts.rows import OUTDATED, is_outdated
    from kgops.hosts.watch import first_pictures

    home = find_home()
    states = first_pictures(home, registry.pick(registry.read(home), ",".join(names) or registry.ALL))
    answered = [state.has_picture for state in states]
    if as_json:
        print_json(
            [
                {
                    "host": state.name,
                    "address": state.address,
                    "answers": state.has_picture,
                    "kgops": state.version,
                    "gpus": len(state.rows("gpu")) if state.has_picture else None,
                    "states_may_be_outdated": is_outdated(state) if state.has_picture else None,
                    "problem": state.problem,
                    "hint": state.hint,
                }
                for state in states
            ]
        )
    else:
        for state in states:
            if not state.has_picture:
                say(f"{state.name}: {state.problem or 'no answer'}")
                if state.hint:
                    say(f"  → {state.hint}")
                continue
            host = state.rows("host").get("host", {})
            gpus = sum(":" not in label for label in state.rows("gpu"))
            note = f"; {host['problem']}" if host.get("problem") else ""
            version = state.other_version or f"kgops {state.version or 'n/a'}"
            if is_outdated(state):
                note += f"; {OUTDATED}; `kgops runs --hosts {state.name}` settles them"
            say(
                f"{state.name}: {version}, {gpus} GPU{'' if gpus == 1 else 's'}, "
                f"{host.get('runs') or 0} runs{note}"
            )
    ctx.exit(0 if all(answered) else 1)
