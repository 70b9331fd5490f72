"""`kgops doctor`: check the machine and print each result with advice."""

from __future__ import annotations

import sys

import click

from kgops.cli.output import print_json, say
from kgops.jobs.text import one_line
from kgops.present.doctor import Finding, examine
from kgops.present.formats import padded
from kgops.settings import find_home, make_home
from kgops.supervisor import rebuild
from storage.database import open_writer

_SIGNS = {"ok": "✓", "note": "·", "trouble": "✗"}
_ASCII = {"ok": "ok", "note": "--", "trouble": "!!"}


@click.command(epilog="\b\nExample:  kgops doctor")
@click.option(
    "--rebuild", "restore", is_flag=True, help="Restore the database rows of run folders that have none."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, restore: bool, as_json: bool) -> None:
    """Check Python, torch, CUDA, NVML, database, disk and session; exit code 1 if a check fails."""
    if restore:
        _rebuild()
        return
    findings = examine(find_home())
    if as_json:
        print_json([{"subject": subject, **finding._asdict()} for subject, finding in findings.items()])
    else:
        _print(findings)
    ctx.exit(1 if any(finding.level == "trouble" for finding in findings.values()) else 0)


def _print(findings: dict[str, Finding]) -> None:
    signs = _SIGNS if "utf" in (sys.stdout.encoding or "").lower() else _ASCII
    width = max(map(len, findings))
    for subject, finding in findings.items():
        say(f"{padded(signs[finding.level], 2)} {padded(subject, width)}  {one_line(finding.found)}")
        if finding.advice:
            say(f"   {' ' * width}  → {one_line(finding.advice)}")


def _rebuild() -> None:
    home = find_home()
    make_home(home)
    conn = open_writer(home.database)
    repaired, unrepaired = rebuild.repair_rows(home, conn)
    if repaired:
        say(f"{len(repaired)} damaged runs repaired from their folders: {', '.join(map(str, repaired))}")
    for trouble in unrepaired:
        say(f"not repaired: {one_line(trouble)}")
    restored, troubles = rebuild.restore_runs(home, conn)
    say(f"{len(restored)} runs restored" + (f": {', '.join(map(str, restored))}" if restored else ""))
    if restored:
        say("their tags, notes, exit codes of attempts, memory curves and peaks were only in the database")
    for trouble in troubles:
        say(f"not restored: {one_line(trouble)}")
