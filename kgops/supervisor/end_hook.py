"""Commands that supervisors start, when a run has ended or for an alert: lists of arguments, never a shell line."""

from __future__ import annotations

import os
import signal

from kgops.jobs.files import open_regular, read_regular
from kgops.settings import Home
from kgops.supervisor.durable_writes import log
from kgops.supervisor.gate import SURVIVED
from kgops.supervisor.processes import SUPERVISOR, TAG
from kgops.supervisor.run_folder import RunFolder
from storage.runs import Run

# Importing `typing` would cost every supervisor half a megabyte.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

_HOOKS = ("on_end", "on_alert")
_LARGEST = 1 << 20  # bytes of hooks.toml


def run_end_hook(home: Home, run: Run) -> None:
    """Starts `on_end` with the run's facts in its environment, whether a supervisor or a command recorded the end.
    What it prints, and what is wrong with it, is in the run's supervisor.log: a command's terminal may show screens."""
    if not home.hooks.exists():
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        output = open_regular(RunFolder(home.runs / run.folder).supervisor_log, flags)
    except OSError:  # its folder may be gone
        output = os.open(os.devnull, os.O_WRONLY)
    try:
        if command := read_hook(home, "on_end", output):
            # Not waited for: a run's end must not depend on it.
            start_hook(command, facts_of(run, home), output=output)
    finally:
        os.close(output)


def read_hook(home: Home, name: str, output: int = 2) -> list[str] | None:
    """The command of this name in the home's hooks.toml. What is wrong with the file is logged."""
    commands, troubles = hooks_of(home)
    for trouble in troubles:
        log(trouble, output)
    return commands.get(name)


def hooks_of(home: Home) -> tuple[dict[str, list[str]], list[str]]:
    """The commands by name, and what is wrong with the file."""
    from kgops.jobs import toml  # only supervisors of homes with hooks pay for it

    file = home.hooks.name
    try:
        read = toml.loads(read_regular(home.hooks, at_most=_LARGEST, follow=True).decode())
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError) as error:
        return {}, [f"{file} cannot be read: {error}"]
    commands, troubles = {}, []
    for name, command in read.items():
        if name not in _HOOKS:
            troubles.append(f"{file}: nothing starts {name!r:.60}; the names are {' and '.join(_HOOKS)}")
        elif (
            not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command)
        ):
            troubles.append(
                f'{file}: {name} must be a list of words, such as {name} = ["notify-send", "kgops"]'
            )
        else:
            commands[name] = command
    return commands, troubles


def start_hook(
    command: list[str], facts: dict[str, str], *, is_during_run: bool = False, output: int = 2
) -> subprocess.Popen[bytes] | None:
    """In a session of its own, with these facts in its environment. A command that cannot be started is logged.
    `output`: an open file; by default this process's, a supervisor's."""
    import subprocess  # only homes with hooks pay for it

    inherited = {name: value for name, value in os.environ.items() if name not in (SUPERVISOR, TAG)}
    if is_during_run:
        inherited[SUPERVISOR] = "hook"  # as a child of the supervisor it would count as the run's process
    try:
        return subprocess.Popen(
            command,
            env={**inherited, **facts},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_heed_signals,
        )
    except (OSError, ValueError) as error:
        log(f"hooks.toml: {command[0]} cannot be started: {error}", output)
        return None


def _heed_signals() -> None:
    """What a supervisor ignores would stay ignored in what it starts, and `kill PID` without effect."""
    for number in SURVIVED:
        signal.signal(number, signal.SIG_DFL)


def facts_of(run: Run, home: Home) -> dict[str, str]:
    """The run's facts as environment variables; unknown is empty."""
    facts = {
        "KGOPS_RUN": run.id,
        "KGOPS_RUN_WORKLOAD": run.workload,
        "KGOPS_RUN_LABEL": run.label,
        "KGOPS_RUN_STATE": run.state,
        "KGOPS_RUN_REASON": run.reason,
        "KGOPS_RUN_EXIT_CODE": run.exit_code,
        "KGOPS_RUN_ATTEMPTS": run.attempts,
        "KGOPS_RUN_SECONDS": None if run.took_s is None else round(run.took_s, 1),
        "KGOPS_RUN_METRIC": run.metric,
        "KGOPS_RUN_METRIC_VALUE": run.metric_value,
        "KGOPS_RUN_PEAK_GPU_MIB": run.peak_gpu_mib,
        "KGOPS_RUN_FOLDER": home.runs / run.folder,
        "KGOPS_HOME": home.path,
    }
    # A zero byte cannot stand in an environment.
    return {name: "" if value is None else str(value).replace("\0", "") for name, value in facts.items()}
