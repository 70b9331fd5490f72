"""CPU of one sample of GPUs, as the dashboard takes it every second: the driver's readings, processes, users, runs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import PYTHON, Line
from benchmarks.open_screen import Gpus
from kgops.settings import Home

_GPUS, _PROCESSES = 8, 60
_SAMPLES = 300


def gpu_sample(home: Home, gpus: Gpus) -> list[Line]:
    """In a fresh process, which sees those GPUs. The stand-in answers from a file, at once: a driver takes longer."""
    with _sleeping(_PROCESSES) as pids:
        gpus.show_busy(_GPUS, pids)
        done = subprocess.run(
            [PYTHON, "-P", "-m", "benchmarks.gpu_sample", str(home.path)],
            env={**os.environ, **gpus.environment},
            cwd=Path(__file__).resolve().parents[1],
            check=True,
            capture_output=True,
            text=True,
        )
    driver, whole = ([float(one) for one in line.split()] for line in done.stdout.splitlines())
    of = f"a sample of {_GPUS} GPUs with {_PROCESSES} processes"
    return [
        Line("screens_gpu_sample", f"{of}: CPU", "ms", tuple(whole), 1.5),
        Line(
            "screens_gpu_sample_driver", "the same: of that, the readings of the driver", "ms", tuple(driver)
        ),
    ]


@contextmanager
def _sleeping(count: int) -> Iterator[list[int]]:
    sleeping = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    try:
        yield [one.pid for one in sleeping]
    finally:
        for one in sleeping:
            one.kill()
            one.wait()


def _sample(home: Home) -> None:
    from kgops.gpus.nvml import Nvml, open_nvml
    from kgops.views.gpus import GpuUsageReader
    from storage.database import open_reader

    nvml = open_nvml()
    assert isinstance(nvml, Nvml), nvml
    reader, conn = GpuUsageReader(home), open_reader(home.database)
    driver, whole = [], []
    with nvml:
        for _ in range(_SAMPLES):
            begin = time.process_time()
            readings = nvml.gpus(for_people=True)
            driver.append((time.process_time() - begin) * 1000)
            found = reader.read(readings, conn)
            whole.append((time.process_time() - begin) * 1000)
    assert sum(len(gpu.processes or ()) for gpu in found) == _PROCESSES
    print(*driver[10:])
    print(*whole[10:])


if __name__ == "__main__":
    import sys

    _sample(Home(Path(sys.argv[1])))
