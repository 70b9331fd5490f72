"""`kgops bench claims`: measure the options of the scripts' documents on this machine, and say which pay."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import click

from kgops.cli.claims_page import lines
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import for_writing
from kgops.experiments.claim_tables import comparisons
from kgops.experiments.claims import page
from kgops.experiments.comparison import Context, run_comparison
from kgops.experiments.documented import TABLES
from kgops.gpus.facts import facts_here
from kgops.present.formats import columns, duration


@click.command(epilog="\b\nExample:  kgops bench claims --quick --only b")
@click.option(
    "--quick", is_flag=True, help="Small versions: a few minutes on two cores. Results are marked as quick."
)
@click.option("--only", "wanted", type=click.Choice([*TABLES]), help="Measure only this table.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with train.txt for a and b; default: a synthetic graph.",
)
@click.option("--afresh", is_flag=True, help="Start again instead of continuing an unfinished benchmark.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(quick: bool, wanted: str | None, data: Path | None, afresh: bool, as_json: bool) -> None:
    """Measure which options of the scripts' documents pay on this machine's GPU, or on its CPU without one.

    \b
    a  training ConvE: FP16, bf16, cleanup, checkpointing, compile, kgops
    b  TracIn: the same, last layers, caching, vectorised gradients, filtering, kgops
    c  the loss over all entities: dense labels, the documents' efficient loss, kgops
    d  the regression network: FP16, checkpointing, compile, the small model

    `kgops bench show claims` shows the page again.
    """
    begun = time.monotonic()
    # Part of the fingerprint: on a CPU, variants are compared on one thread.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    session = for_writing()
    context = Context(session.home, session.conn, tell)
    gpu = facts_here(None)
    if gpu is not None and gpu.cuda_problem is not None:
        tell(f"Note: measuring on the CPU: {gpu.cuda_problem.reason}; {gpu.cuda_problem.hint}.")
    for name in [wanted] if wanted else TABLES:
        arguments = ["kgops", "bench", "claims", *(["--quick"] if quick else []), "--only", name]
        arguments += ["--data", "DIR"] if data else []
        on_gpu = gpu is not None and gpu.cuda_problem is None
        for one in comparisons(name, quick=quick, data=data, gpu=on_gpu):
            run_comparison(context, one, shlex.join(arguments), afresh=afresh)
    found = page(session.conn)
    if as_json:
        print_json(found.as_table())
        return
    for line in lines(found, columns()):
        say(line)
    tell(f"It took {duration(time.monotonic() - begun)}.")
