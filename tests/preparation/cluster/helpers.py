"""Work to hand out, processes to kill, and a Slurm that runs its jobs on this machine."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
# For the processes that are started: a cluster of Ray of their own, whatever runs on this machine,
# with a token of ours, or else Ray writes one to the home folder.
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_ADDRESS": "local",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
_SECONDS = 180  # after which something hangs


def begin_doubling(log: Path | None = None) -> Callable[[int], int]:
    """Doubles numbers, and notes them in a file."""

    def double(number: int) -> int:
        if log is not None:
            with log.open("a") as file:
                file.write(f"{number}\n")
        return 2 * number

    return double


def begin_dying(number: int, times: int, marks: Path) -> Callable[[int], int]:
    """Doubles numbers, but the process dies of one of them, so many times."""

    def double_or_die(item: int) -> int:
        if item == number and len(list(marks.iterdir())) < times:
            (marks / f"{os.getpid()}-{time.monotonic_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * item

    return double_or_die


def begin_failing() -> Callable[[int], int]:
    """Fails at the number 3."""

    def check(number: int) -> int:
        if number == 3:
            raise ValueError("three is refused")
        return number

    return check


def begin_sleeping() -> Callable[[int], int]:
    """Gives 0 back at once, and sleeps for minutes over all else."""

    def sleep(number: int) -> int:
        time.sleep(min(number, 1) * _SECONDS)
        return number

    return sleep


def list_processes(words: str) -> list[int]:
    """The ids of all processes with these words in their command lines."""
    return sorted(pid for pid, (_, command) in _read_processes().items() if words in command)


def find_descendant(ancestor: int, words: str) -> int:
    """The oldest process below `ancestor` with these words in its command line."""
    processes = _read_processes()
    below = [ancestor]
    for pid in below:
        below += [child for child, (parent, _) in processes.items() if parent == pid]
    return min(pid for pid in below[1:] if words in processes[pid][1])


def _read_processes() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each process."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # ended meanwhile
        found[int(entry.name)] = int(parent), command
    return found


def prepare_and_kill(arguments: Sequence[str], words: str) -> tuple[list[str], int]:
    """Runs ``maskwright prepare`` and kills a process of it when the first shard is there.

    Args:
        words: in the command line of the process that is killed.

    Returns:
        What it says, and how many shards were done when the process was killed.
    """
    out = Path(arguments[arguments.index("--out") + 1])
    command = [sys.executable, "-m", "maskwright", "prepare", *arguments]
    environment = {**os.environ, **ENVIRONMENT}
    lines, num_done = list[str](), -1
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        timer = threading.Timer(_SECONDS, process.kill)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("encoded") and num_done < 0:
                num_done = len(list(out.glob("*/*.done")))
                os.kill(find_descendant(process.pid, words), signal.SIGKILL)
        timer.cancel()
    assert process.returncode == 0, "\n".join(lines)
    return lines, num_done


_SLURM = {
    "sbatch": """
script="${@: -1}"
value() { sed -n "s/^#SBATCH --$1=//p" "$script"; }
if [ "$(value partition)" != cpu ]; then
    echo "sbatch: error: invalid partition specified: $(value partition)" >&2
    exit 1
fi
cp "$script" "$HERE/$(value job-name).sh"
for task in $(seq 0 "$(value array | cut -d- -f2)"); do
    log=$(value output | sed "s/%A/7/; s/%a/$task/")
    SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=here setsid bash "$HERE/$(value job-name).sh" \
        >"$log" 2>&1 </dev/null &
    echo $! >>"$HERE/$(value job-name).pids"
done
echo "Submitted batch job 7"
""",
    "srun": """
echo "srun $*"
[ -e "$HERE/broken" ] && { echo "srun: error: node is broken"; exit 1; }
while [ "${1#-}" != "$1" ]; do [ "$1" = -n ] && shift; shift; done
exec "$@"
""",
    "squeue": """
for argument in "$@"; do case $argument in --name=*) name=${argument#--name=};; esac; done
for pid in $(cat "$HERE/$name.pids"); do
    grep -qs "^State:.[^Z]" "/proc/$pid/status" && echo 7_0
done
exit 0
""",
    "scancel": """
for pid in $(cat "$HERE/${1#--name=}.pids"); do kill -9 -- "-$pid"; done
touch "$HERE/cancelled"
""",
    "scontrol": "echo here",
}


def install_slurm(folder: Path) -> None:
    """Programs of Slurm's names in `folder`, with one partition, ``cpu``.

    While ``FOLDER/broken`` exists its jobs fail; ``FOLDER/cancelled`` appears when some are ended.
    """
    folder.mkdir()
    for name, text in _SLURM.items():
        program = folder / name
        program.write_text(f"#!/bin/bash\nHERE={folder}\n{text.lstrip()}")
        program.chmod(0o755)
