"""A server in a process of its own: its real client, slow and endless requests, the end."""

import json
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from huggingface_hub import InferenceClient
from safetensors.torch import load_file, save_file

from maskwright.cli.main import main
from maskwright.evaluation.run import hash_model
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.inference.embed import Embedder
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.serving.guard import listen
from maskwright.serving.server import name_model
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.forked import Forked

TEXT = "The small [MASK] eats grass every day."


@contextmanager
def serving(
    workplace: Path,
    *flags: str,
    run: str = "small",
    program: tuple[str, str] = ("-m", "maskwright"),
    prepare: Callable[[], None] | None = None,
) -> Iterator[tuple[Forked, str]]:
    """A server and its address."""
    command = [sys.executable, *program, "serve", str(workplace / "runs" / run)]
    with Forked([*command, "--port", "0", "--device", "cpu", *flags], prepare=prepare) as process:
        line = process.stdout.readline()
        assert line.startswith(f"serving {run} (")
        assert ") on http://127.0.0.1:" in line
        yield process, line.split()[-1]
        process.kill()


@pytest.fixture(scope="module")
def url(workplace: Path) -> Iterator[str]:
    flags = ("--body_seconds", "0.5", "--header_seconds", "0.5", "--quiet")
    with serving(workplace, *flags) as (_, url):
        yield url


def post(url: str, body: object) -> bytes:
    """The whole answer, after which the connection ends."""
    content = json.dumps(body).encode()
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Length: {len(content)}\r\n"
    with connect(url) as client:
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
        return b"".join(iter(lambda: client.recv(65536), b""))


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_the_body_of_an_answer_does_not_wait_for_the_head_to_be_acknowledged() -> None:
    with (
        listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_client_of_hugging_face_works_unchanged(url: str) -> None:
    client = InferenceClient(base_url=url)
    found = client.fill_mask(TEXT, top_k=2)
    assert len(found) == 2
    assert found[0].sequence.startswith("The small ")
    assert found[0].score >= found[1].score
    [one] = client.fill_mask(TEXT, targets=["horse"])
    assert one.token_str == "horse"


def test_the_client_of_hugging_face_gets_vectors(url: str) -> None:
    texts = ["The fox eats berries.", "The cat eats fish."]
    found = InferenceClient().feature_extraction(texts, model=f"{url}/embed", normalize=True)
    assert found.shape == (2, 32)
    assert (found**2).sum(-1) == pytest.approx([1, 1], abs=1e-5)


def test_a_slow_request_is_refused_and_the_others_go_on(url: str) -> None:
    with connect(url) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert InferenceClient(base_url=url).fill_mask(TEXT)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("begun", [b"", b"POST / HTTP/1.1\r\nHost"])
def test_a_connection_on_which_no_request_begins_is_cut(url: str, begun: bytes) -> None:
    with connect(url) as idle:
        idle.sendall(begun)
        with suppress(ConnectionResetError):
            assert idle.recv(1000) == b""


# A model that says when a pass has begun, and is told how it ends: ``go``, or else by an error.
CONTROLLED = """
import sys
from maskwright.cli.main import main
from maskwright.inference.fill_mask import FillMask
attempt = FillMask.attempt
def wait(*arguments):
    print("begun", flush=True)
    return attempt(*arguments) if sys.stdin.readline() == "go\\n" else 1 / 0
FillMask.attempt = wait
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def controlled(workplace: Path) -> Iterator[tuple[Forked, str]]:
    with serving(workplace, program=("-c", CONTROLLED)) as server:
        yield server


def control(process: Forked, word: str) -> None:
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def begin(process: Forked, url: str) -> socket.socket:
    """A connection whose question is in the model."""
    client = connect(url)
    body = json.dumps({"inputs": TEXT}).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    assert process.stdout.readline() == "begun\n"
    return client


def read_log(process: Forked) -> list[str]:
    """The lines of one request, the last of which is its record."""
    lines = [process.stderr.readline()]
    while not lines[-1].startswith("{"):
        lines.append(process.stderr.readline())
    return [line.rstrip() for line in lines]


def test_what_a_client_that_left_asked_is_not_answered(
    controlled: tuple[Forked, str],
) -> None:
    process, url = controlled
    begin(process, url).close()
    [record] = read_log(process)  # before the pass ends
    assert json.loads(record)["status"] == 499
    control(process, "go")
    with begin(process, url) as client:
        control(process, "go")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    [record] = read_log(process)
    assert json.loads(record)["status"] == 200


def test_an_endless_request_is_refused_before_it_is_read(url: str) -> None:
    with connect(url) as large:
        large.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n")
        assert large.recv(1000).startswith(b"HTTP/1.1 413")
    with connect(url) as endless:
        endless.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        answer = b""
        try:
            for _ in range(200):
                endless.sendall(chunk)
        except OSError:
            pass  # it has hung up
        try:
            answer = endless.recv(1000)
        except OSError:
            return
        assert answer.startswith(b"HTTP/1.1 413")


def get(url: str, path: str) -> bytes:
    with connect(url) as client:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        return b"".join(iter(lambda: client.recv(65536), b""))


def limit_files() -> None:
    """As `ulimit -n 600` does."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))


def test_health_answers_beside_more_idle_connections_than_there_may_be(workplace: Path) -> None:
    with (
        serving(workplace, "--header_seconds", "300", prepare=limit_files) as (process, url),
        ExitStack() as idle,
    ):
        for number in range(700):
            idle.enter_context(connect(url))
            # Whoever was here before is accepted then, so that the queue never drops anybody.
            if number % 100 == 0:
                assert get(url, "/health").startswith(b"HTTP/1.1 200")
        assert get(url, "/health").startswith(b"HTTP/1.1 200")
        assert post(url, {"inputs": TEXT}).startswith(b"HTTP/1.1 200")
        # An answer is logged after it is sent, so the kill may prevent the last record.
        assert get(url, "/health").startswith(b"HTTP/1.1 200")
        process.kill()
        limited, *records = process.stderr.read().splitlines()
    assert "max_connections = 4,096" in limited
    assert len(records) >= 9
    assert {json.loads(record)["status"] for record in records} == {200}


HANGING = """
import sys, threading
from maskwright.cli.main import main
from maskwright.inference.fill_mask import FillMask
FillMask.attempt = lambda *arguments: threading.Event().wait()
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_model_that_hangs_is_told_and_does_not_keep_the_process(
    workplace: Path, number: signal.Signals
) -> None:
    limits = ("--answer_seconds", "0.3", "--drain_seconds", "1")
    with serving(workplace, *limits, program=("-c", HANGING)) as (process, url):
        assert post(url, {"inputs": TEXT}).startswith(b"HTTP/1.1 504")
        deadline = time.monotonic() + 60
        while not (answer := get(url, "/health")).startswith(b"HTTP/1.1 503"):
            assert time.monotonic() < deadline
        assert b'"not working"' in answer
        process.send_signal(number)
        expected = 130 if number == signal.SIGINT else -signal.SIGTERM
        assert process.wait(60) == expected  # it would wait for ever, were the thread joined
        assert "Traceback" not in process.stderr.read()


def test_a_bug_is_on_standard_error_once(controlled: tuple[Forked, str]) -> None:
    process, url = controlled
    for _ in range(2):  # what came after the record would come before the second
        with begin(process, url) as client:
            control(process, "fail")
            answer = client.recv(65536)
            while not answer.endswith(b"}"):  # head and body may come by themselves
                answer += client.recv(65536)
        lines = read_log(process)
        assert answer.startswith(b"HTTP/1.1 500")
        assert b"internal error" in answer.split(b"\r\n\r\n")[1]
        assert lines[0] == "POST '/' failed"
        assert lines[-2] == "ZeroDivisionError: division by zero"
        assert json.loads(lines[-1])["status"] == 500
        assert "".join(lines).count("ZeroDivisionError") == 1


def test_what_has_begun_is_ended_before_the_server_is(workplace: Path) -> None:
    flags = ("--drain_seconds", "60")
    with serving(workplace, *flags, program=("-c", CONTROLLED)) as (process, url):
        with begin(process, url) as client:
            process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):
                while True:  # until it listens no more
                    connect(url).close()
            control(process, "go")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert process.wait(60) in (0, -signal.SIGTERM)
        record, *rest = process.stderr.read().splitlines()
    assert json.loads(record)["status"] == 200
    assert "Traceback" not in "".join(rest)


def test_a_port_that_is_taken_is_one_line(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(workplace / "runs" / "small"), "--port", port]) == 2
    assert f"port = {port}: Address already in use" in capsys.readouterr().err
    for flags, parts in {
        ("--max_connections", "100"): ("max_requests = 1024", "max_connections = 100"),
        ("--host", "192.0.2.1"): ("host = 192.0.2.1", "Cannot assign requested address"),
        ("--max_queued", "16"): ("max_texts = 2048", "max_queued = 16"),
        ("--header_seconds", "0"): ("header_seconds = 0.0",),
    }.items():
        assert main(["serve", str(workplace / "runs" / "small"), *flags]) == 2
        error = capsys.readouterr().err
        assert all(part in error for part in parts)


@pytest.mark.parametrize("token", ["", "secret\n", "é"])
def test_a_token_that_no_header_can_hold_is_one_line(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("MASKWRIGHT_TOKEN", token)
    assert main(["serve", str(workplace / "runs" / "small")]) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert "MASKWRIGHT_TOKEN" in error


def test_a_model_is_called_by_its_run_or_its_folder() -> None:
    names = [name_model(Path(path)) for path in ("/runs/mine/model", "/runs/mine", "/model")]
    assert names == ["mine", "mine", "model"]


class Answered(NamedTuple):
    """A response, with the version of the model that it is from."""

    status: int
    version: str
    content: bytes


def copy_model(source: Path, target: Path, seed: int) -> str:
    """Write the model with other weights, and return its hash."""
    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    draw = torch.Generator().manual_seed(seed)
    changed = {
        name: one + 0.1 * torch.randn(one.shape, generator=draw) if one.is_floating_point() else one
        for name, one in weights.items()
    }
    save_file(changed, target / "model.safetensors", metadata={"format": "pt"})
    return hash_model(target)


def point(link: Path, target: Path) -> None:
    """As ``ln -sfn`` and ``mv -T`` do."""
    new = link.with_name("new")
    new.symlink_to(target, target_is_directory=True)
    new.replace(link)


def ask_until(url: str, path: str, body: object, end: threading.Event) -> list[Answered]:
    """Ask again and again, two of three times on the connection of the request before."""
    found: list[Answered] = []
    client = HTTPConnection(url.removeprefix("http://"), timeout=60)
    for number in range(100_000):
        if end.is_set():
            break
        client.request("POST", path, json.dumps(body))
        with client.getresponse() as answer:
            version = answer.headers["x-model-sha256"]
            found.append(Answered(answer.status, version, answer.read()))
        if number % 3 == 0:
            client.close()
    client.close()
    return found


def test_a_model_is_replaced_without_a_lost_request(workplace: Path, tmp_path: Path) -> None:
    first, link = workplace / "runs" / "small" / "model", tmp_path / "runs" / "served"
    link.parent.mkdir()
    folders = {hash_model(first): first}
    for seed in range(3):
        folders[copy_model(first, tmp_path / str(seed), seed)] = tmp_path / str(seed)
    wrong = tmp_path / "labels"  # a model of another task, and a folder without any
    model = build_classifier(make_loaded().model, FinetuneConfig(), "text", 2, seed=0)
    save_classifier(wrong, model, TOKENIZER, ("a", "b"), "single_label_classification")
    point(link, first)
    bodies = {"/": {"inputs": TEXT}, "/embed": {"inputs": ["The fox eats berries."] * 70}}
    end = threading.Event()
    with (
        serving(tmp_path, "--quiet", "--name", "served", run="served") as (process, url),
        ThreadPoolExecutor(4) as pool,
    ):
        asking = [pool.submit(ask_until, url, path, body, end) for path, body in bodies.items()]
        asking += [pool.submit(ask_until, url, path, body, end) for path, body in bodies.items()]
        try:
            for sha256, folder in [*folders.items()][1:]:
                point(link, folder)
                process.send_signal(signal.SIGUSR1)
                assert f"{sha256[:12]}) from now on" in process.stderr.readline()
                assert f'"sha256":"{sha256}"'.encode() in get(url, "/health")
            last = get(url, "/health")
            for bad, part in {wrong: "task = text-classification", tmp_path: "config.json"}.items():
                point(link, bad)
                process.send_signal(signal.SIGUSR1)
                assert part in process.stderr.readline()
                assert get(url, "/health").split(b"\r\n\r\n")[1] == last.split(b"\r\n\r\n")[1]
        finally:
            end.set()
        answers = [one.result() for one in asking]
        assert get(url, "/metrics").count(b"maskwright_model_info{") == 1
        process.kill()
    # No request is lost, and each is answered by the model that its header names.
    assert {one.status for each in answers for one in each} == {200}
    versions = [list(dict.fromkeys(one.version for one in each)) for each in answers]
    assert all(each == [one for one in folders if one in each] for each in versions)
    assert all(len(each) > 1 for each in versions)
    for version, content in {(one.version, one.content) for each in answers[1::2] for one in each}:
        expected = Embedder(folders[version], "cpu")(["The fox eats berries."])[0]
        assert json.loads(content)[69] == pytest.approx(expected.tolist(), abs=1e-5)
