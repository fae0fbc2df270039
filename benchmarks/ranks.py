"""Compare several ranks with one process: losses, killed ranks, and tokens/s on this machine.

The runs are started as a user starts them, with torchrun, on `pydocs`. *losses*: 60 steps at world
sizes 1, 2 and 4, with DDP and FSDP2, whole or in micro-batches, in fp32 and bf16, compared with one
process in the same precision: the largest difference of a step's loss in the first 20 steps and
in all steps. *kills*: repeated SIGKILL to one of two ranks under ``--max-restarts``; the final
model.safetensors must equal that of an undisturbed run, bit for bit. *speed*: the median ratio of
two processes of one thread each to one process of two threads, in turns. With --folder, the
finished runs of an interrupted call are reused.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import run_maskwright, write_result
from maskwright.logs import read_metrics

PARTS = ("losses", "kills", "speed")
SMALL = [
    "--recipe", "auto", "--model.hidden_size", "64", "--model.num_attention_heads", "2",
    "--model.intermediate_size", "128", "--train.compile", "off", "--train.log_every_steps", "1",
    "--train.num_validations", "1", "--train.valid_tokens", "2048",
    "--train.final_valid_tokens", "2048", "--train.report", "false",
]  # fmt: skip
_SPEED = ["--recipe", "auto", "--train.compile", "off", "--train.log_every_steps", "30",
          "--train.max_steps", "60", "--train.num_validations", "1",
          "--train.final_valid_tokens", "2048"]  # fmt: skip
# world size, parallel, micro_batch_tokens
_WAYS = [
    (1, "ddp", 256), (2, "ddp", None), (4, "ddp", None), (4, "ddp", 256),
    (2, "fsdp", None), (4, "fsdp", None), (4, "fsdp", 256),
]  # fmt: skip
_PRECISIONS = ("fp32", "bf16")
_MARKS = (20, 60)  # steps; the last is the length of a run


class Workplace:
    """Prepared data, and the folder of the runs over it."""

    def __init__(self, folder: Path) -> None:
        self.data, self.runs = folder / "data", folder / "runs"
        if not (self.data / "manifest.json").is_file():
            vocabulary = ("--tokenizer.vocab_size", "4096")
            run_maskwright("prepare", "pydocs", *vocabulary, "--out", self.data)

    def start(
        self, name: str, size: int, flags: list[str], restarts: int = 0, threads: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a run of `size` ranks; a world of one is started without torchrun."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        launcher += ["--max-restarts", str(restarts)] if restarts else []
        command = [sys.executable, *(launcher if size > 1 else []), "-m", "maskwright", "pretrain"]
        where = ["--runs-dir", str(self.runs), "--name", name, "--auto-resume"]
        return subprocess.Popen(
            [*command, str(self.data), *where, *flags],
            stdout=sys.stderr,
            env={**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})},
        )

    def run(self, name: str, size: int, flags: list[str], threads: int | None = None) -> None:
        """Run to the end, unless that was done before."""
        if (self.runs / name / "model").is_dir():
            return
        with self.start(name, size, flags, threads=threads) as process:
            if process.wait() != 0:
                sys.exit(f"the run {name} failed")

    def losses(self, name: str) -> list[float]:
        records = read_metrics(self.runs / name / "metrics.jsonl")
        return [record["loss"] for record in records if record["split"] == "train"]

    def model(self, name: str) -> bytes:
        return (self.runs / name / "model" / "model.safetensors").read_bytes()


def compare_losses(place: Workplace) -> list[dict[str, object]]:
    """Return the greatest difference of a loss, for each precision and way to split the batch."""
    results: list[dict[str, object]] = []
    threads = 1  # as many as torchrun gives each rank
    for precision in _PRECISIONS:
        flags = [*SMALL, "--train.max_steps", str(_MARKS[-1]), "--train.precision", precision]
        place.run(f"one-{precision}", 1, flags, threads)
        expected = place.losses(f"one-{precision}")
        for size, parallel, micro in _WAYS:
            name = f"{parallel}-{size}-{micro}-{precision}"
            cut = ["--train.micro_batch_tokens", str(micro)] if micro else []
            place.run(name, size, [*flags, "--train.parallel", parallel, *cut], threads)
            pairs = zip(place.losses(name), expected, strict=True)
            differences = [abs(a - b) for a, b in pairs]
            results.append(
                {
                    "precision": precision,
                    "ranks": size,
                    "parallel": parallel if size > 1 else "none",
                    "micro_batch_tokens": micro,
                    "greatest_difference": {n: max(differences[:n]) for n in _MARKS},
                }
            )
    return results


def kill_ranks(place: Workplace, parallel: str, kills: int) -> dict[str, object]:
    """Kill random ranks at random times; return whether the end is the undisturbed one."""
    flags = [*SMALL, "--train.max_steps", "400", "--train.parallel", parallel]
    flags += ["--train.checkpoint_every_minutes", "0.02"]
    place.run(f"calm-{parallel}", 2, flags, threads=2)
    draw, done = random.Random(0), 0
    name = f"killed-{parallel}"
    checkpoints = place.runs / name / "checkpoints"
    with place.start(name, 2, flags, restarts=kills, threads=2) as launcher:
        while done < kills and launcher.poll() is None:
            seen = set(checkpoints.glob("step_*"))
            while launcher.poll() is None and not set(checkpoints.glob("step_*")) - seen:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 1))
            children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
            ranks = [int(child) for child in children.split()]
            if ranks:
                os.kill(draw.choice(ranks), signal.SIGKILL)
                done += 1
        code = launcher.wait()
    same = code == 0 and place.model(name) == place.model(f"calm-{parallel}")
    return {"parallel": parallel, "ranks": 2, "kills": done, "exit_code": code, "same_bits": same}


def compare_speed(place: Workplace, rounds: int) -> dict[str, object]:
    """Return the tokens/s of two processes of one thread over those of one process of two."""

    def measure(size: int, number: int) -> float:
        name = f"speed-{size}-{number}"
        place.run(name, size, _SPEED)
        records = read_metrics(place.runs / name / "metrics.jsonl")
        return records[1]["tokens_per_second"]  # the first record holds the start

    speeds = ([measure(size, number) for size in (1, 2)] for number in range(rounds))
    ratios = [two / one for one, two in speeds]
    return {"rounds": rounds, "ratios": ratios, "median_ratio": statistics.median(ratios)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", choices=PARTS, help="[all]")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="folder for data and runs")


def main(arguments: argparse.Namespace) -> None:
    parts = arguments.parts or PARTS
    with tempfile.TemporaryDirectory(prefix="maskwright-ranks-") as folder:
        place = Workplace(arguments.folder or Path(folder))
        if "losses" in parts:
            write_result("ranks-losses", {"ways": compare_losses(place)})
        if "kills" in parts:
            killed = [kill_ranks(place, mode, arguments.kills) for mode in ("ddp", "fsdp")]
            write_result("ranks-kills", {"runs": killed})
        if "speed" in parts:
            write_result("ranks-speed", compare_speed(place, arguments.rounds))
