"""`kgops bench export`: write benchmarks and measured values as Markdown, JSON, CSV, Parquet, SVG or PNG."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kgops.cli.bench_show import find
from kgops.cli.output import say, tell
from kgops.cli.session import existing
from kgops.errors import Usage
from kgops.experiments import export
from kgops.experiments.export import write
from kgops.present.pictures import Picture, as_png, as_svg
from storage import measurements

KINDS = ("md", "json", "csv", "parquet", "svg", "png")
CHARTS = ("svg", "png")


@click.command(epilog="\b\nExample:  kgops bench export 3 --to svg --output speed.svg")
@click.argument("bench", required=False)
@click.option(
    "--to", "kind", type=click.Choice(KINDS), required=True, help="Format; md, svg and png need BENCH."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Output file, of charts for the first one; default: stdout, for charts bench-N-*.svg (.png) in this folder.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(bench: str | None, kind: str, output: Path | None, force: bool) -> None:
    """Export one benchmark, or without BENCH all measured values.

    \b
    md       a table for a paper, with command and fingerprint
    json     the whole benchmark, down to each run of each pair
    csv      the values, one per line
    parquet  the values as one table; needs pyarrow
    svg      charts: time against memory with the Pareto front, and time against each varied number
    png      the charts as pixels; needs Pillow
    """
    if kind in ("md", *CHARTS) and bench is None:
        raise Usage(f"--to {kind} needs a benchmark", "give its number: `kgops bench show` lists them")
    if kind == "parquet" and (output is None or (output.exists() and not force)):
        raise Usage(
            f"{output} exists" if output else "--to parquet needs a file",
            "give --output FILE; --force overwrites" if output else "give --output FILE",
        )
    session = existing()
    conn = session.conn
    benchmark = None if bench is None else find(session, bench)
    if kind in CHARTS:
        assert benchmark is not None
        _charts(export.charts(conn, benchmark), kind, benchmark.id, output, force)
        return
    if benchmark is not None and kind in ("md", "json"):
        table = (
            export.as_markdown(conn, benchmark) if kind == "md" else _json(export.as_table(conn, benchmark))
        )
        _put(table, output, force)
        return
    values = measurements.all_of(conn, benchmark.id if benchmark else None)
    if kind == "parquet":
        assert output is not None
        export.write_parquet(values, output, force=force)
        say(str(output))
        return
    _put(export.as_csv(values) if kind == "csv" else export.as_json(values), output, force)


def _charts(pictures: dict[str, Picture], kind: str, number: int, output: Path | None, force: bool) -> None:
    """Write the first chart to `output` if given, and say which are left out; otherwise each to its default file."""
    if not pictures:
        raise Usage(f"benchmark {number} has no chart", "it measured no memory and varied no number")
    if output is not None:
        drawn, *others = pictures
        if others:
            tell(
                f"Note: one file has one chart, {drawn}; without --output there are also {', '.join(others)}."
            )
        pictures = {"": pictures[drawn]}
    for name, picture in pictures.items():
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        path = output or Path(f"bench-{number}-{safe}.{kind}")
        write(path, as_svg(picture) if kind == "svg" else as_png(picture), force=force)
        say(str(path))


def _put(text: str, output: Path | None, force: bool) -> None:
    if output is None:
        say(text.rstrip("\n"))
        return
    write(output, text, force=force)
    say(str(output))


def _json(table: object) -> str:
    return json.dumps(table, indent=1) + "\n"
