"""`kgops note`: add a note to a run, or print its notes."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from kgops.cli.output import print_json, say
from kgops.cli.session import existing, for_writing
from kgops.errors import Usage
from kgops.jobs.secrets import masked_text
from kgops.jobs.text import lines
from kgops.present.formats import local_time
from storage import reports

_LONGEST = 100_000


@click.command(epilog='\b\nExample:  kgops note 42 "best so far; see the email of Tuesday"')
@click.argument("name", metavar="RUN")
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(name: str, text: str | None, as_json: bool) -> None:
    """Add a note to a run; without TEXT, print its notes."""
    if text is not None and not 0 < len(text.strip()) <= _LONGEST:
        raise Usage(
            "the note is empty" if not text.strip() else f"the note is longer than {_LONGEST:,} characters"
        )
    session = for_writing() if text is not None else existing()
    run = session.run(name)
    if text is not None:
        reports.add_note(session.conn, run.id, time.time(), masked_text(text))
    notes = reports.notes(session.conn, run.id)
    if as_json:
        print_json([asdict(note) for note in notes])
        return
    for note in notes:
        say(f"{local_time(note.at)}  {lines(note.text)}")
