"""`kgops bench matrix`: a job in every combination of some settings, the runs taking turns."""

from __future__ import annotations

import shlex

import click

from kgops.cli.bench_page import page
from kgops.cli.jobs_by_name import job_by_name
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_writing
from kgops.experiments.comparison import Context, PairedComparison, run_comparison
from kgops.experiments.variants import combinations, read_axis, variants


@click.command(
    epilog="\b\nExample:  kgops bench matrix job.toml --vary batch_size=256,512 --vary precision=fp32,bf16"
)
@click.argument("job", metavar="FILE.toml|RUN|RECIPE")
@click.option("--vary", "varied", multiple=True, required=True, metavar="NAME=A,B", help="May be repeated.")
@click.option(
    "--repeat", default=5, show_default=True, type=click.IntRange(1, 1000), help="Rounds, and so pairs."
)
@click.option(
    "--afresh", is_flag=True, help="Begin anew, where an unfinished one of this very plan would go on."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(job: str, varied: tuple[str, ...], repeat: int, afresh: bool, as_json: bool) -> None:
    """Run a job with settings varied, in turns, and compare pair by pair.

    NAME is an option, a key of the workload's table, or a {placeholder} of a command. The first value of each is the
    baseline. Ended or killed half-way, the same command goes on with the pairs that are missing.
    """
    axes = [read_axis(text) for text in varied]
    session = for_writing()
    jobs = variants(job_by_name(session, job), axes)
    comparison = PairedComparison(f"matrix {job}", jobs, repeat, settings=combinations(axes))
    words = ["kgops", "bench", "matrix", job, *(word for text in varied for word in ("--vary", text))]
    words += ["--repeat", str(repeat)]
    bench = run_comparison(
        Context(session.home, session.conn, tell), comparison, shlex.join(words), afresh=afresh
    )
    if as_json:
        from kgops.experiments.export import as_table

        print_json(as_table(session.conn, bench))
        return
    for line in page(session.conn, bench):
        say(line)
