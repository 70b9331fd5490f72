"""`kgops doctor`: each check, what it found, and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from kgops.cli.output import padded, print_json, say
from kgops.jobs.text import one_line
from kgops.settings import find_home, make_home
from kgops.supervisor import rebuild
from kgops.views.doctor import Finding, examine
from storage.database import open_writer

_SIGNS = {"ok": "✓", "note": "·", "trouble": "✗"}
_ASCII = {"ok": "ok", "note": "--", "trouble": "!!"}


@click.command(epilog="\b\nExample:  kgops doctor")
@click.option("--rebuild", "take_in", is_flag=True, help="Give every run folder without a row its row back.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.pass_context
def command(ctx: click.Context, take_in: bool, as_json: bool) -> None:
    """Check Python, torch, CUDA, NVML, database, disk and session; exit code 1 if something is in the way."""
    if take_in:
        _rebuild()
        return
    findings = examine(find_home())
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    ctx.exit(1 if any(finding.level == "trouble" for finding in findings) else 0)


def _print(findings: list[Finding]) -> None:
    signs = _SIGNS if "utf" in (sys.stdout.encoding or "").lower() else _ASCII
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        say(f"{padded(signs[finding.level], 2)} {padded(finding.subject, width)}  {one_line(finding.found)}")
        if finding.advice:
            say(f"   {' ' * width}  → {one_line(finding.advice)}")


def _rebuild() -> None:
    home = find_home()
    make_home(home)
    taken, troubles = rebuild.restore_runs(home, open_writer(home.database))
    say(f"{len(taken)} runs taken in" + (f": {', '.join(map(str, taken))}" if taken else ""))
    for trouble in troubles:
        say(f"not taken in: {one_line(trouble)}")
