"""Writes the reference of `make docs` from the program: `python tests/reference.py docs/reference`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from documented import commands

from kgops.cli.job_options import SHOWS_ALL
from kgops.jobs.option import Option
from kgops.jobs.run_options import CLUSTER_OPTIONS, GPU_OPTIONS, LIMITS
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.train import recipes
from screens.actions import ACTIONS
from storage.filters import FIELDS, GROUPS
from storage.run_list import SORTABLE


def pages() -> dict[str, str]:
    """Markdown by file name."""
    return {
        "help.md": _help(),
        "job-files.md": _job_files(),
        "runs.md": _runs(),
        "keys.md": _keys(),
        "recipes.md": _recipes(),
    }


def _help() -> str:
    parts = ["# Help of every command", "As `--help-all` prints it."]
    for words, command in sorted(commands(), key=lambda one: one[0]):
        shown = words.replace("kgops run ", "kgops ")
        with click.Context(command, info_name=shown, max_content_width=100, terminal_width=100) as ctx:
            ctx.meta[SHOWS_ALL] = True
            parts += [f"## `{shown}`", f"```text\n{command.get_help(ctx)}\n```"]
    return _page(parts)


def _job_files() -> str:
    parts = [
        "# Job files",
        "`kgops.toml` is a job. `kgops train … --dry-run` prints the job of a command. This one trains on files:",
        '```toml\nworkload = "train"\nprofile = "t4"\n\n[train]\ntrain = "train.txt"\nvalid = "valid.txt"\n'
        'test = "test.txt"\nnum_epochs = 30\n\n[options]\nbatch_size = 512\n```',
    ]
    for name, workload in WORKLOADS.items():
        if workload.settings:
            parts += [f"## `[{name}]`", _options(workload.settings)]
    for title, options in (
        ("options", OPTIONS.values()),
        ("gpu", GPU_OPTIONS),
        ("limits", LIMITS),
        ("on", CLUSTER_OPTIONS),
    ):
        parts += [f"## `[{title}]`", _options(tuple(options))]
    return _page(parts)


def _options(options: tuple[Option, ...]) -> str:
    rows = [(f"`{one.name}`", one.type, _default(one), one.help or one.summary) for one in options]
    return _table(("key", "type", "default", "meaning"), rows)


def _default(option: Option) -> str:
    return option.shown_default or ("" if option.default is None else f"`{option.default}`")


def _runs() -> str:
    fields = [(f"`{name}`", field.kind) for name, field in FIELDS.items()]
    groups = [(f"`{name}`", ", ".join(states)) for name, states in GROUPS.items()]
    return _page(
        [
            "# Filters and columns of runs",
            "`kgops runs 'mrr>0.3 tag:paper since:7d -label:test two words'`: all terms must match, `-` negates one. "
            "`time` fields take `7d` or a date. Any metric compares with a number.",
            _table(("filter", "kind"), fields),
            _table(("word", "states"), groups),
            "`--sort` takes any metric, or one of these columns:",
            "\n".join(f"- `{name}`" for name in sorted(SORTABLE)),
        ]
    )


def _keys() -> str:
    rows = [(one.sign or one.key, one.name, one.help, ", ".join(sorted(one.where))) for one in ACTIONS]
    return _page(["# Keys of the dashboard", _table(("key", "action", "what it does", "screens"), rows)])


def _recipes() -> str:
    parts = ["# Recipes", "`kgops recipes` shows what each was measured to reach."]
    for name in recipes.names():
        parts += [f"## `{name}`", f"```toml\n{recipes.find(name).read_text().rstrip()}\n```"]
    return _page(parts)


def _page(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text)
