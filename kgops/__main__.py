"""Entry point of the `kgops` command and of `python -m kgops`."""

import _signal  # type: ignore[import-not-found]  # importing signal takes 1 ms: it builds enums
import gc
import sys

from kgops.streams import prepare

_INTERRUPTED = 130


def main() -> None:
    # Ctrl-C during imports or after the command: end without a traceback.
    on_interrupt = _signal.getsignal(_signal.SIGINT)
    if on_interrupt is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    # Imports create no garbage, but collecting took 4 of the 69 ms of `kgops runs`.
    # kgops.cli enables collection again once the command is imported.
    gc.disable()
    prepare()
    from kgops.cli import main as command

    code = _INTERRUPTED
    try:
        _signal.signal(_signal.SIGINT, on_interrupt)
        code = command()
        if on_interrupt is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    except KeyboardInterrupt:  # a second Ctrl-C while the first is handled
        pass
    sys.exit(code)


if __name__ == "__main__":
    main()
