"""`kgops bench`: run paired comparisons, and show, compare, export or import benchmarks."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgops.cli.groups import NamedCommands
from kgops.cli.output import print_json, say, tell, write_page
from kgops.jobs.text import one_line

if TYPE_CHECKING:
    from kgops.experiments.export import Imported

# Those not in this file are commands in kgops/cli/bench_NAME.py.
VERBS: dict[str, str] = {
    "claims": "Measure which options pay on this machine.",
    "matrix": "Compare any job with settings varied, in interleaved runs.",
    "show": "Show benchmarks, or which options pay here.",
    "compare": "Compare two benchmarks and say whether they agree.",
    "export": "Export a benchmark as Markdown or JSON.",
    "import": "Import benchmarks exported on another machine.",
}


class _Verbs(NamedCommands):
    summaries = VERBS

    def find(self, name: str) -> click.Command:
        here: dict[str, click.Command] = {"matrix": matrix, "export": export, "import": import_}
        if name in here:
            return here[name]
        command: click.Command = importlib.import_module(f"kgops.cli.bench_{name}").command
        return command


@click.group(cls=_Verbs, epilog="\b\nExample:  kgops bench claims --quick --only b")
def command() -> None:
    """Measure speed and memory on this machine, and compare the results."""


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
def matrix(job: str, varied: tuple[str, ...], repeat: int, afresh: bool, as_json: bool) -> None:
    """Run every combination of some settings, interleaved, and compare each with the baseline in pairs.

    NAME is an option, a key of the workload's table (in a pipeline with its stage: train.num_epochs), or a
    {placeholder} of a command. The baseline has the first value of each. If the benchmark was interrupted, the same
    command runs the missing pairs.
    """
    import shlex

    from kgops.cli.bench_page import say_bench
    from kgops.cli.command_line import job_by_name
    from kgops.cli.session import for_writing
    from kgops.experiments.comparison import Context, PairedComparison, run_comparison
    from kgops.experiments.variants import combinations, read_axis, variants
    from kgops.workloads.outputs import without_outputs

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


@click.command(epilog="\b\nExample:  kgops bench export 3 --to md --output speed.md")
@click.argument("bench")
@click.option("--to", "kind", type=click.Choice(("md", "json")), required=True, help="Format.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Output file; default: stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def export(bench: str, kind: str, output: Path | None, force: bool) -> None:
    """Export one benchmark.

    \b
    md       a table for a paper, with command and fingerprint
    json     the whole benchmark, down to each run of each pair, for `kgops bench import`
    """
    from kgops.cli.bench_page import as_markdown
    from kgops.cli.bench_show import find
    from kgops.cli.session import existing
    from kgops.experiments.export import as_table

    session = existing()
    conn, one = session.conn, find(session, bench)
    text = as_markdown(conn, one) if kind == "md" else json.dumps(as_table(conn, one), indent=1)
    if output is None:
        say(text)
    else:
        write_page(text + "\n", output, force=force)


@click.command(epilog="\b\nExample:  kgops bench import bench-3.json")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def import_(paths: tuple[Path, ...], as_json: bool) -> None:
    """Import files that `kgops bench export --to json` wrote on any machine.

    A benchmark keeps its pairs, ratios, verdicts and the fingerprint of its machine.
    Benchmarks that are already in the database are reported and not changed.
    """
    from kgops.cli.session import for_writing
    from kgops.experiments.export import import_file

    session = for_writing()
    imported = []
    for path in paths:
        imported.append(import_file(session.conn, path))
        if not as_json:
            _say(imported[-1])
    if as_json:
        print_json([asdict(one) for one in imported])


def _say(one: Imported) -> None:
    what = one_line(one.what, 160)
    if one.known:
        tell(f"already imported as benchmark {one.bench}: {what}")
    else:
        say(f"benchmark {one.bench}: imported {what}")
