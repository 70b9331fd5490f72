"""Secrets kept out of the record: environment variables and arguments whose names say what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
_OPTION = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
# In a line for a shell, where a word alone does not show it. Capitals only: `key=` is any Python's.
_ASSIGNED = re.compile(
    r"\b([A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD)[A-Z0-9_]*)=(?!\$)(\"[^\"]*\"|'[^']*'|[^\s;&|()<>\"']+)"
)
# Recorded because they change what a run does; everything else a person has set is nobody's business.
_WORTH_KEEPING = re.compile(
    r"(CUDA|NVIDIA|NCCL|PYTORCH|TORCH|TRITON|OMP|MKL|OPENBLAS|GOMP|KMP|MALLOC|PYTHON|PYKEEN|SLURM|RAY|KGOPS)_?.*"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PATH|LANG|LC_ALL|TZ|VIRTUAL_ENV|CONDA_DEFAULT_ENV|CONDA_PREFIX|HOSTNAME"
)


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What is worth recording, and the names alone of what is secret."""
    return {
        name: MASK if is_secret(name) else value
        for name, value in sorted(environment.items())
        if is_secret(name) or _WORTH_KEEPING.fullmatch(name)
    }


def masked_arguments(arguments: list[str]) -> list[str]:
    """`--api-key X`, `--api-key=X`, `API_KEY=X` and `export API_KEY=X; …` without X."""
    masked: list[str] = []
    previous_names_secret = False
    for argument in arguments:
        option = _OPTION.fullmatch(argument)
        if previous_names_secret and not argument.startswith("-"):
            masked.append(MASK)
            previous_names_secret = False
            continue
        if option and is_secret(option[1]):
            masked.append(f"{option[1]}={MASK}")
        else:
            masked.append(_ASSIGNED.sub(rf"\1={MASK}", argument))
        previous_names_secret = argument.startswith("-") and option is None and is_secret(argument)
    return masked


def is_masked(arguments: list[str]) -> bool:
    """Whether something was left out of these: they cannot be run as they stand."""
    return any(argument == MASK or f"={MASK}" in argument for argument in arguments)
