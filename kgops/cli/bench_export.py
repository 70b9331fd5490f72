"""`kgops bench export`: benchmarks and values for papers, tables and other programs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kgops.cli.bench_show import find
from kgops.cli.output import say
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.experiments import export
from kgops.experiments.export import write
from kgops.experiments.png import as_png
from kgops.experiments.svg import Picture, as_svg
from storage import measurements

KINDS = ("md", "json", "csv", "parquet", "svg", "png")
CHARTS = ("svg", "png")


@click.command(epilog="\b\nExample:  kgops bench export 3 --to svg --out speed.svg")
@click.argument("bench", required=False)
@click.option(
    "--to", "kind", type=click.Choice(KINDS), required=True, help="md, svg and png are of one benchmark."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="A file; without it, stdout, or bench-N-*.svg (.png) here."
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(bench: str | None, kind: str, out: Path | None, force: bool) -> None:
    """Write out a benchmark, or without one, all values that were measured.

    \b
    md       the table, for a paper, with its command and fingerprint
    json     all of a benchmark, down to each run of each pair
    csv      the values, one a line; parquet the same
    svg      time against memory with the Pareto front, and time against each number that was varied
    png      the same in pixels, for what reads no SVG; needs Pillow
    """
    session = existing()
    conn = session.conn
    one = None if bench is None else find(session, bench)
    if kind in ("md", *CHARTS) and one is None:
        raise Usage(f"--to {kind} is of one benchmark", "name it: `kgops bench show` lists them")
    if kind in CHARTS:
        assert one is not None
        _charts(export.charts(conn, one), kind, one.id, out, force)
        return
    if one is not None and kind in ("md", "json"):
        table = export.as_markdown(conn, one) if kind == "md" else _json(export.as_table(conn, one))
        _put(table, out, force)
        return
    found = measurements.page(
        conn, measurements.MeasurementFilter(bench=one.id if one else None), descending=False
    )
    if kind == "parquet":
        if out is None or (out.exists() and not force):
            raise Usage(f"{out} is there already" if out else "--to parquet needs a file", "give --out FILE")
        export.write_parquet(found, out)
        say(str(out))
        return
    _put(export.as_csv(found) if kind == "csv" else export.as_json(found), out, force)


def _charts(drawn: dict[str, Picture], kind: str, number: int, out: Path | None, force: bool) -> None:
    """To one file if it is named: the first; all of them otherwise."""
    if not drawn:
        raise Usage(
            f"there is nothing to draw of benchmark {number}", "no memory is known and no number was varied"
        )
    if out is not None:
        drawn = {"": next(iter(drawn.values()))}
    for name, picture in drawn.items():
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        path = out or Path(f"bench-{number}-{safe}.{kind}")
        write(path, as_svg(picture) if kind == "svg" else as_png(picture), force=force)
        say(str(path))


def _put(text: str, out: Path | None, force: bool) -> None:
    if out is None:
        say(text.rstrip("\n"))
        return
    write(out, text, force=force)
    say(str(out))


def _json(table: object) -> str:
    return json.dumps(table, indent=1) + "\n"
