"""Small checks of claims, by a process that may import torch; kept as values of the claims' names."""

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

CHECKS = "e"  # what `--only` calls them, after the tables


def check(conn: Connection, command: str, *, quick: bool) -> None:
    words = [sys.executable, "-P", "-m", "kgops.trials.checks", *(["--quick"] if quick else [])]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise KgopsError(
            f"the checks of claims ended with {done.returncode}: {last}",
            f"`{' '.join(words[1:])}` behind this Python shows the rest",
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
