"""Test torchrun on two machines: network namespaces with a cable (a veth pair) between them.

It needs root and ip (iproute2). First it compares the losses of one process with those of two
ranks, on one machine and on two. Then, in separate runs, a rank or a torchrun is killed or the
cable is unplugged; a torchrun that fails is restarted, as a scheduler would. The final losses and
weights are compared with the undisturbed run, bit for bit. Only pauses above five seconds count.
Linux gives up a connection after `tcp_retries2` retransmissions: 15 take 15 minutes, 3 a second.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.common import write_result
from benchmarks.ranks import SMALL, Workplace

_MACHINES = {"maskwright-1": "10.77.0.1", "maskwright-2": "10.77.0.2"}  # namespaces
_FIRST, _SECOND = _MACHINES
_FP32 = [*SMALL, "--train.precision", "fp32", "--train.checkpoint_every_minutes", "0.05"]
_FLAGS = {
    "auto": [*_FP32, "--train.max_steps", "60"],  # as in `ranks losses`
    "tiny": [*_FP32, "--recipe", "tiny", "--train.max_steps", "300"],
}
_MARKS, _DISTURBED_AT, _LONG_PAUSE, _MOST_STARTS = (20, 60), 100, 5, 5
_HOUR = 3600  # torchrun's read_timeout: it ends if the rendezvous does not answer for so long
_CUTS = [(20, 15, 60), (90, 15, 60), (90, 15, _HOUR), (60, 3, _HOUR)]


def run_ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


@contextmanager
def connecting() -> Iterator[None]:
    """Set up the machines; at the end take them down with every process in them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        sys.exit("two-machines needs root and the command ip (Debian: iproute2)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    made = list[str]()
    try:
        for name in _MACHINES:
            run_ip(f"netns add {name}")
            made.append(name)
        run_ip(f"link add eth0 netns {_FIRST} type veth peer eth0 netns {_SECOND}")
        for name, address in _MACHINES.items():
            run_ip(f"-n {name} address add {address}/24 dev eth0")
            run_ip(f"-n {name} link set lo up")
            run_ip(f"-n {name} link set eth0 up")
        yield
    finally:
        for name in made:
            end = f"ip netns pids {name} | xargs -r kill -9; ip netns delete {name}"
            subprocess.run(end, shell=True)


class Job:
    """A run with one rank on each machine."""

    def __init__(self, place: Workplace, name: str, recipe: str, wait: int = _HOUR) -> None:
        self.place, self.name, self.recipe, self.read_timeout = place, name, recipe, wait
        self.num_starts, self.pauses = dict.fromkeys(_MACHINES, 0), list[float]()
        self.num_steps, self.went_on = 0, 0.0
        self.launchers = {machine: self._start(machine) for machine in _MACHINES}

    def _start(self, machine: str) -> subprocess.Popen[bytes]:
        self.num_starts[machine] += 1
        if self.num_starts[machine] > _MOST_STARTS:
            sys.exit(f"torchrun has failed {_MOST_STARTS} times on {machine}")
        conf = f"is_host={machine == _FIRST},read_timeout={self.read_timeout}"
        command = f"""ip netns exec {machine} env GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 {sys.executable} -m torch.distributed.run
            --nnodes 2 --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d
            --rdzv-endpoint {_MACHINES[_FIRST]}:29400 --rdzv-id {self.name} --rdzv-conf {conf}
            --local-addr {_MACHINES[machine]} -m maskwright pretrain {self.place.data}
            --runs-dir {self.place.runs} --name {self.name} --auto-resume""".split()
        return subprocess.Popen([*command, *_FLAGS[self.recipe]], stdout=sys.stderr)

    def wait(self, until: Callable[[], bool]) -> None:
        """Return when a condition holds; start again what fails, and note long pauses."""
        metrics = self.place.runs / self.name / "metrics.jsonl"
        while not until():
            for machine, launcher in self.launchers.items():
                if launcher.poll():
                    self.launchers[machine] = self._start(machine)
            num_steps = len(self.place.losses(self.name)) if metrics.exists() else 0
            if num_steps > self.num_steps:
                if (pause := time.monotonic() - self.went_on) > _LONG_PAUSE and self.num_steps:
                    self.pauses.append(round(pause, 1))
                self.num_steps, self.went_on = num_steps, time.monotonic()
            time.sleep(0.1)

    def has_ended(self) -> bool:
        return all(launcher.poll() == 0 for launcher in self.launchers.values())

    def disturb(self, act: Callable[[], None]) -> dict[str, object]:
        """Do something in the middle; compare the end with that of the run ``machines-tiny``."""
        self.wait(lambda: self.num_steps >= _DISTURBED_AT)
        act()
        self.wait(self.has_ended)
        ends = [(self.place.losses(n), self.place.model(n)) for n in (self.name, "machines-tiny")]
        return {
            "pauses_seconds": self.pauses,
            "torchrun_starts": list(self.num_starts.values()),
            "same_bits": ends[0] == ends[1],
        }

    def kill(self, machine: str, what: str) -> None:
        pid = self.launchers[machine].pid
        ranks = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid if what == "torchrun" else int(ranks[0]), signal.SIGKILL)

    def cut(self, seconds: float, retries: int) -> None:
        """Keep the second machine's end of the cable down for a while."""
        for name in _MACHINES:
            setting = ["sh", "-c", f"echo {retries} > /proc/sys/net/ipv4/tcp_retries2"]
            subprocess.run(["ip", "netns", "exec", name, *setting], check=True)
        run_ip(f"-n {_SECOND} link set eth0 down")
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end)
        run_ip(f"-n {_SECOND} link set eth0 up")


def compare_losses(place: Workplace, recipe: str) -> dict[str, object]:
    """Return the greatest difference of a loss from that of one process."""
    for name, size in ((f"one-{recipe}", 1), (f"ranks-{recipe}", 2)):
        place.run(name, size, _FLAGS[recipe], threads=1)
    job = Job(place, f"machines-{recipe}", recipe)
    job.wait(job.has_ended)
    pairs = zip(place.losses(job.name), place.losses(f"one-{recipe}"), strict=True)
    differences = [abs(ours - theirs) for ours, theirs in pairs]
    return {
        "recipe": recipe,
        "greatest_difference": {n: max(differences[:n]) for n in _MARKS},
        "same_bits_as_on_one_machine": place.model(job.name) == place.model(f"ranks-{recipe}"),
    }


def main(_arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="maskwright-machines-") as folder, connecting():
        place, disturbed = Workplace(Path(folder)), list[dict[str, object]]()
        losses = [compare_losses(place, recipe) for recipe in _FLAGS]
        for machine, what in product(_MACHINES, ("rank", "torchrun")):
            job = Job(place, f"{what}-{machine}", "tiny")
            end = job.disturb(partial(job.kill, machine, what))
            disturbed.append({"killed": what, "machine": machine, **end})
        for cut in _CUTS:
            job = Job(place, "cut-{}-{}-{}".format(*cut), "tiny", cut[2])
            end = job.disturb(partial(job.cut, *cut[:2]))
            terms = zip(("cut_seconds", "tcp_retries2", "read_timeout"), cut, strict=True)
            disturbed.append({**dict(terms), **end})
        write_result("two-machines", {"losses": losses, "disturbed": disturbed})
