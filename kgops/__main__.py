"""`python -m kgops` and the `kgops` command."""

import _signal  # type: ignore[import-not-found]  # signal itself takes a millisecond: it makes enumerations
import gc
import sys

from kgops.streams import prepare

_INTERRUPTED = 130


def main() -> None:
    # Ctrl-C while modules are imported, or after the command: the process ends as any other does, without a word.
    on_interrupt = _signal.getsignal(_signal.SIGINT)
    if on_interrupt is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    # Imports make thousands of objects and no garbage; looking through them took 4 of 69 ms of `kgops runs`.
    # kgops.cli collects again as soon as the command is imported.
    gc.disable()
    prepare()
    from kgops.cli import main as command

    code = _INTERRUPTED
    try:
        _signal.signal(_signal.SIGINT, on_interrupt)
        code = command()
        if on_interrupt is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    except KeyboardInterrupt:  # a second one, while the first was being answered
        pass
    sys.exit(code)


if __name__ == "__main__":
    main()
