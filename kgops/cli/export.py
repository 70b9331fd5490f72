"""`kgops export`: runs for other programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from kgops.cli.output import say
from kgops.cli.session import Session, existing
from kgops.errors import Unavailable, Usage
from storage import transfer
from storage.runs import Run
from storage.transfer import Rows

_Writer = Callable[[Iterator[Rows], Path], None]


@click.command(epilog="\b\nExample:  kgops export 12 17 --to json --out two-runs.json")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option("--to", "wanted", required=True, type=click.Choice(["json"]), help="For whom.")
@click.option("--out", type=click.Path(path_type=Path), help="Default: a name made of the runs' numbers.")
@click.option("--force", is_flag=True, help="Write over what is there.")
def command(names: tuple[str, ...], wanted: str, out: Path | None, force: bool) -> None:
    """Write runs for other programs.

    \b
    json         all of a run, exactly: `kgops import` makes the same run of it again
    """
    session = existing()
    chosen = [session.run(name) for name in dict.fromkeys(names)]
    target = out or Path(_default(chosen, wanted))
    if target.exists() and not force:
        raise Usage(f"{target} is there already", "--force writes over it")
    try:
        _write_json(_rows(session, chosen), target)
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {os.strerror(error.errno or 0)}") from error
    say(str(target))


def _default(chosen: list[Run], wanted: str) -> str:
    first = f"run-{chosen[0].id}" if len(chosen) == 1 else f"runs-{chosen[0].id}-and-{len(chosen) - 1}-more"
    return first + {"json": ".json"}.get(wanted, f"-{wanted}")


def _rows(session: Session, chosen: list[Run]) -> Iterator[Rows]:
    for run in chosen:
        rows = transfer.take_out(session.conn, run.id)
        if rows is None:
            raise Usage(f"run {run.id} was deleted meanwhile")
        yield rows


def _write_json(rows: Iterator[Rows], target: Path) -> None:
    """Under its name only when it is whole."""
    from kgops.runs.exporting.record import write_runs

    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with half.open("w", encoding="utf-8") as file:
            file.writelines(write_runs(rows))
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)
