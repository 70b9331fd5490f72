"""Masks secrets in the record: values of secret names, and values of secret environment variables anywhere.

`***` stands for a whole value, `<***>` for a part of a longer text. What a worker prints or reports is kept as it came.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
HIDDEN = "<***>"  # unambiguous within a text, unlike three stars
# Not `tokenizer`, `keyword` or `author`. Of the short words only whole ones: `--pass`, DB_PASS, --auth, MYSQL_PWD.
_NAME = (
    r"(?:TOKEN(?!I[SZ])|(?<!MON)KEY(?!WORD|BOARD|FRAME|MAP|PRESS)|SECRET|PASSW(?:OR)?D|PASSPHRASE|PASSCODE|CREDENTIAL|BEARER"
    r"|(?<![A-Z])(?:PASS|AUTH|AUTHORIZATION|AUTHENTICATION)(?![A-Z])|(?<=[A-Z0-9]_)PWD(?![A-Z]))"
)
_SECRET = re.compile(_NAME, re.IGNORECASE)
_OPTION = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
# In a line for a shell, where a word alone does not show it. Capitals only: `key=` is any Python's.
_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s;&|()<>\"']+"
_ASSIGNED = re.compile(rf"\b((?=[A-Z0-9_]*{_NAME})[A-Z0-9_]+)=(?!\$|\"\$)({_VALUE})")
_SHELL_OPTION = re.compile(rf"(?<!\S)(--?[A-Za-z][\w.-]*)(=|[ \t]+)(?![-$]|\"\$)({_VALUE})")
_KEYWORD = re.compile(
    r"\b(\w{0,40}(?:password|passwd|passphrase|api_?key|secret|credential|(?:access|auth)_?token)\w{0,20})(\s{0,9}=\s{0,9})"
    r"([\"'])(?!\$)(.{1,2000}?)\3",
    re.IGNORECASE | re.DOTALL,
)
# scheme://user:X@host, and the token alone before a host, as in what git is given.
_URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)([^\s/:@?#\"']*):([^\s/@\"']+)@")
_URL_TOKEN = re.compile(r"(\bhttps?://)([^\s/:@?#\"']{16,})@", re.IGNORECASE)
_QUERY = re.compile(r"([?&])([\w.-]+)=([^&\s#\"';|<>]+)")
_BEARER = re.compile(r"\b(Bearer)([ \t]+)([A-Za-z0-9._~+/=-]{4,})", re.IGNORECASE)
# A header, with or without the word that says how; to the end of its text, for some have spaces.
_HEADER = re.compile(
    r"\b((?:Proxy-)?Authorization|(?:X-)?[\w-]{0,40}(?:Api-?Key|Auth-?Token|-Token|-Secret|-Key)|(?:Set-)?Cookie)"
    r"(:[ \t]*+)((?:Basic|Bearer|Digest|Token|Negotiate)[ \t]++)?+"
    r"(?!\$|<\*|(?:Basic|Bearer|Digest|Token|Negotiate)[ \t])"
    r"([^\"'\r\n\\]+)",
    re.IGNORECASE,
)
# All are bounded: a script may be long, and a repetition that is looked at again from every letter takes minutes.
# JSON, also within a text that is quoted itself.
_JSON = re.compile(
    r"(\\{0,8}[\"'])([\w. -]{1,80})\1(\s{0,9}:\s{0,9})(\\{0,8}[\"'])(.{1,2000}?)(?<!\\)\4", re.DOTALL
)
_YAML = re.compile(
    r"\b(\w{0,40}(?:password|passwd|passphrase|api_?key|secret|credential|token)s?)(:[ \t]+)([^\s\"',;{}()\[\]]+)",
    re.IGNORECASE,
)
# -p is a port, a path or a profile to most programs. Of these it is known what their options mean: name → those with
# the secret behind them (in the same word or the next), and those with `user:secret`.
_P = (("-p",), ())
_PROGRAMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlshow", "mysqlcheck"), _P),
    **dict.fromkeys(
        ("mariadb", "mariadb-dump", "mariadb-admin", "mariadb-import", "sshpass", "7z", "7za"), _P
    ),
    "curl": ((), ("-u", "--user", "-U", "--proxy-user")),
    "redis-cli": (("-a",), ()),
    "sqlcmd": (("-P",), ()),
    "ldapsearch": (("-w",), ()),
    "unzip": (("-P",), ()),
    "zip": (("-P",), ()),
}
_SAME_WORD_ALONE = frozenset(name for name in _PROGRAMS if name.startswith(("mysql", "mariadb", "7z")))
_IN_SHELL = re.compile(
    r"(?<![\w./-])((?:[\w.-]*/)*("
    + "|".join(map(re.escape, _PROGRAMS))
    + r"))(?=\s)((?:\"[^\"]*\"|'[^']*'|[^;&|\n\"'])*)"
)
_WORD = re.compile(r"(\s+)((?:\"[^\"]*\"|'[^']*'|[^\s\"'])+)")
# Recorded because they change a run; other variables are private.
_WORTH_KEEPING = re.compile(
    r"(CUDA|NVIDIA|NCCL|PYTORCH|TORCH|TRITON|OMP|MKL|OPENBLAS|GOMP|KMP|MALLOC|GLIBC|PYTHON|PYKEEN|SLURM|RAY|KGOPS)_?.*"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PATH|LANG|LC_ALL|TZ|VIRTUAL_ENV|CONDA_DEFAULT_ENV|CONDA_PREFIX|HOSTNAME"
)
_SHORTEST = 8  # of a variable's value that is looked for: `1`, `true` and `none` stand everywhere


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def masked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables worth recording, with only the names of secret ones."""
    return {
        name: MASK if is_secret(name) else masked_text(value, environment)
        for name, value in sorted(environment.items())
        if is_secret(name) or _WORTH_KEEPING.fullmatch(name)
    }


def masked_arguments(arguments: list[str], environment: Mapping[str, str] | None = None) -> list[str]:
    """A command without what its options, headers, addresses and scripts give away, and without any value that a
    variable of this process (or of `environment`) has whose name says that it is secret."""
    values = _values(environment)
    masked: list[str] = []
    expected: str | None = None  # the option whose value is next; "" is one whose name alone says so
    program = ""
    for argument in arguments:
        before, expected = expected, None
        if before is not None and not argument.startswith("-"):
            masked.append(_pair(argument) if before else MASK)
            continue
        name = argument.rpartition("/")[2]
        if name in _PROGRAMS:
            program = name
        shown, expected = _option_of(program, argument)
        if shown is not None and program == "sshpass":
            program = ""  # what follows is another's
        if shown is None:
            option = _OPTION.fullmatch(argument)
            if option and is_secret(option[1]):
                shown = f"{option[1]}={MASK}"
            else:
                shown = _masked(argument, values)
                if argument.startswith("-") and option is None and is_secret(argument):
                    expected = ""
        masked.append(shown)
    return masked


def masked_text(text: str, environment: Mapping[str, str] | None = None) -> str:
    """A label, a note or a folder, without any secret in it."""
    return _masked(text, _values(environment))


def secret_in(value: Any) -> bool:
    """Whether a text, or one in a table or a list, holds the value of a secret variable."""
    values = _values(None)
    waiting = [value]
    while waiting and values:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif isinstance(one, str) and any(secret in one for secret in values):
            return True
    return False


def is_masked(arguments: list[str]) -> bool:
    """Whether something was left out of these: they cannot be run as they stand."""
    return any(argument == MASK or f"={MASK}" in argument or HIDDEN in argument for argument in arguments)


def _values(environment: Mapping[str, str] | None) -> list[str]:
    """Of variables whose names say that they are secret, the longest first: one may be a part of another."""
    variables = os.environ if environment is None else environment
    values = {
        value
        for name, value in variables.items()
        if len(value) >= _SHORTEST and is_secret(name) and not _is_path(value)
    }
    return sorted(values, key=len, reverse=True)


def _is_path(value: str) -> bool:
    """SSH_KEY=/home/me/.ssh/id names where a secret is; its folder may be that of the run."""
    return value.startswith(("/", "~/", "./")) and os.path.lexists(os.path.expanduser(value))  # noqa: PTH111  a text, which may be no path


def _option_of(program: str, argument: str) -> tuple[str | None, str | None]:
    """An option that means a secret to this program: as it is shown, and what its next word is."""
    secret, pairs = _PROGRAMS.get(program, ((), ()))
    for names, kind in ((secret, ""), (pairs, "user")):
        for name in names:
            if argument == name:
                return name, None if program in _SAME_WORD_ALONE else kind
            if argument.startswith(f"{name}=") and name.startswith("--"):
                return f"{name}={_pair(argument[len(name) + 1 :])}", None
            if argument.startswith(name) and not name.startswith("--"):
                rest = argument[len(name) :]
                return name + (_pair(rest) if kind else HIDDEN), None
    return None, None


def _pair(text: str) -> str:
    user, colon, secret = text.partition(":")
    return f"{user}:{HIDDEN}" if colon and secret and not secret.startswith("$") else text


def _masked(text: str, values: list[str]) -> str:
    for value in values:
        text = text.replace(value, HIDDEN)
    if len(text) < 4:  # too short for anything below
        return text
    if "://" in text:
        text = _URL.sub(rf"\1\2:{HIDDEN}@", text)
        text = _URL_TOKEN.sub(rf"\1{HIDDEN}@", text)
    if "?" in text:
        text = _QUERY.sub(lambda m: _if_secret(m[2], m, f"{m[1]}{m[2]}={HIDDEN}"), text)
    if ":" in text:
        text = _JSON.sub(lambda m: _if_secret(m[2], m, f"{m[1]}{m[2]}{m[1]}{m[3]}{m[4]}{HIDDEN}{m[4]}"), text)
        text = _HEADER.sub(lambda m: f"{m[1]}{m[2]}{m[3] or ''}{HIDDEN}", text)
        text = _YAML.sub(lambda m: m[0] if m[3].startswith(("$", "<*")) else f"{m[1]}{m[2]}{HIDDEN}", text)
    text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    if "=" in text:
        text = _ASSIGNED.sub(rf"\1={MASK}", text)
        text = _KEYWORD.sub(rf"\1\2\3{HIDDEN}\3", text)
    if any(space in text for space in " \t\n"):
        text = _SHELL_OPTION.sub(lambda m: _if_secret(m[1], m, f"{m[1]}{m[2]}{HIDDEN}"), text)
        text = _IN_SHELL.sub(lambda m: m[1] + _in_program(m[2], m[3]), text)
    return text


def _if_secret(name: str, match: re.Match[str], shown: str) -> str:
    return shown if is_secret(name) and HIDDEN not in match[0] else match[0]


def _in_program(program: str, words: str) -> str:
    """The words of one program in a line for a shell."""
    expected: str | None = None

    def shown(match: re.Match[str]) -> str:
        nonlocal expected
        quote = match[2][0] if match[2][0] in "\"'" and match[2][-1] == match[2][0] else ""
        word = match[2].strip(quote) if quote else match[2]
        before, expected = expected, None
        if before is not None and not word.startswith("-"):
            secret = _pair(word) if before else HIDDEN
            return match[0] if word.startswith("$") else match[1] + quote + secret + quote
        masked, expected = _option_of(program, word)
        # Behind the dash and its letter: a variable is no secret, and what is hidden already stays.
        if masked is None or word[2:].lstrip("\"'").startswith(("$", "<*")):
            return match[0]
        return match[1] + quote + masked + quote

    return _WORD.sub(shown, words)
