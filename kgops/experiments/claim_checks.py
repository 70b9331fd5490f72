"""Runs the small checks of claims in a process that imports torch, and stores the values under the claims' names."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from kgops.errors import KgopsError
from kgops.experiments.claim_verdicts import CHECKED
from kgops.experiments.fingerprint import fingerprint
from storage import measurements
from storage.database import Connection
from storage.measurements import Measurement

__all__ = ["CHECKS", "check"]

CHECKS = "e"  # name of the checks in `--only`


def check(conn: Connection, command: str, *, quick: bool) -> None:
    words = [sys.executable, "-P", "-m", "kgops.trials.checks", *(["--quick"] if quick else [])]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise KgopsError(
            f"the claim checks failed with exit code {done.returncode}: {last}",
            f"`{' '.join(words[1:])}` with this Python shows all of its output",
        )
    machine, at = fingerprint(), time.time()
    values = [
        Measurement(
            name=CHECKED + one["name"],
            subject=one["subject"],
            against=None,
            value=one["value"],
            low=one["low"],
            high=one["high"],
            n=one["n"],
            unit=one["unit"],
            command=command,
            fingerprint=machine,
            at=at,
        )
        for one in json.loads(done.stdout)
    ]
    measurements.add_all(conn, values)
