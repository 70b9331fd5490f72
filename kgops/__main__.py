"""`python -m kgops` and the `kgops` command."""

import gc
import sys


def main() -> None:
    # Imports make thousands of objects and no garbage; looking through them took 4 of 69 ms of `kgops runs`.
    # kgops.cli collects again as soon as the command is imported.
    gc.disable()
    from kgops.cli import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
