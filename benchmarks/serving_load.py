"""A server under load: throughput and latencies with batching and without, and too much of it.

    python -m benchmarks.serving_load runs/NAME [--seconds 60] [--connections 64]

The server runs in a process of its own; this one keeps 64 connections busy over loopback, on the
same cores, with sentences of 8 to 24 words or with queries of 2 to 6. `alone`: one connection, for
what an answer takes when nobody else asks. `overload`: a queue of 16 texts, so that most requests
are refused with 503, and afterwards one that is answered.

    python -m benchmarks.serving_load runs/NAME --idle 5000 [--seconds 600]

keeps so many connections open on which nothing is asked, made again when they are cut, and asks
/health on a connection of its own every half second.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import write_result
from maskwright.serving.connections import allow_connections

SENTENCE = (
    "the larvae are black and snails eat leaves in rivers of the north where old men live "
    "with their dogs near a small town"
)
QUERIES, SENTENCES = (2, 6), (8, 24)  # words, the fewest and the most


@dataclass
class Load:
    """What came back, and how long the answers took that were no refusals."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    seconds: list[float] = field(default_factory=list[float])

    def describe(self, duration: float) -> dict[str, Any]:
        """Requests a second that were answered, and their latencies in milliseconds."""
        ordered = sorted(self.seconds)
        cuts = {name: ordered[int(share * (len(ordered) - 1))] for name, share in _SHARES.items()}
        return {
            "requests_per_second": round(self.statuses[200] / duration, 1),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "milliseconds": {name: round(1e3 * value, 2) for name, value in cuts.items()},
            "mean_milliseconds": round(1e3 * statistics.fmean(ordered), 2),
        }


_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Way:
    """What is asked for, of a server with which flags, over how many connections."""

    words: tuple[int, int]
    connections: int
    flags: tuple[str, ...] = ()


def list_ways(connections: int) -> dict[str, Way]:
    """By name."""
    alone = ("--max_batch", "1", "--max_wait_ms", "0")
    small_queue = ("--max_queued", "16", "--max_texts", "16")
    return {
        "queries, batching": Way(QUERIES, connections),
        "queries, no batching": Way(QUERIES, connections, alone),
        "sentences, batching": Way(SENTENCES, connections),
        "sentences, no batching": Way(SENTENCES, connections, alone),
        "sentences, alone": Way(SENTENCES, 1),
        "sentences, overload": Way(SENTENCES, connections, small_queue),
    }


def make_request(draw: random.Random, path: str, words_between: tuple[int, int]) -> bytes:
    """A text with a mask."""
    words = draw.choices(SENTENCE.split(), k=draw.randint(*words_between))
    words[draw.randrange(len(words))] = "[MASK]"
    body = json.dumps({"inputs": " ".join(words)}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def keep_asking(
    port: int, words: tuple[int, int], until: float, seed: int, load: Load
) -> None:
    """One connection, one request after the other."""
    draw = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(make_request(draw, "/", words))
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length:")[2].split()[0])
        await reader.readexactly(size)
        status = int(head.split()[1])
        load.statuses[status] += 1
        if status == 200:
            load.seconds.append(time.perf_counter() - began)
    writer.close()


def run_load(
    port: int, connections: int, seconds: float, words: tuple[int, int] = SENTENCES
) -> dict[str, Any]:
    """All connections for so long."""
    load = Load()

    async def ask_all() -> None:
        until = time.perf_counter() + seconds
        asking = (keep_asking(port, words, until, n, load) for n in range(connections))
        await asyncio.gather(*asking)

    asyncio.run(ask_all())
    return load.describe(seconds)


async def hold_idle(port: int, held: dict[str, int], made: asyncio.Semaphore) -> None:
    """One connection on which nothing is asked, again and again."""
    while True:
        async with made:  # so that no more are made at once than a loop accepts
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        held["open"] += 1
        held["made"] += 1
        try:
            with suppress(ConnectionError):
                await reader.read()
        finally:
            held["open"] -= 1
            writer.close()
        await asyncio.sleep(1)


async def watch_health(port: int, held: dict[str, int], seconds: float) -> dict[str, Any]:
    """What /health says beside the idle connections."""
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


def run_idle(model: str, count: int, seconds: float) -> dict[str, Any]:
    """A server beside idle connections."""
    process, port = serve(model)
    held = {"open": 0, "made": 0}

    async def hold_and_watch() -> dict[str, Any]:
        made = asyncio.Semaphore(64)
        idle = [asyncio.ensure_future(hold_idle(port, held, made)) for _ in range(count)]
        try:
            return await watch_health(port, held, seconds)
        finally:
            for one in idle:
                one.cancel()
            await asyncio.gather(*idle, return_exceptions=True)

    try:
        found = asyncio.run(hold_and_watch())
        found["afterwards"] = run_load(port, 1, 1)["statuses"]
        return found
    finally:
        process.terminate()
        process.wait(30)


def serve(model: str, *flags: str) -> tuple[subprocess.Popen[str], int]:
    """A server on a free port."""
    command = [sys.executable, "-m", "maskwright", "serve", model, "--port", "0", "--quiet"]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline().rpartition(":")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--idle", type=int, help="connections on which nothing is asked")
    arguments = parser.parse_args()
    if arguments.idle:
        allow_connections(arguments.idle)
        idle = run_idle(arguments.model, arguments.idle, arguments.seconds)
        conditions = {"connections": arguments.idle, "seconds": arguments.seconds}
        write_result("serving-idle", {**conditions, **idle})
        return
    found: dict[str, Any] = {}
    for name, way in list_ways(arguments.connections).items():
        process, port = serve(arguments.model, *way.flags)
        try:
            run_load(port, 4, 2)  # warm
            found[name] = run_load(port, way.connections, arguments.seconds, way.words)
            found[name]["afterwards"] = run_load(port, 1, 1)["statuses"]
        finally:
            process.terminate()
            process.wait(30)
        print(name, json.dumps(found[name]), flush=True)
    ratios = {
        kind: round(
            found[f"{kind}, batching"]["requests_per_second"]
            / found[f"{kind}, no batching"]["requests_per_second"],
            2,
        )
        for kind in ("queries", "sentences")
    }
    conditions = {"connections": arguments.connections, "seconds": arguments.seconds}
    write_result("serving-load", {**conditions, "ways": found, "batching_over_none": ratios})


if __name__ == "__main__":
    main()
