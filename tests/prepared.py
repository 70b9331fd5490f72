"""`kgops` in children of a process that has imported it: each command is a process of its own, started in no time.

Most of what a short command takes is Python's start and its imports, and the tests give thousands. Background commands,
terminals, hosts and documents start a Python for each.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kgops

_NOT_IMPORTED = ("kgops.maths", "kgops.cluster", "kgops.tour", "kgops.__main__")
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG")
_one_at_a_time = threading.Lock()


def call(
    words: list[str], env: Mapping[str, str], cwd: Path, input: bytes | None
) -> subprocess.CompletedProcess[bytes] | None:
    """How `kgops WORDS` ended; None where a Python must be started for it, or another command goes on."""
    loader = env.get("LD_LIBRARY_PATH", "")
    folders = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if _start(env) != _start(os.environ) or any(map(_replaces, folders)):
        return None
    if not _one_at_a_time.acquire(blocking=False):
        return None
    try:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(input or b"")
            stdin.seek(0)
            return _answer(_server(loader), [words, dict(env), str(cwd), folders], stdin.fileno())
    finally:
        _one_at_a_time.release()


def _start(env: Mapping[str, str]) -> dict[str, str]:
    """What a Python reads once, but for the paths that differ between tests."""
    paths = ("PYTHONPATH", "LD_LIBRARY_PATH")
    return {name: env[name] for name in env if name.startswith(_READ_AT_START) and name not in paths}


def _replaces(folder: str) -> bool:
    """Whether something there takes the place of what has been imported."""
    return any((Path(folder) / name).exists() for name in ("kgops", "sitecustomize.py"))


def _answer(server: socket.socket, call: object, stdin: int) -> subprocess.CompletedProcess[bytes]:
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    socket.send_fds(server, [json.dumps(call).encode()], [stdin, out_end, err_end])
    os.close(out_end)
    os.close(err_end)
    with ThreadPoolExecutor(2) as readers:
        told = list(readers.map(_read, (out, err)))
    return subprocess.CompletedProcess([], int(server.recv(64)), *told)


def _read(pipe: int) -> bytes:
    with open(pipe, "rb") as file:
        return file.read()


@functools.cache
def _server(loader: str) -> socket.socket:
    """To a process that finds libraries there; it ends with this one, and is in no test's home."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {name: value for name, value in os.environ.items() if not name.startswith("KGOPS")}
    child = subprocess.Popen(
        [sys.executable, __file__, str(there.fileno())],
        env=env | ({"LD_LIBRARY_PATH": loader} if loader else {}),
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
    )
    there.close()
    atexit.register(_end, here, child)
    return here


def _end(server: socket.socket, child: subprocess.Popen[bytes]) -> None:
    server.close()
    child.wait()


# --- in that process ------------------------------------------------------------------------------


def _serve(calls: socket.socket) -> None:
    """Returns in a child, which is the command."""
    for found in pkgutil.walk_packages(kgops.__path__, "kgops."):
        if not found.name.startswith(_NOT_IMPORTED):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # else each child copies all of it
    while True:
        text, streams, _, _ = socket.recv_fds(calls, 1 << 20, 3)
        if not text:
            os._exit(0)
        child = os.fork()
        if not child:
            calls.close()
            return _become(json.loads(text), streams)
        for stream in streams:
            os.close(stream)
        calls.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(called: tuple[list[str], dict[str, str], str, list[str]], streams: list[int]) -> None:
    words, env, cwd, folders = called
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = words
    sys.path[:1] = [cwd, *folders]


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from kgops.__main__ import main

    try:
        main()
    except SystemExit as end:  # nothing is taken down that was only imported
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))
