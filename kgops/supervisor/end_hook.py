"""The command that a supervisor starts when its run has ended: a list of arguments, never a shell line."""

from __future__ import annotations

import os
import subprocess

from kgops.supervisor.durable_writes import log
from kgops.supervisor.processes import SUPERVISOR, TAG
from storage.runs import Run

__all__ = ["HOOKS_FILE", "run_end_hook"]

HOOKS_FILE = "hooks.toml"


def run_end_hook(home: str, run: Run) -> None:
    """Starts `on_end` of the home's hooks.toml with the run's facts in its environment. A broken hook is logged."""
    import tomllib  # only supervisors of homes with hooks pay for it

    path = os.path.join(home, HOOKS_FILE)  # noqa: PTH118
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            command = tomllib.load(file).get("on_end")
    except FileNotFoundError:
        return
    except (OSError, tomllib.TOMLDecodeError) as error:
        log(f"{HOOKS_FILE} cannot be read: {error}")
        return
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        log(f'{HOOKS_FILE}: on_end must be a list of words, such as on_end = ["notify-send", "kgops"]')
        return
    inherited = {name: value for name, value in os.environ.items() if name not in (SUPERVISOR, TAG)}
    try:
        # Not waited for: a run's end must not depend on it. What it prints is in the run's supervisor.log.
        subprocess.Popen(
            command,
            env={**inherited, **facts_of(run, home)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log(f"{HOOKS_FILE}: {command[0]} cannot be started: {error}")


def facts_of(run: Run, home: str) -> dict[str, str]:
    """The run's facts as environment variables; unknown is empty."""
    took_s = (
        run.ended_at - run.started_at if run.ended_at is not None and run.started_at is not None else None
    )
    facts = {
        "KGOPS_RUN": run.id,
        "KGOPS_RUN_WORKLOAD": run.workload,
        "KGOPS_RUN_LABEL": run.label,
        "KGOPS_RUN_STATE": run.state,
        "KGOPS_RUN_REASON": run.reason,
        "KGOPS_RUN_EXIT_CODE": run.exit_code,
        "KGOPS_RUN_ATTEMPTS": run.attempts,
        "KGOPS_RUN_SECONDS": None if took_s is None else round(took_s, 1),
        "KGOPS_RUN_METRIC": run.metric,
        "KGOPS_RUN_METRIC_VALUE": run.metric_value,
        "KGOPS_RUN_PEAK_GPU_MIB": run.peak_gpu_mib,
        "KGOPS_RUN_FOLDER": os.path.join(home, "runs", run.folder),  # noqa: PTH118
        "KGOPS_HOME": home,
    }
    # A zero byte cannot stand in an environment.
    return {name: "" if value is None else str(value).replace("\0", "") for name, value in facts.items()}
