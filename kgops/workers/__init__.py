"""Entry points of worker processes: from a job to events and files. Nothing here knows the database."""

import os
import sys
from types import TracebackType

from kgops.training.out_of_memory import describe, is_at_its_limit, is_out_of_memory

# Before anything loads OpenMP. Its threads otherwise spin while they wait for each other, and on cores that
# somebody else uses too they spin away the very time the others need. Whoever sets it has the last word.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# NumPy starts a thread for each core as it is loaded, for products that nobody here leaves to it; and a process with
# threads cannot be copied.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _say_out_of_memory(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        if not is_out_of_memory(error) and not is_at_its_limit():
            sys.__excepthook__(kind, error, trace)
            return
        told = describe(error)
    except MemoryError:  # the machine itself has none left: a sentence that is there already has to do
        told = "host memory ran out"
    print(f"Out of memory: {told}", file=sys.stderr)


# Loading torch can run out of memory too, long before there is a worker that could say so.
if "KGOPS_RUN_FOLDER" in os.environ:
    sys.excepthook = _say_out_of_memory
