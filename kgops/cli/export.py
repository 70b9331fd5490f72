"""`kgops export`: write runs as JSON, CSV or TensorBoard files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from kgops.cli.groups import OfRuns
from kgops.cli.output import say
from kgops.cli.session import Session, existing
from kgops.errors import Unavailable, Usage
from storage import transfer
from storage.runs import Run
from storage.transfer import Rows

# Format → help. JSON is one file, the others are folders.
FORMATS: dict[str, str] = {
    "json": "the whole record of runs, for `kgops import`; not their files, such as models, answers and explanations:"
    " tar",
    "csv": "a folder with runs.csv, metrics.csv and series.csv; only runs.csv if --output ends with .csv",
    "tensorboard": "a folder for `tensorboard --logdir`, which stores 32-bit values",
    "tar": "the folder with all files of one run that has ended, for `kgops pull`; `--output -` is stdout",
}


class _Export(OfRuns):
    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Formats"):
            formatter.write_dl(list(FORMATS.items()))


@click.command(
    "export", cls=_Export, epilog="\b\nExample:  kgops export 12 17 --to json --output two-runs.json"
)
@click.argument("names", metavar="[RUN]...", nargs=-1)
@click.option(
    "--to",
    "--format",
    "wanted",
    type=click.Choice(list(FORMATS)),
    help="Format; by default that of the output's name.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Output file or folder, by default named after the runs' numbers. With json and tar, `-` is stdout.",
)
@click.option("--csv", "wanted", flag_value="csv", hidden=True)
@click.option("--json", "wanted", flag_value="json", hidden=True)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(names: tuple[str, ...], wanted: str | None, output: Path | None, force: bool) -> None:
    """Export runs for other programs, or for another kgops; all runs without RUN.

    RUN is a number, a label, `last`, `all`, or a filter as of `kgops runs`: `kgops export tag:paper --to csv`.
    """
    if output is None and names and Path(names[-1]).suffix[1:] in FORMATS:
        *others, last = names
        names, output = tuple(others), Path(last)
    wanted = wanted or (output.suffix[1:] if output is not None and output.suffix[1:] in FORMATS else None)
    if wanted is None:
        raise Usage("--to is missing: the format", "kgops export --to csv --output runs.csv")
    if output == Path("-") and wanted not in ("json", "tar"):
        raise Usage(f"{wanted} is written to files", "name them: --output PATH")
    session = existing()
    chosen = session.matching(names or ("all",))
    if wanted == "tar" and len(chosen) > 1:
        raise Usage(f"tar holds one run; {len(chosen)} match", "name one run")
    target = output or Path(_default(chosen, wanted))
    folder = _ended_folder(session, chosen[0]) if wanted == "tar" else None
    if target == Path("-"):
        _print(session, chosen, folder)
        return
    try:
        if folder is not None:
            _write_tar(folder, target, force=force)
        else:
            _writer(wanted)(_rows(session, chosen), target, force=force)
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {os.strerror(error.errno or 0)}") from error
    say(str(target))


def _print(session: Session, chosen: list[Run], folder: Path | None) -> None:
    """The folder as tar, or the runs as JSON."""
    if folder is not None:
        from kgops.hosts.archive import write_archive

        write_archive(folder, sys.stdout.buffer)
        return
    from kgops.supervisor.run_json import write_runs

    for text in write_runs(_rows(session, chosen)):
        sys.stdout.write(text)


def _ended_folder(session: Session, run: Run) -> Path:
    if not run.ended:
        raise Usage(f"run {run.id} has not ended", "export it after it has ended")
    folder = session.folder(run).path
    if not folder.is_dir():
        raise Unavailable(
            f"the folder of run {run.id} is gone: {folder}", "--to json exports what the record has"
        )
    return folder


def _write_tar(folder: Path, target: Path, *, force: bool) -> None:
    from kgops.hosts.archive import write_archive
    from kgops.jobs.run_options import must_be_free, written

    must_be_free(target, force=force)
    with written(target) as file:
        write_archive(folder, file)


def _default(chosen: list[Run], wanted: str) -> str:
    first = f"run-{chosen[0].id}" if len(chosen) == 1 else f"runs-{chosen[0].id}-and-{len(chosen) - 1}-more"
    return f"{first}.{wanted}" if wanted in ("json", "tar") else f"{first}-{wanted}"


def _rows(session: Session, chosen: list[Run]) -> Iterator[Rows]:
    for run in chosen:
        rows = transfer.read_rows(session.conn, run.id)
        if rows is None:
            raise Usage(f"run {run.id} was deleted during the export")
        yield rows


def _writer(wanted: str) -> Callable[..., None]:
    """Import the writer of this format only."""
    from importlib import import_module

    modules = {"json": "supervisor.run_json", "csv": "interchange.export"}
    module = import_module(f"kgops.{modules.get(wanted, f'interchange.{wanted}')}")
    writer: Callable[..., None] = getattr(module, f"write_{wanted}")
    return writer
