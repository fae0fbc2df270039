"""Training from shards on an S3 server, once they are here, beside training from a local folder.

    MASKWRIGHT_DATA=… python -m benchmarks.remote_speed [--data DATA] [--rounds N] [--steps N]

The server is moto's, on loopback. Fresh processes, in turns, without compiling; each says how many
tokens a second it trained on, and how fast it reads rows with nothing to compute between. How long
a run takes from an empty cache and a full one to its first step is measured beside.
"""

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.collation import time_ours as time_rows
from benchmarks.common import find_prepared, write_result
from benchmarks.races import divide, race
from benchmarks.start_speed import time_until
from benchmarks.training_speed import WARMUP, configure, time_ours
from maskwright.data.rows import DataPosition
from maskwright.preparation.locate import locate
from maskwright.pretraining.prepared_data import PreparedData, fetch_ahead
from maskwright.train.device import keep_freed_memory

BUCKET, FOLDER = "bucket", "data"
URL = f"s3://{BUCKET}/{FOLDER}"
TRAINING, ROWS = "training", "rows"
ROWS_A_STEP = 16  # of 128 slots, as training has


@contextmanager
def serving(folder: Path, scratch: Path) -> Generator[Path]:
    """Has `URL` mean a copy of `folder` on a server of our own; gives the cache's folder."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # which tells of every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "MASKWRIGHT_CACHE": str(scratch / "cache"),
    }
    os.environ.update(settings)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    for file in folder.rglob("*"):
        if file.is_file():
            key = f"{FOLDER}/{file.relative_to(folder).as_posix()}"
            client.upload_file(str(file), BUCKET, key)
    yield scratch / "cache"
    server.stop()


def run_alone(kind: str, place: str, steps: int) -> float:
    """Tokens a second in this process, from a folder or a URL."""
    keep_freed_memory()  # as `maskwright pretrain` does
    data = PreparedData(locate(place))
    config = configure("tiny", steps + WARMUP, "fp32", compiles=False)
    fetch_ahead(config, data, DataPosition(config.data.max_seq_length))
    if kind == ROWS:
        return time_rows(data, ROWS_A_STEP)
    with tempfile.TemporaryDirectory() as scratch:
        return time_ours(config, data, Path(scratch))


def run_beside(kind: str, place: str, steps: int) -> float:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.remote_speed", "--alone", kind, "--place", place]
    command += ["--steps", str(steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def start(place: str, cache: Path | None = None) -> float:
    """Seconds from the command to the first step; from an empty `cache` if it is given."""
    if cache is not None:
        shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-u", "-m", "maskwright", "pretrain", place, "--recipe", "tiny"]
    command += ["--train.compile", "off", "--train.log_every_steps", "1"]
    with tempfile.TemporaryDirectory() as runs:
        return time_until([*command, "--runs-dir", runs], "step 1 ")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="English Wikipedia, prepared already")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40, help="timed ones, of each round [40]")
    parser.add_argument("--alone", choices=(TRAINING, ROWS), help="prints its tokens a second")
    parser.add_argument("--place", help="folder or URL, with --alone")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.alone:
        print(run_alone(arguments.alone, arguments.place, arguments.steps))
        return
    measured: dict[str, Any] = {}
    with (
        find_prepared(arguments.data) as folder,
        tempfile.TemporaryDirectory() as scratch,
        serving(folder, Path(scratch)) as cache,
    ):
        places = {"local": str(folder.resolve()), "remote": URL}
        num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        starts = {name: partial(start, place) for name, place in places.items()}
        starts["remote, nothing here"] = partial(start, URL, cache)
        # The cache is full when a round begins, and at the end.
        starts["remote"]()
        found = race(starts, arguments.rounds, "seconds to the first step")
        measured["start"] = {"seconds": found, "ratio": divide(found["remote"], found["local"])}
        for kind in (TRAINING, ROWS):
            run_beside(ROWS, URL, arguments.steps)  # all that is read is here from now on
            contenders = {
                name: partial(run_beside, kind, place, arguments.steps)
                for name, place in places.items()
            }
            found = race(contenders, arguments.rounds, "tokens/s")
            ratio = divide(found["remote"], found["local"])
            measured[kind] = {"tokens_per_second": found, "remote_over_local": ratio}
            print(kind, ratio)
    write_result("remote-speed", {"data_bytes": num_bytes, "steps": arguments.steps, **measured})


if __name__ == "__main__":
    main()
