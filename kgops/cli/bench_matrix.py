"""`kgops bench matrix`: run a job with every combination of settings, interleaved, and compare them in pairs."""

from __future__ import annotations

import shlex

import click

from kgops.cli.bench_page import say_bench
from kgops.cli.command_line import job_by_name
from kgops.cli.output import tell
from kgops.cli.session import for_writing
from kgops.experiments.comparison import Context, PairedComparison, run_comparison
from kgops.experiments.variants import combinations, read_axis, variants
from kgops.workloads.outputs import without_outputs


@click.command(
    epilog="\b\nExample:  kgops bench matrix job.toml --vary batch_size=256,512 --vary precision=fp32,bf16"
)
@click.argument("job", metavar="FILE.toml|RUN|RECIPE")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="NAME=A,B",
    help="Values to compare; may be repeated.",
)
@click.option(
    "--repeat",
    default=5,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Rounds: pairs for each variant.",
)
@click.option("--afresh", is_flag=True, help="Start again instead of continuing an unfinished benchmark.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(job: str, varied: tuple[str, ...], repeat: int, afresh: bool, as_json: bool) -> None:
    """Run every combination of some settings, interleaved, and compare each with the baseline in pairs.

    NAME is an option, a key of the workload's table (in a pipeline with its stage: train.num_epochs), or a
    {placeholder} of a command. The baseline has the first value of each. If the benchmark was interrupted, the same
    command runs the missing pairs.
    """
    axes = [read_axis(text) for text in varied]
    session = for_writing()
    asked = job_by_name(session, job)
    base = without_outputs(asked)
    if base is not asked:
        tell("Note: the runs of a benchmark copy their results nowhere: the job's output is left out.")
    jobs = variants(base, axes)
    comparison = PairedComparison(f"matrix {job}", jobs, repeat, settings=combinations(base, axes))
    arguments = ["kgops", "bench", "matrix", job, *(word for text in varied for word in ("--vary", text))]
    arguments += ["--repeat", str(repeat)]
    bench = run_comparison(
        Context(session.home, session.conn, tell), comparison, shlex.join(arguments), afresh=afresh
    )
    say_bench(session.conn, bench, as_json)
