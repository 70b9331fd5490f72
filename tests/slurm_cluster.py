"""A real Slurm of a few virtual nodes on this machine, for as long as a test needs it: no systemd, nothing global."""

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driving import patience

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin", "/sbin"])

_CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock,cred_expire=6
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=5
SlurmdTimeout=6
MinJobAge=600
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 RealMemory=2000
PartitionName=main Nodes=n[1-{nodes}] Default=YES State=UP PriorityTier=10 PreemptMode=REQUEUE GraceTime=0
PartitionName=urgent Nodes=n[1-{nodes}] State=UP PriorityTier=100 PreemptMode=OFF
"""
_GPU_CONF = """GresTypes=gpu
PartitionName=gpu Nodes=ALL State=UP
"""


def missing() -> list[str]:
    """Programs that are not here; without them there is no Slurm to test with."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


@dataclass
class Cluster:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _PATH}

    def ask(self, *command: str) -> str:
        own = {**os.environ, **self.environment}
        done = subprocess.run(
            command, env=own, capture_output=True, text=True, timeout=patience(), check=False
        )
        return done.stdout + done.stderr

    def lose_node(self, name: str) -> None:
        """Its daemon is gone, as after a crash; what runs there goes on, which nobody can know."""
        os.kill(int((self.folder / f"slurmd.{name}.pid").read_text()), signal.SIGKILL)


@contextlib.contextmanager
def cluster(folder: Path, nodes: int, *, with_gpus: bool = False) -> Iterator[Cluster]:
    """`with_gpus`: each node has one, in a partition `gpu`. Slurm only counts them."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True, mode=0o700)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    first = _free_ports(nodes + 1)
    text = _CONF.format(
        folder=folder,
        host=socket.gethostname().split(".")[0],
        user=getpass.getuser(),
        nodes=nodes,
        port=first,
        first=first + 1,
        last=first + nodes,
    )
    if with_gpus:
        text = text.replace("RealMemory=2000", "RealMemory=2000 Gres=gpu:1") + _GPU_CONF
        (folder / "gres.conf").write_text("Name=gpu File=/dev/zero\n")
    (folder / "slurm.conf").write_text(text)
    one = Cluster(folder)
    where = folder / "munge"
    flags = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    try:
        _run(one, "munged", "--force", *(f"--{flag}={where / name}" for flag, name in flags.items()))
        _run(one, "slurmctld")
        for number in range(1, nodes + 1):
            (folder / "spool" / f"n{number}").mkdir()
            _run(one, "slurmd", "-N", f"n{number}")
        deadline = time.monotonic() + 30
        while len(one.ask("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N").split()) < nodes:
            assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.1)
        yield one
        one.ask("scancel", "--user", getpass.getuser())
    finally:
        for file in (*folder.glob("slurmd.*.pid"), folder / "slurmctld.pid", folder / "munge" / "pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)


def _run(one: Cluster, *command: str) -> None:
    own = {**os.environ, **one.environment}
    done = subprocess.run(
        command,
        env=own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


def _free_ports(many: int) -> int:
    """The first of so many in a row that nobody listens on."""
    for first in range(21_000 + os.getpid() % 2_000, 60_000, many):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + many):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")
