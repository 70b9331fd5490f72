"""Command-line entry point of `kgops`. Each subcommand is one module, imported only when it is called."""

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
from kgops.cli.groups import NamedCommands
from kgops.errors import KgopsError, Usage
from kgops.jobs.text import lines
from kgops.streams import output_error
from storage.errors import StorageError

# Subcommand → summary. `kgops --help` prints these and imports no subcommand.
COMMANDS: dict[str, str] = {
    "tui": "Open the dashboard: GPUs, runs, curves, logs.",
    "serve": "Open the dashboard in a browser, on loopback only.",
    "demo": "Start a first run, or fill a separate home with sample data.",
    "run": "Start a job: from a file, `--again RUN`, or the demo.",
    "suggest": "Plan a job, for a GPU here or any other: options, memory, time.",
    "runs": "List, filter, sort and search runs.",
    "show": "Show one run: options, attempts, metrics, files.",
    "compare": "Compare runs: differing settings, and metrics with ratios.",
    "report": "Write an HTML report of a run.",
    "export": "Export runs: JSON, CSV or TensorBoard.",
    "pull": "Bring a run of another host here, with its folder.",
    "import": "Import runs from another machine, home or script.",
    "influences": "Show the influences that a TracIn run found.",
    "logs": "Print or follow a run's log.",
    "stop": "Stop runs: SIGTERM first, then kill the process tree.",
    "resume": "Continue an interrupted, stopped (cancelled) or failed run.",
    "tag": "Add, remove or print the tags of a run.",
    "note": "Add a note to a run, or print its notes.",
    "delete": "Delete runs and their folders.",
    "data": "Generate small synthetic data sets.",
    "gpus": "Show GPUs, their processes and runs; --watch updates it.",
    "hosts": "Name other machines with kgops, and check their connections.",
    "feed": "Write the dashboard's content as JSON lines.",
    "profiles": "List, show, check and copy profiles (sets of option values).",
    "recipes": "List and show jobs for known graphs, and what each reached.",
    "doctor": "Check this machine, and say how to fix each problem.",
    "bench": "Measure speed and memory in paired comparisons.",
}
# Subcommands in the file of another one.
TOGETHER = {
    "serve": "tui",
    "report": "show",
    "pull": "import_",
    "resume": "stop",
    "delete": "stop",
    "note": "tag",
}
# Workload of `kgops run` → summary; `kgops run --help` imports no workload.
WORKLOADS: dict[str, str] = {
    "train": "Train ConvE, ComplEx, or any PyKEEN model.",
    "predict": "Answer questions with a trained model: which tails, which heads, which pairs?",
    "evaluate": "Rank triples by a trained model: MRR and Hits@k, by relation, direction and degree.",
    "tracin": "Find the training triples behind predictions (TracIn).",
    "explain": "Find the training triples that a prediction rests on.",
    "regress": "Train a network that predicts cloud heights from image sequences.",
    "exec": "Run any command under supervision.",
    "sweep": "Start one run for each combination of settings.",
}
# Words of other tools → what to type instead.
ELSEWHERE = {
    "ps": "kgops runs",
    "ls": "kgops runs",
    "list": "kgops runs",
    "status": "kgops runs",
    "history": "kgops runs",
    "top": "kgops gpus --watch",
    "nvidia-smi": "kgops gpus",
    "rm": "kgops delete RUN",
    "kill": "kgops stop RUN",
    "cancel": "kgops stop RUN",
    "log": "kgops logs RUN",
    "tail": "kgops logs -f RUN",
    "diff": "kgops compare RUN RUN",
    "pipeline": 'kgops run FILE.toml  where the file has  workload = "pipeline"',
}
ABORTED = 130


class Commands(NamedCommands):
    summaries = COMMANDS

    def find(self, name: str) -> click.Command:
        module = TOGETHER.get(name) or (f"{name}_" if iskeyword(name) else name)
        found = importlib.import_module(f"kgops.cli.{module}")
        command: click.Command = getattr(found, name if name in TOGETHER else "command")
        gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """`kgops train …` is `kgops run train …`, and `kgops rerun 1` is `kgops run again 1`."""
        if args and args[0] in ("again", "rerun"):
            args = ["run", "again", *args[1:]]
        return super().resolve_command(ctx, ["run", *args] if args and args[0] in WORKLOADS else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Start a run"):
            formatter.write_dl(list(WORKLOADS.items()))
        with formatter.section(self.heading):
            formatter.write_dl([(name, text) for name, text in COMMANDS.items() if name != "feed"])

    def fail_unknown(self, ctx: click.Context, what: str, name: str) -> None:
        from kgops.jobs.option_reading import nearest  # here: only a typing error needs it

        if name in ELSEWHERE:
            raise Usage(f"there is no command {name!r}", f"type  {ELSEWHERE[name]}")
        ctx.fail(f"no such {what} {name!r:.60}{nearest(name, WORKLOADS | COMMANDS)}")


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:  kgops exec -- python train.py",
)
@click.version_option(__version__, prog_name="kgops")
@click.option(
    "--hosts", metavar="NAMES", help="Open the dashboard with these hosts: all, or names and groups."
)
@click.pass_context
def group(ctx: click.Context, hosts: str | None) -> None:
    """Plan, supervise and record knowledge-graph training and TracIn runs. A run goes on when its terminal closes.

    Without a command, kgops opens the dashboard if it runs on a terminal."""
    if ctx.invoked_subcommand is not None:
        if hosts is not None:
            raise Usage("--hosts before a command opens the dashboard", "kgops --hosts all")
        return
    if hosts is not None or (sys.stdin.isatty() and sys.stdout.isatty()):
        from kgops.cli.tui import open_screens

        open_screens(hosts)
    else:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code. Only bugs print a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for a terminal that cannot show a character
    try:
        _require_working_folder()
        _require_utf8(sys.argv[1:] if arguments is None else arguments)
        result: Any = group.main(args=arguments, prog_name="kgops", standalone_mode=False)
        sys.stdout.flush()
        if lost := output_error():
            print(f"Warning: the output could not be written: {lost}", file=sys.stderr)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KgopsError, StorageError) as error:
        return _print_error(error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        return _ignore_closed_stdout()
    except OSError as error:
        # Disk, permissions or limits of this machine: not a bug, so no traceback.
        where = f"{error.filename}: " if error.filename is not None else ""
        return _print_error(
            f"{where}{error.strerror or error}", "`kgops doctor` checks home, disk and database"
        )
    except (click.Abort, KeyboardInterrupt):
        print("Aborted.", file=sys.stderr)
        return ABORTED
    except SystemExit:  # click's answer to a broken pipe
        return _ignore_closed_stdout()


def _print_error(message: str, hint: str | None, exit_code: int = 1) -> int:
    print(f"Error: {lines(message)}", file=sys.stderr)
    if hint:
        print(f"Hint: {lines(hint)}", file=sys.stderr)
    return exit_code


def _ignore_closed_stdout() -> int:
    """Send stdout to /dev/null after its reader closed it (as `| head` does): Python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _require_utf8(words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise Usage(f"{word!r:.60} is not UTF-8", "the database stores UTF-8 only") from error


def _require_working_folder() -> None:
    try:
        os.getcwd()  # noqa: PTH109  only whether the call fails matters
    except FileNotFoundError as error:
        raise Usage("the folder you are in no longer exists", "`cd` to one that does") from error
