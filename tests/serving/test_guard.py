"""The middleware around an application: hosts, refusals, failures."""

import asyncio
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from maskwright.serving.config import ServeConfig
from maskwright.serving.guard import AllowedHosts, Guard, is_loopback

LOCAL = ("localhost", "LOCALHOST:8000", "localhost.", "a.localhost:80", "127.0.0.1:8000")
LOCAL += ("127.5.5.5", "[::1]:8000", "[::1]")
FOREIGN = ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example")
FOREIGN += ("notlocalhost", "evil.example:80@localhost", ":8000", "[evil.example]:8000")


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0", "::", "192.0.2.7", "my.host"])
@pytest.mark.parametrize("host", [*LOCAL, *FOREIGN])
def test_names_of_this_machine_are_taken_and_others_are_not(listening: str, host: str) -> None:
    assert AllowedHosts(listening).allow(host) == (host in LOCAL)


def test_what_is_listened_on_and_what_is_named_is_taken() -> None:
    hosts = AllowedHosts("192.0.2.7", ["model.example", "OTHER.example"])
    assert all(map(hosts.allow, ["192.0.2.7:80", "Model.example:8000", "other.example"]))
    assert not hosts.allow("192.0.2.8")
    assert not hosts.allow("a.model.example")


def test_addresses_are_taken_where_any_is_listened_on() -> None:
    assert AllowedHosts("0.0.0.0").allow("10.1.2.3:8000")
    assert AllowedHosts("::").allow("[2001:db8::1]:8000")
    assert not AllowedHosts("127.0.0.1").allow("10.1.2.3:8000")


def test_only_loopback_is_for_this_machine_alone() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "192.0.2.7", "my.host"]))


def guard(app: Any, config: ServeConfig | None = None) -> Any:
    """A guard around an application of a test's own."""
    config = config or ServeConfig()
    policy, hosts = "default-src 'none'", AllowedHosts(config.host)
    return Guard(app, config, policy, None, lambda *figures: None, hosts)


@pytest.mark.parametrize("is_begun", [False, True])
def test_whatever_fails_is_answered_and_logged_once(
    is_begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        if is_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a bug")

    guarded: Any = guard(fail)
    with caplog.at_level(logging.INFO, "maskwright"):
        answer = TestClient(guarded, base_url="http://localhost").get("/x")
    assert answer.status_code == (200 if is_begun else 500)
    assert is_begun or "error" in answer.json()
    assert [record.name for record in caplog.records] == ["maskwright.serving", "maskwright.access"]
    assert caplog.records[0].message == "GET '/x' failed"


def test_too_many_requests_are_refused_in_the_same_form(caplog: pytest.LogCaptureFixture) -> None:
    begun, go = threading.Event(), threading.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await asyncio.to_thread(go.wait, 10)
        await PlainTextResponse("done")(scope, receive, send)

    config = ServeConfig(max_requests=1)
    guarded: Any = guard(wait, config)
    client = TestClient(guarded, base_url="http://localhost")
    with caplog.at_level(logging.INFO, "maskwright"), ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.get, "/first")
        assert begun.wait(10)
        refused = client.get("/second")
        go.set()
        assert first.result().text == "done"
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json() == {"error": "too many requests at once; try again later"}
    assert "content-security-policy" in refused.headers
    assert [json.loads(line)["status"] for line in caplog.messages] == [503, 200]
    assert client.get("/third").text == "done"  # there is room again
