"""The tour's running process: reports a sample curve slowly and trains nothing."""

from __future__ import annotations

import math
import os
import sys
import time

from kgops.jobs import events
from kgops.tour import SAMPLE

_EVERY_S = 2.0


def main() -> None:
    """`python -m kgops.tour.live MINUTES`; appends its events to the file named by KGOPS_EVENTS."""
    points = max(int(float(sys.argv[1]) * 60 / _EVERY_S), 1)
    print(f"({SAMPLE}): nothing is trained here", flush=True)
    with open(os.environ["KGOPS_EVENTS"], "ab", buffering=0) as file:  # noqa: PTH123 - unbuffered, to append
        for n in range(points):
            now, value = time.time(), 0.41 + 1.89 * math.exp(-4 * n / points) * (1 + 0.04 * math.sin(7 * n))
            file.write(events.write(events.METRIC, now, name="loss", value=value, step=n + 1))
            progress = {"done": n + 1, "total": points, "unit": "step", "rate": 1 / _EVERY_S}
            file.write(events.write(events.PROGRESS, now, phase=SAMPLE, **progress))
            print(f"INFO step {n + 1} of {points}  loss {value:.4f}", flush=True)
            time.sleep(_EVERY_S)


if __name__ == "__main__":
    main()
