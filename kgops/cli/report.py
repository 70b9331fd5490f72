"""`kgops report`: write a run as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from kgops.cli.output import write_page
from kgops.cli.session import existing, is_far
from kgops.present.explained_run import read_explained_run
from kgops.present.influences import of_run
from kgops.present.report_page import page
from kgops.present.run_detail import LogTail, read_run_detail
from kgops.workloads.results import leaves


@click.command(
    epilog="\b\nExample:  kgops report 42 --output run-42.html\n          kgops report lab2:17 --output lab2-17.html"
)
@click.argument("name", metavar="RUN")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Output file; default: run-N.html in this folder."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(name: str, output: Path | None, force: bool) -> None:
    """Write a run as one self-contained HTML page: results, curves, memory, options, the record.

    lab2:17 is run 17 of host lab2, which may still run.
    """
    if is_far(name):
        from kgops.cli.host_run import report_there

        found, number = report_there(name)
        write_page(found, output or Path(f"run-{number.replace(':', '-')}.html"), force=force)
        return
    session = existing()
    run = session.run(name)
    detail = read_run_detail(session.home, session.conn, run.id)
    assert detail is not None  # the run existed a moment ago
    log = LogTail(detail.path, at_most=200).look(final=run.ended)
    influences = of_run(session.home, run.id) if leaves(run.workload, "influences") else None
    target = output or Path(f"run-{run.id}.html")
    has_explanations = leaves(run.workload, "explanations")
    explained = read_explained_run(session.home, run, every=True) if has_explanations else None
    write_page(page(detail, log, influences, explained), target, force=force)
