"""Training from shards on an S3 server, once they are cached, beside training from a local folder.

The server is moto's, on loopback. Fresh processes, in turns, without compiling; each reports how
many tokens a second it trained on, and how fast it reads rows with nothing to compute between. The
time from an empty and from a full cache to the first step is measured beside.
"""

import argparse
import logging
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.collation import time_ours as time_rows
from benchmarks.common import add_data, divide, find_prepared, race, run_alone, write_result
from benchmarks.start_speed import start_ours
from benchmarks.training_speed import WARMUP, TickingReporter, configure, time_fit
from maskwright.data.rows import DataPosition
from maskwright.pretraining.prepared_data import PreparedData, fetch_ahead
from maskwright.runs.find_data import locate
from maskwright.train.device import keep_freed_memory

BUCKET, FOLDER = "bucket", "data"
URL = f"s3://{BUCKET}/{FOLDER}"
TRAINING, ROWS = "training", "rows"
ROWS_A_STEP = 16  # of 128 positions, as training has


@contextmanager
def serving(folder: Path, scratch: Path) -> Generator[Path]:
    """Serve a copy of `folder` at `URL` from a server of our own; give the cache's folder."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # which logs every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "MASKWRIGHT_CACHE": str(scratch / "cache"),
    }
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    for file in folder.rglob("*"):
        if file.is_file():
            key = f"{FOLDER}/{file.relative_to(folder).as_posix()}"
            client.upload_file(str(file), BUCKET, key)
    yield scratch / "cache"
    server.stop()


def measure_alone(kind: str, place: str, steps: int) -> float:
    """Return the tokens a second in this process, from a folder or a URL."""
    keep_freed_memory()  # as `maskwright pretrain` does
    data = PreparedData(locate(place))
    config = configure("tiny", steps + WARMUP, "fp32", compiles=False)
    fetch_ahead(config, data, DataPosition(config.data.max_seq_length))
    if kind == ROWS:
        return time_rows(data, ROWS_A_STEP)
    return time_fit(config, data, TickingReporter(WARMUP))


def start_with_empty_cache(cache: Path) -> float:
    """Return the seconds from the command to the first step when nothing is cached."""
    shutil.rmtree(cache, ignore_errors=True)
    return start_ours(URL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each round [40]")
    parser.add_argument("--alone", choices=(TRAINING, ROWS), help="prints its tokens a second")
    parser.add_argument("--place", help="folder or URL, with --alone")


def main(arguments: argparse.Namespace) -> None:
    if arguments.alone:
        print(measure_alone(arguments.alone, arguments.place, arguments.steps))
        return
    measured: dict[str, Any] = {}
    with (
        find_prepared(arguments.data) as folder,
        tempfile.TemporaryDirectory() as scratch,
        serving(folder, Path(scratch)) as cache,
    ):
        places = {"local": str(folder.resolve()), "remote": URL}
        num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        starts = {name: partial(start_ours, place) for name, place in places.items()}
        starts["remote, nothing here"] = partial(start_with_empty_cache, cache)
        start_ours(URL)  # the cache is full when a round begins
        found = race(starts, arguments.rounds, "seconds to the first step")
        measured["start"] = {"seconds": found, "ratio": divide(found["remote"], found["local"])}
        for kind in (TRAINING, ROWS):
            flags = ("remote-speed", "--steps", arguments.steps, "--alone")
            run_alone(*flags, ROWS, "--place", URL)  # which caches all that is read
            contenders = {
                name: partial(run_alone, *flags, kind, "--place", place)
                for name, place in places.items()
            }
            found = race(contenders, arguments.rounds, "tokens/s")
            ratio = divide(found["remote"], found["local"])
            measured[kind] = {"tokens_per_second": found, "remote_over_local": ratio}
    write_result("remote-speed", {"data_bytes": num_bytes, "steps": arguments.steps, **measured})
