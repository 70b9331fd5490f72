"""`kgops bench claims`: measure documented claims about speed and memory, and give a verdict on each."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import asdict
from pathlib import Path

import click

from kgops.cli.claims_page import advice_lines, count_lines, page
from kgops.cli.output import print_json, say, tell
from kgops.cli.session import Session, for_writing
from kgops.experiments.claim_verdicts import CHECKS, check, comparisons
from kgops.experiments.claims import TABLES, judge, shipped
from kgops.experiments.claims_overview import as_tables, overview
from kgops.experiments.comparison import Context, run_comparison
from kgops.experiments.verdicts import RULE
from kgops.views.formats import columns, duration, wrapped
from storage import measurements as record
from storage.benches import Bench


@click.command(epilog="\b\nExample:  kgops bench claims --quick --only b")
@click.option(
    "--quick", is_flag=True, help="Small versions: a few minutes on two cores. Results are marked as quick."
)
@click.option("--only", "wanted", type=click.Choice([*TABLES, CHECKS]), help="Measure only this table.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with train.txt for a and b; default: a synthetic graph.",
)
@click.option("--afresh", is_flag=True, help="Start again instead of continuing an unfinished benchmark.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(quick: bool, wanted: str | None, data: Path | None, afresh: bool, as_json: bool) -> None:
    """Measure the claims of five documents about speed and memory, and recommend options.

    \b
    a  training ConvE: fp32, + bf16, + checkpointing, + compile, kgops
    b  TracIn: baseline, + each option, filtering, kgops
    c  the loss over all entities: dense labels, the documents' efficient loss, kgops
    d  the regression network: original, + checkpointing, + compile, both, the small model
    e  small checks: difference of two losses, FP16 rounding, shares of time

    `kgops bench show claims --all` lists the verdicts on all 205 claims.
    """
    begun = time.monotonic()
    # Part of the fingerprint: variants are compared on one thread.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    session = for_writing()
    record.keep_claims(session.conn, [one.claim for one in shipped()])
    context = Context(session.home, session.conn, tell)
    benchmarks: list[Bench] = []
    for name in [wanted] if wanted else [*TABLES, CHECKS]:
        arguments = ["kgops", "bench", "claims", *(["--quick"] if quick else []), "--only", name]
        if name == CHECKS:
            check(session.conn, shlex.join(arguments), quick=quick)
            continue
        arguments += ["--data", "DIR"] if data else []
        benchmarks += [
            run_comparison(context, one, shlex.join(arguments), afresh=afresh)
            for one in comparisons(name, quick=quick, data=data)
        ]
    summary = overview(session.conn)
    if as_json:
        print_json({**as_tables(summary), "bench": [_as_table(session, bench) for bench in benchmarks]})
        return
    for line in advice_lines(summary, columns()):
        say(line)
    for bench in benchmarks:
        for line in page(session.conn, bench):
            say(line)
        say()
    for line in wrapped(RULE, columns()):
        say(line)
    for line in ("", *count_lines(summary.rulings), "", "All claims: kgops bench show claims --all"):
        say(line)
    tell(
        f"{'Quick: small versions, rough metrics. ' if quick else ''}It took {duration(time.monotonic() - begun)}."
    )


def _as_table(session: Session, bench: Bench) -> dict[str, object]:
    return {
        "bench": bench.id,
        "name": bench.name,
        "command": bench.command,
        "fingerprint": bench.fingerprint,
        "row": [asdict(one) for one in judge(session.conn, bench, shipped())],
    }
