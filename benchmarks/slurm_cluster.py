"""Start or stop a real Slurm cluster of two nodes on this machine (Debian's `slurm-wlm`, root).

`up` prints the variable ``SLURM_CONF`` that Slurm's commands need; the partition `cpu` holds four
jobs of one CPU each. The controller and both nodes have their own PID and UTS namespaces:
``down --machine`` kills one with all its jobs, as a power failure does, and ``up --machine``
restarts it. `down` kills everything and removes the folder.
"""

import argparse
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

MACHINES = ("control", "node1", "node2")
_CONFIG = """\
ClusterName=maskwright
SlurmctldHost=control(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
StateSaveLocation={folder}/control
SlurmctldPidFile={folder}/control/pid
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n/pid
# A requeued job starts again after cred_expire seconds (120 by default).
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmdTimeout=10
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=1000
# With config_overrides a node has these CPUs and this memory, whatever the machine has.
SlurmdParameters=config_overrides
NodeName=node1 NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=16000
NodeName=node2 NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=16000
PartitionName=cpu Nodes=ALL Default=YES
"""
_CONTROL = """munged --force --foreground --key-file="$PWD/munge.key" \
--socket="$PWD/munge.socket" --seed-file="$PWD/munge.seed" --pid-file="$PWD/munge.pid" &
slurmctld -D"""


def is_available() -> bool:
    """Return True if a cluster can be started here: as root, with Debian's packages."""
    return os.geteuid() == 0 and all(map(shutil.which, ("slurmctld", "slurmd", "munged")))


def start(folder: Path) -> None:
    """Start a cluster in a new folder, with ``slurm.conf`` in it."""
    folder.mkdir(parents=True)
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in MACHINES]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    (folder / "slurm.conf").write_text(_CONFIG.format(folder=folder, ports=ports), encoding="utf-8")
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(os.urandom(128))
    for machine in MACHINES:
        start_machine(folder, machine)


def start_machine(folder: Path, machine: str) -> None:
    """Start the controller or a node; return when it responds."""
    daemons, test = "slurmd -D", f"sinfo -hNrt idle,mixed,alloc -o %N | grep -x {machine}"
    if machine == "control":
        daemons, test = _CONTROL, "scontrol ping"
    alone = "unshare --pid --uts --fork --kill-child --mount-proc sh -c"
    inside = shlex.quote(f"hostname {machine}; {daemons}")
    script = f"{alone} {inside} </dev/null >>{machine}.log 2>&1 & echo $! >{machine}.pid"
    wait = f"timeout 30 sh -c 'until {test}; do sleep 0.2; done >{machine}.test 2>&1'"
    environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    for command in (script, wait):
        done = subprocess.run(["setsid", "sh", "-c", command], cwd=folder, env=environment)
    if done.returncode:
        sys.exit(f"{machine} does not respond after 30 seconds. See {folder}/{machine}.log.")


def stop_machine(folder: Path, machine: str) -> None:
    """Kill the controller or a node, and its jobs, if it runs."""
    with suppress(FileNotFoundError, ProcessLookupError):
        pid = int((folder / f"{machine}.pid").read_text())
        if f"{folder}/slurm.conf".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            first = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
            handle = os.pidfd_open(first)  # ready when all processes of its namespace have ended
            os.kill(first, signal.SIGKILL)
            select.select([handle], [], [])
            os.close(handle)


def stop(folder: Path) -> None:
    """Kill the cluster and remove its folder."""
    for machine in reversed(MACHINES):
        stop_machine(folder, machine)
    shutil.rmtree(folder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to do, and where."""
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--folder", type=Path, required=True, help="for key, state, logs")
    parser.add_argument("--machine", choices=MACHINES, help="machine of the cluster [all]")
    parser.add_argument("--install", action="store_true", help="install Debian's packages first")


def main(arguments: argparse.Namespace) -> None:
    """Start or stop the cluster, or one machine of it."""
    folder, machine = arguments.folder.resolve(), arguments.machine
    if arguments.install:
        install = "apt-get update && apt-get install --yes slurm-wlm munge"
        subprocess.run(install, shell=True, check=True)
    if not is_available():
        sys.exit("needs root and Debian's packages slurm-wlm and munge. Add --install.")
    config, is_up = folder / "slurm.conf", arguments.action == "up"
    if config.exists() == (is_up and not machine):
        sys.exit(f"{folder} {'has' if config.exists() else 'does not have'} a cluster")
    whole, single = (start, start_machine) if is_up else (stop, stop_machine)
    single(folder, machine) if machine else whole(folder)
    if is_up:
        print(f"SLURM_CONF={config}")
