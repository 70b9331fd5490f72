"""`kgops tag`: add, remove or print the tags of a run."""

from __future__ import annotations

import click

from kgops.cli.output import print_json, say
from kgops.cli.session import existing, for_writing
from kgops.errors import Usage
from kgops.jobs.secrets import masked_text
from kgops.jobs.text import one_line
from storage import reports

_LONGEST = 100


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
    if as_json:
        print_json(now)
    else:
        say(" ".join(one_line(tag) for tag in now))
