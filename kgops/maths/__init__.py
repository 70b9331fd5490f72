"""The mathematics of each workload, and its worker process: a job in, events and files out. Loads torch."""

import gc
import os
import re
import sys
from types import TracebackType

from kgops.maths.worker.out_of_memory import describe, is_at_its_limit, is_out_of_memory

# Before anything loads OpenMP. By default its threads spin while they wait for each other, which takes time from other
# processes on shared cores. A value from the environment wins.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# At its import NumPy starts a thread for each core, for products that we never use. A process with threads cannot be
# forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _say_out_of_memory(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        if not is_out_of_memory(error) and not is_at_its_limit():
            sys.__excepthook__(kind, error, trace)
            return
        description = describe(error)
    except MemoryError:  # no memory for a new text: use a constant
        description = "host memory ran out"
    print(f"Out of memory: {description}", file=sys.stderr)


_WORKER = re.compile(r"kgops\.maths\.(?!trials\.)[\w.]+")  # a module that is being started

if "KGOPS_RUN_FOLDER" in os.environ and any(map(_WORKER.fullmatch, sys.orig_argv)):
    # Loading torch can run out of memory too, before a worker exists to report it.
    sys.excepthook = _say_out_of_memory
    # It makes objects by the hundred thousand and hardly any garbage. `run_worker` collects again.
    if sys.argv[0] == "-m":  # a module of this package is being started
        gc.disable()
