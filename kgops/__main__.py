"""`python -m kgops` and the `kgops` command."""

import sys


def main() -> None:
    from kgops.cli import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
