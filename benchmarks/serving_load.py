"""Measure a server under load: throughput and latency with and without batching, and overload.

The server runs in a separate process; this one keeps 64 connections busy over loopback, on the same
cores, with sentences of 8 to 24 words or queries of 2 to 6. `alone` uses one connection, for the
latency without load. `overload` has a queue of 16 texts, so that most requests are rejected with
503, and afterwards sends one that must succeed. With --idle N it keeps N connections open that send
nothing, reopens them when they are closed, and requests /health every half second. With --replace
OTHER the server changes between the two models under load, by SIGUSR1, and each answer must come
from the model that its header names.
"""

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import MASKWRIGHT, write_result
from maskwright.serving.guard import allow_connections
from maskwright.serving.schemas import SHA_HEADER

SENTENCE = (
    "the larvae are black and snails eat leaves in rivers of the north where old men live "
    "with their dogs near a small town"
)
QUERIES, SENTENCES = (2, 6), (8, 24)  # words, the fewest and the most
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_ALONE = ("--max_batch", "1", "--max_wait_ms", "0")
_SMALL_QUEUE = ("--max_queued", "16", "--max_texts", "16")


@dataclass
class Load:
    """The statuses that came back, and the seconds of the answers that were no refusals.

    Attributes:
        lost: requests whose connection ended before an answer.
        models: answers by the hash of the model that gave them.
    """

    statuses: Counter[int] = field(default_factory=Counter[int])
    lost: int = 0
    models: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])

    def describe(self, duration: float) -> dict[str, Any]:
        """Return the answered requests a second, and their latencies in milliseconds."""
        ordered = sorted(self.seconds)
        cuts = {name: ordered[int(share * (len(ordered) - 1))] for name, share in _SHARES.items()}
        return {
            "requests_per_second": round(self.statuses[200] / duration, 1),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "milliseconds": {name: round(1e3 * value, 2) for name, value in cuts.items()},
            "mean_milliseconds": round(1e3 * statistics.fmean(ordered), 2),
        }


class Way(NamedTuple):
    """The texts that are asked for, the flags of the server, and whether one connection asks."""

    words: tuple[int, int]
    flags: tuple[str, ...] = ()
    is_alone: bool = False


WAYS = {
    "queries, batching": Way(QUERIES),
    "queries, no batching": Way(QUERIES, _ALONE),
    "sentences, batching": Way(SENTENCES),
    "sentences, no batching": Way(SENTENCES, _ALONE),
    "sentences, alone": Way(SENTENCES, is_alone=True),
    "sentences, overload": Way(SENTENCES, _SMALL_QUEUE),
}


@contextmanager
def serving(model: str, *flags: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """Run a server on a free port; give its process and the port."""
    command = [*MASKWRIGHT, "serve", model, "--port", "0", "--quiet", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(30)


def make_request(draw: random.Random, words_between: tuple[int, int]) -> bytes:
    """Return a request for a text with a mask."""
    words = draw.choices(SENTENCE.split(), k=draw.randint(*words_between))
    words[draw.randrange(len(words))] = "[MASK]"
    body = json.dumps({"inputs": " ".join(words)}).encode()
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def keep_asking(
    port: int, words: tuple[int, int], until: float, seed: int, load: Load
) -> None:
    """Send one request after the other over one connection."""
    draw = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        began = time.perf_counter()
        try:
            writer.write(make_request(draw, words))
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        except (OSError, asyncio.IncompleteReadError):
            load.lost += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        status = int(head.split()[1])
        load.statuses[status] += 1
        load.models[head.partition(f"{SHA_HEADER}:")[2].split()[0]] += 1
        if status == 200:
            load.seconds.append(time.perf_counter() - began)
    writer.close()


def run_load(
    port: int, connections: int, seconds: float, words: tuple[int, int] = SENTENCES
) -> dict[str, Any]:
    """Keep all connections busy for these seconds."""
    load = Load()

    async def ask_all() -> None:
        until = time.perf_counter() + seconds
        asking = (keep_asking(port, words, until, n, load) for n in range(connections))
        await asyncio.gather(*asking)

    asyncio.run(ask_all())
    return load.describe(seconds)


async def replace_models(
    process: subprocess.Popen[str], link: Path, models: tuple[str, str], every: float, times: int
) -> None:
    """Point the link at the other model and send SIGUSR1, `times` times."""
    for number in range(times):
        await asyncio.sleep(every)
        point(link, models[(number + 1) % 2])
        process.send_signal(signal.SIGUSR1)


def point(link: Path, folder: str) -> None:
    """Make `link` lead to `folder`, in one step."""
    new = link.with_name("new")
    new.symlink_to(Path(folder).resolve())
    new.replace(link)


def measure_replaced(
    models: tuple[str, str], connections: int, seconds: float, times: int = 10
) -> dict[str, Any]:
    """Return how a server answers while its model is replaced `times` times."""
    load = Load()

    async def ask_and_replace(process: subprocess.Popen[str], port: int, link: Path) -> None:
        every, until = seconds / (times + 1), time.perf_counter() + seconds
        asking = [keep_asking(port, SENTENCES, until, n, load) for n in range(connections)]
        await asyncio.gather(*asking, replace_models(process, link, models, every, times))

    with tempfile.TemporaryDirectory() as folder:
        point(link := Path(folder) / "served", models[0])
        with serving(str(link), "--name", "served") as (process, port):
            run_load(port, 4, 2)  # warm
            asyncio.run(ask_and_replace(process, port, link))
    found = load.describe(seconds)
    conditions = {"connections": connections, "seconds": seconds, "replaced": times}
    answers = {"answers": load.statuses[200], "lost": load.lost, "models": dict(load.models)}
    return {**conditions, **found, **answers}


async def hold_idle(port: int, held: Counter[str], opening: asyncio.Semaphore) -> None:
    """Keep one connection open that sends nothing, again and again."""
    while True:
        async with opening:  # no more are opened at once than a loop accepts
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        held.update(("open", "made"))
        try:
            with suppress(ConnectionError):
                await reader.read()
        finally:
            held["open"] -= 1
            writer.close()
        await asyncio.sleep(1)


async def watch_health(port: int, held: Counter[str], seconds: float) -> dict[str, Any]:
    """Ask /health beside the idle connections."""
    load, most = Load(), 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        status = int(answer.split()[1]) if answer else 0  # 0: cut without an answer
        load.statuses[status] += 1
        load.seconds.append(time.perf_counter() - began)
        most = max(most, held["open"])
        await asyncio.sleep(0.5)
    return {**load.describe(seconds), "most_open": most, "made": held["made"]}


async def hold_and_watch(port: int, count: int, seconds: float) -> dict[str, Any]:
    """Ask /health beside `count` idle connections."""
    opening, held = asyncio.Semaphore(64), Counter[str]()
    idle = [asyncio.ensure_future(hold_idle(port, held, opening)) for _ in range(count)]
    try:
        return await watch_health(port, held, seconds)
    finally:
        for one in idle:
            one.cancel()
        await asyncio.gather(*idle, return_exceptions=True)


def measure_idle(model: str, count: int, seconds: float) -> dict[str, Any]:
    """Return how a server answers beside idle connections, and afterwards."""
    allow_connections(count)
    with serving(model) as (_, port):
        found = asyncio.run(hold_and_watch(port, count, seconds))
        afterwards = run_load(port, 1, 1)["statuses"]
    return {"connections": count, "seconds": seconds, **found, "afterwards": afterwards}


def measure_load(model: str, connections: int, seconds: float) -> dict[str, Any]:
    """Return how servers answer in every way, and the gain from batching."""
    found: dict[str, Any] = {}
    for name, way in WAYS.items():
        with serving(model, *way.flags) as (_, port):
            run_load(port, 4, 2)  # warm
            found[name] = run_load(port, 1 if way.is_alone else connections, seconds, way.words)
            found[name]["afterwards"] = run_load(port, 1, 1)["statuses"]
        print(name, json.dumps(found[name]), flush=True)
    ratios: dict[str, float] = {}
    for kind in ("queries", "sentences"):
        ways = (found[f"{kind}, {way}batching"] for way in ("", "no "))
        batching, none = (way["requests_per_second"] for way in ways)
        ratios[kind] = round(batching / none, 2)
    conditions = {"connections": connections, "seconds": seconds}
    return {**conditions, "ways": found, "batching_over_none": ratios}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--idle", type=int, help="test this many idle connections instead")
    parser.add_argument("--replace", metavar="OTHER", help="replace the model under load instead")


def main(arguments: argparse.Namespace) -> None:
    model, seconds = arguments.model, arguments.seconds
    if arguments.idle:
        write_result("serving-idle", measure_idle(model, arguments.idle, seconds))
    elif arguments.replace:
        models = model, arguments.replace
        found = measure_replaced(models, arguments.connections, seconds)
        write_result("serving-replaced", found)
    else:
        write_result("serving-load", measure_load(model, arguments.connections, seconds))
