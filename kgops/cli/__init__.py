"""The `kgops` command: one file per verb, imported only when it is called."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from keyword import iskeyword
from typing import Any

import click

from kgops import __version__
from kgops.errors import KgopsError, Usage
from kgops.jobs.text import lines
from kgops.streams import output_trouble
from storage.errors import StorageError

# verb → what it does. The help page is printed from here, so that it imports no verb.
COMMANDS: dict[str, str] = {
    "tui": "Open the screens: GPUs, runs, curves, logs.",
    "serve": "Open the screens in a browser, on loopback.",
    "demo": "A first run, or a tour with something on every screen.",
    "run": "Start a job: a command, a job file, or the default job.",
    "suggest": "Plan a job: what fits, how fast, and why.",
    "runs": "List runs; filter, sort and search them.",
    "show": "Show all that is known of one run.",
    "compare": "Show runs side by side: what differs, and ratios.",
    "report": "Write one HTML page of a run.",
    "export": "Write runs for other programs, or for another kgops.",
    "import": "Make runs of what was done elsewhere.",
    "influences": "Show the training triples that a TracIn run found.",
    "logs": "Print or follow a run's log.",
    "stop": "Ask a run to stop, then end its whole process tree.",
    "resume": "Continue a run that was interrupted, stopped or failed.",
    "tag": "Add tags to a run, or take them away.",
    "note": "Write a note on a run, or read its notes.",
    "delete": "Forget a run and its folder.",
    "data": "Make small data to try kgops with.",
    "gpus": "Show GPUs, and which run each process belongs to.",
    "profiles": "List profiles, show, check and make them.",
    "doctor": "Check this machine and say what to do about each trouble.",
    "bench": "Measure kgops: beside PyKEEN, and what it costs itself.",
}
ABORTED = 130


class Commands(click.Group):
    """Knows its commands by name and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = importlib.import_module(f"kgops.cli.{module}").command
        gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            from kgops.jobs.keys import nearest

            ctx.fail(f"no such command {args[0]!r}{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:  kgops run exec -- python train.py",
)
@click.version_option(__version__, prog_name="kgops")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Plan, supervise and measure knowledge-graph runs; every run outlives the terminal it was started from.

    Without a command, on a terminal: the screens."""
    if ctx.invoked_subcommand is not None:
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        from kgops.cli.tui import open_screens

        open_screens()
    else:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit code and leaves tracebacks to bugs."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign still gets the rest
    try:
        _must_stand_somewhere()
        _must_be_utf8(sys.argv[1:] if arguments is None else arguments)
        result: Any = group.main(args=arguments, prog_name="kgops", standalone_mode=False)
        sys.stdout.flush()
        if lost := output_trouble():
            print(f"Warning: the output could not be written: {lost}", file=sys.stderr)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KgopsError, StorageError) as error:
        return _refused(error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        return _without_readers()
    except OSError as error:
        # The disk, the rights or the limits of this machine: no mistake of ours that a traceback would help to find.
        where = f"{error.filename}: " if error.filename is not None else ""
        return _refused(f"{where}{error.strerror or error}", "`kgops doctor` checks home, disk and database")
    except (click.Abort, KeyboardInterrupt):
        print("Aborted.", file=sys.stderr)
        return ABORTED
    except SystemExit:  # click's answer to a broken pipe
        return _without_readers()
    except Exception as error:
        from storage.database import storage_error

        if (told := storage_error(error)) is None:
            raise
        return _refused(told.message, told.hint, told.exit_code)


def _refused(message: str, hint: str | None, exit_code: int = 1) -> int:
    print(f"Error: {lines(message)}", file=sys.stderr)
    if hint:
        print(f"Hint: {lines(hint)}", file=sys.stderr)
    return exit_code


def _without_readers() -> int:
    """Whoever read our output has gone, as `| head` does. Python would complain once more while closing stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _must_be_utf8(words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise Usage(f"{word!r:.60} is not UTF-8", "no record could hold it as it is") from error


def _must_stand_somewhere() -> None:
    try:
        os.getcwd()  # noqa: PTH109  the call is asked whether it fails; no path is wanted
    except FileNotFoundError as error:
        raise Usage("the folder you are in no longer exists", "`cd` to one that does") from error
