"""What every request passes before anything looks at it: room, token, size, time, headers, log.

An ASGI application around another one. The body is received here, whole and within its time, so
that a slow or endless one holds nothing but its own connection.
"""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from maskwright.serving.config import ServeConfig
from maskwright.serving.connections import STATE_KEY, Connection
from maskwright.serving.hosts import AllowedHosts
from maskwright.serving.openai import describe_error
from maskwright.serving.reference import PATHS as REFERENCE_PATHS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Observe = Callable[[str, int, float], None]

LOG = logging.getLogger("maskwright.access")
FAILURES = logging.getLogger("maskwright.serving")
INTERNAL = "something failed inside the server, whose log has more"
# These need no token: whoever watches the server, and the pages that ask for it. A browser sends
# none with an address that is typed or a file of a page.
_OPEN = {
    (method, path) for method in ("GET", "HEAD") for path in ("/", "/health", *REFERENCE_PATHS)
}
_POLICY = b"content-security-policy"
RETRY_SECONDS = 1  # after which an overloaded server may be asked again
_SHOWN_HOST = 100  # characters
_DISCARDED_SECONDS, _DISCARDED_BYTES = 1.0, 16 << 20
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class _RefusedError(Exception):
    """A request that is not passed on: its status and the line that says why.

    Attributes:
        has_rest: whether more of its body is on the way.
    """

    def __init__(self, status: int, reason: str, *, has_rest: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.has_rest = status, reason, has_rest


class Guard:
    """The application with everything around it.

    Args:
        app: gets requests that are allowed, whole.
        policy: the Content-Security-Policy of every answer that has none of its own.
        token: what ``Authorization: Bearer`` has to hold; None lets in everybody who calls the
            server by one of `hosts`.
        observe: told path, status and seconds of every request.
    """

    def __init__(
        self,
        app: App,
        config: ServeConfig,
        policy: str,
        token: str | None,
        observe: Observe,
        hosts: AllowedHosts,
    ) -> None:
        self.app, self.config, self.observe, self.hosts = app, config, observe, hosts
        self._num_open = 0  # requests that are not answered yet, each on a connection of its own
        self.token = token.encode() if token is not None else None
        headers = {**_HEADERS, "content-security-policy": policy}
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, size, has_begun = time.perf_counter(), 500, 0, False
        connection: Connection | None = scope.get("state", {}).get(STATE_KEY)

        async def send_with_headers(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                headers = list(message.get("headers", []))
                has_policy = any(name == _POLICY for name, _ in headers)
                added = (one for one in self.headers if not (has_policy and one[0] == _POLICY))
                message["headers"] = [*headers, *added]
            await send(message)

        self._num_open += 1
        if connection is not None:
            connection.begin_request()
        try:
            self._check_room(scope)
            self._check_host(scope)
            self._check_token(scope)
            body = await self._receive_body(scope, receive)
            size = len(body)
            await self._run(scope, body, receive, send_with_headers)
        except _RefusedError as refusal:
            if refusal.has_rest:
                await _discard(receive)
            await _refuse(scope, refusal, send_with_headers)
        except Exception:
            # Starlette raises what it has answered, too. Here it ends: uvicorn would log it again.
            FAILURES.exception("%s %r failed", scope["method"], scope["path"])
            if not has_begun:
                await _refuse(scope, _RefusedError(500, INTERNAL), send_with_headers)
        except asyncio.CancelledError:  # by the server, which ends
            if connection is not None and connection.is_paused:
                connection.cut()  # uvicorn would wait for its client to read
            elif not has_begun:
                await _refuse(
                    scope, _RefusedError(503, "the server is being stopped"), send_with_headers
                )
        finally:
            self._num_open -= 1
            if connection is not None:
                connection.end_request()
            seconds = time.perf_counter() - began
            self.observe(scope["path"], status, seconds)
            self._log(scope, status, size, seconds)

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """The application, ended when the client goes away: nobody wants its answer."""
        asked = _call_json(scope) if body else scope
        answering = asyncio.ensure_future(self.app(asked, _replay(body), send))
        leaving = asyncio.ensure_future(_wait_for_leaving(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise _RefusedError(499, "the client went away")
            await answering
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    def _check_room(self, scope: Scope) -> None:
        # Being busy is no reason to be restarted, which is what many do when /health fails.
        if self._num_open > self.config.max_requests and scope["path"] != "/health":
            raise _RefusedError(503, "too many requests at once; try again later")

    def _check_host(self, scope: Scope) -> None:
        """Refuse a name that another site may have made to stand for this address.

        Only without a token, which such a site does not have. A request without ``Host`` is not
        of a browser.
        """
        given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self.token is None and given and not self.hosts.allow(given):
            raise _RefusedError(
                421,
                f"Host: {given[:_SHOWN_HOST]!r} is not a name of this server. Call it as localhost "
                "or by its address, or start it with --allowed-host NAME or a token.",
            )

    def _check_token(self, scope: Scope) -> None:
        if self.token is None or (scope["method"], scope["path"]) in _OPEN:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        # Compared in constant time: how long it takes says nothing about the token.
        if not hmac.compare_digest(given, b"Bearer " + self.token):
            raise _RefusedError(401, "Authorization: Bearer TOKEN is missing or wrong")

    async def _receive_body(self, scope: Scope, receive: Receive) -> bytes:
        limit = self.config.max_body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            reason = f"the request has {int(declared)} bytes, at most {limit} are taken"
            raise _RefusedError(413, reason, has_rest=True)
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.config.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(499, "the client went away")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > limit:
                        reason = f"the request has more than {limit} bytes"
                        raise _RefusedError(413, reason, has_rest=more)
        except TimeoutError:
            reason = f"the request did not arrive within {self.config.body_seconds:g} seconds"
            raise _RefusedError(408, reason) from None
        return b"".join(parts)

    def _log(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        """One JSON line, without what was asked: texts are nobody else's business."""
        client = scope.get("client")
        record = {
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "bytes": size,
            "milliseconds": round(1e3 * seconds, 1),
            "client": client[0] if client else None,
        }
        LOG.info(json.dumps(record))


def _call_json(scope: Scope) -> Scope:
    """The request as one of JSON, as Hugging Face's API has it: curl calls every body a form.

    Were the right name required, a browser would ask before it sends a question of another site's
    page, and be refused. Now it sends the question: such a page can make a server without a token
    work, within its limits. It changes nothing by that, and cannot read the answer: there are no
    CORS headers, and `AllowedHosts` keeps it from passing itself off as a page of this server.
    """
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}


def _replay(body: bytes) -> Receive:
    """A `receive` that gives the body that was received; then nothing, until it is cancelled."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _wait_for_leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _discard(receive: Receive) -> None:
    """Takes some of what is still sent: a line that is cut meanwhile takes the answer with it."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARDED_SECONDS):
            while size < _DISCARDED_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))


async def _refuse(scope: Scope, refusal: _RefusedError, send: Send) -> None:
    answer = describe_error(scope["path"], refusal.status, refusal.reason)
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status == 503:
        headers.append((b"retry-after", b"%d" % RETRY_SECONDS))
    if refusal.status in (408, 413):  # what is still on its way is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
