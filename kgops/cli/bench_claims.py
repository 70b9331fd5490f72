"""`kgops bench claims`: what was written down about speed and memory, beside what is measured here."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import asdict
from pathlib import Path

import click

from kgops.bench.claims import contests
from kgops.bench.rounds import Place, hold
from kgops.cli.claims_page import page
from kgops.cli.output import columns, duration, print_json, say, tell, wrapped
from kgops.cli.session import Session, for_writing
from kgops.measured.claims import TABLES, judge, shipped
from kgops.measured.verdicts import RULE
from storage import claims as record
from storage.benches import Bench


@click.command(epilog="\b\nExample:  kgops bench claims --quick --only b")
@click.option("--quick", is_flag=True, help="Small versions, a few minutes on two cores; labelled so.")
@click.option("--only", "wanted", type=click.Choice(list(TABLES)), help="One of the tables.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with train.txt for a and b; otherwise they use a made graph.",
)
@click.option("--afresh", is_flag=True, help="Begin anew, where an unfinished one would go on.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(quick: bool, wanted: str | None, data: Path | None, afresh: bool, as_json: bool) -> None:
    """Run the group's tables again, and judge each figure they wrote down.

    \b
    a  training ConvE: fp32, + cleanup, + fp16, + checkpointing, + compile, kgops
    b  TracIn: baseline, + each lever, filtering, kgops
    c  the loss over all entities: dense labels, their efficient loss, kgops
    d  the regression network: original, + checkpointing, + compile, both, the small model
    """
    begun = time.monotonic()
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # a part of the fingerprint: ways are compared on one thread
    session = for_writing()
    record.keep(session.conn, [one.claim for one in shipped()])
    place = Place(session.home, session.conn, tell)
    held: list[Bench] = []
    for name in [wanted] if wanted else list(TABLES):
        words = ["kgops", "bench", "claims", *(["--quick"] if quick else []), "--only", name]
        words += ["--data", "DIR"] if data else []
        held += [
            hold(place, one, shlex.join(words), afresh=afresh)
            for one in contests(name, quick=quick, data=data)
        ]
    if as_json:
        print_json([_as_table(session, bench) for bench in held])
        return
    for bench in held:
        for line in page(session.conn, bench):
            say(line)
        say()
    for line in wrapped(RULE, columns()):
        say(line)
    tell(
        f"{'Quick: small versions, rough figures. ' if quick else ''}It took {duration(time.monotonic() - begun)}."
    )


def _as_table(session: Session, bench: Bench) -> dict[str, object]:
    return {
        "bench": bench.id,
        "name": bench.name,
        "command": bench.command,
        "fingerprint": bench.fingerprint,
        "row": [asdict(one) for one in judge(session.conn, bench, shipped())],
    }
