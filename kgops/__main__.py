"""`python -m kgops` and the `kgops` command."""

import gc
import sys


def main() -> None:
    # Imports make thousands of objects and no garbage; looking through them took 4 of 69 ms of `kgops runs`.
    # kgops.cli collects again as soon as the command is imported.
    gc.disable()
    try:
        from kgops.cli import main as command

        code = command()
    except (
        KeyboardInterrupt
    ):  # while it was imported: a tenth of a second in which nothing else would catch it
        sys.stderr.write("Aborted.\n")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
