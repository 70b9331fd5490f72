"""`kgops tag` and `kgops note`: add, remove or print the tags and notes of a run."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from kgops.cli.output import say_result
from kgops.cli.session import existing, for_writing
from kgops.errors import Usage
from kgops.jobs.secrets import masked_text
from kgops.jobs.text import lines, one_line
from kgops.present.formats import local_time
from storage import reports

_LONGEST, _LONGEST_NOTE = 100, 100_000


def check_tags(tags: tuple[str, ...]) -> None:
    for tag in tags:
        if not tag.strip() or any(c.isspace() or c == "," for c in tag) or len(tag) > _LONGEST:
            raise Usage(
                f"{tag!r:.60} is not a valid tag",
                f"a tag is one word of at most {_LONGEST} characters, without commas",
            )
        if masked_text(tag) != tag:
            raise Usage("the tag contains a secret, which the database would store", "give another tag")


@click.command(epilog="\b\nExample:  kgops tag 42 paper baseline --remove draft")
@click.argument("name", metavar="RUN")
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def command(name: str, tags: tuple[str, ...], remove: tuple[str, ...], as_json: bool) -> None:
    """Add or remove tags of a run; without tags, print them."""
    check_tags(tags)
    session = for_writing() if tags or remove else existing()
    run = session.run(name)
    if tags or remove:
        reports.change_tags(session.conn, run.id, add=list(tags), remove=list(remove))
    now = reports.tags(session.conn, run.id)
    say_result(as_json, lambda: now, lambda: [" ".join(map(one_line, now))])


@click.command(epilog='\b\nExample:  kgops note 42 "best so far; see the email of Tuesday"')
@click.argument("name", metavar="RUN")
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def note(name: str, text: str | None, as_json: bool) -> None:
    """Add a note to a run; without TEXT, print its notes."""
    if text is not None and not 0 < len(text.strip()) <= _LONGEST_NOTE:
        raise Usage(
            "the note is empty"
            if not text.strip()
            else f"the note is longer than {_LONGEST_NOTE:,} characters"
        )
    session = for_writing() if text is not None else existing()
    run = session.run(name)
    if text is not None:
        reports.add_note(session.conn, run.id, time.time(), masked_text(text))
    notes = reports.notes(session.conn, run.id)
    said = (f"{local_time(note.at)}  {lines(note.text)}" for note in notes)
    say_result(as_json, lambda: [asdict(note) for note in notes], lambda: said)
