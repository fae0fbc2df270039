"""ASGI middleware around the application: host, token, size and time limits, headers, access log.

The body of a request is received here, whole and within its time, so that a slow or endless one
blocks only its own connection.
"""

import asyncio
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from maskwright.serving.config import ServeConfig
from maskwright.serving.connections import STATE_KEY, Connection
from maskwright.serving.errors import INTERNAL_ERROR, RETRY_SECONDS, describe_error
from maskwright.serving.pages import DOCS_PATHS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Observe = Callable[[str, int, float], None]

ACCESS_LOG = logging.getLogger("maskwright.access")
ERROR_LOG = logging.getLogger("maskwright.serving")
# No token is needed for health checks, nor for the pages that ask for it: a browser sends none with
# an address that is typed or with the files of a page.
_OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/", "/health", *DOCS_PATHS)}
_POLICY = b"content-security-policy"
_MAX_SHOWN_HOST = 100  # characters
_MAX_DISCARD_SECONDS, _MAX_DISCARD_BYTES = 1.0, 16 << 20
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class AllowedHosts:
    """The values that the ``Host`` header may have, against DNS rebinding.

    A page of another site cannot read this server's responses unless it resolves its own name to
    this address; then the browser sends that name in ``Host``, which no page can change. Allowed
    are localhost, names under it and loopback addresses; the address that the server listens on,
    or any address if it listens on all, because an address cannot be rebound; and `names`.

    Starlette's `TrustedHostMiddleware` knows neither addresses nor IPv6, and answers with 400 as
    plain text.

    Args:
        listening: the address or name that the server listens on.
        names: more names, without ports.
    """

    def __init__(self, listening: str, names: Sequence[str] = ()) -> None:
        self._names = {_normalize_name(name) for name in (listening, *names)}
        self._allows_addresses = listening in ("", "0.0.0.0", "::")

    def allow(self, host: str) -> bool:
        """Return True if a request may have this host, with or without a port."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        name = _normalize_name(name)
        if name in self._names or name == "localhost" or name.endswith(".localhost"):
            return True
        address = _parse_address(name)
        return address is not None and (self._allows_addresses or address.is_loopback)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on `host`."""
    address = _parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _normalize_name(name: str) -> str:
    return name.lower().removesuffix(".")


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class _RefusedError(Exception):
    """A request that does not reach the application: the status and the reason, on one line.

    Attributes:
        has_rest: True if more of the body is on its way.
    """

    def __init__(self, status: int, reason: str, *, has_rest: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.has_rest = status, reason, has_rest


class Guard:
    """The middleware.

    Args:
        app: receives the allowed requests, whole.
        policy: the Content-Security-Policy of every response that has none of its own.
        token: required as ``Authorization: Bearer``; None: anybody who uses one of `hosts`.
        observe: called with path, status and seconds of every request.
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
        self._num_open = 0  # requests without a complete response
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
            self._check_load(scope)
            self._check_host(scope)
            self._check_token(scope)
            body = await self._receive_body(scope, receive)
            size = len(body)
            await self._run(scope, body, receive, send_with_headers)
        except _RefusedError as refusal:
            if refusal.has_rest:
                await _discard_body(receive)
            await _refuse(scope, refusal, send_with_headers)
        except Exception:
            # Starlette raises again what it has answered. It ends here: uvicorn would log it, too.
            ERROR_LOG.exception("%s %r failed", scope["method"], scope["path"])
            if not has_begun:
                await _refuse(scope, _RefusedError(500, INTERNAL_ERROR), send_with_headers)
        except asyncio.CancelledError:  # the server shuts down
            if connection is not None and connection.is_paused:
                connection.abort()  # uvicorn would wait until its client reads
            elif not has_begun:
                reason = "the server is shutting down"
                await _refuse(scope, _RefusedError(503, reason), send_with_headers)
        finally:
            self._num_open -= 1
            if connection is not None:
                connection.end_request()
            seconds = time.perf_counter() - began
            self.observe(scope["path"], status, seconds)
            _log_request(scope, status, size, seconds)

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application, and cancel it if the client disconnects."""
        inner = _label_json(scope) if body else scope
        response = asyncio.ensure_future(self.app(inner, _replay(body), send))
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({response, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not response.done():
                raise _RefusedError(499, "the client disconnected")
            await response
        finally:
            for task in (response, disconnect):
                task.cancel()
            await asyncio.gather(response, disconnect, return_exceptions=True)

    def _check_load(self, scope: Scope) -> None:
        # /health is exempt: an orchestrator would restart a server that is only busy.
        if self._num_open > self.config.max_requests and scope["path"] != "/health":
            raise _RefusedError(503, "too many requests at once; try again later")

    def _check_host(self, scope: Scope) -> None:
        """Refuse an unknown host, unless there is a token, which a page of another site lacks.

        Browsers always send ``Host``: a request without it is allowed.
        """
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self.token is None and host and not self.hosts.allow(host):
            raise _RefusedError(
                421,
                f"Host: {host[:_MAX_SHOWN_HOST]!r} is not a name of this server. Use localhost or "
                "its address, or start it with --allowed-host NAME or with a token.",
            )

    def _check_token(self, scope: Scope) -> None:
        if self.token is None or (scope["method"], scope["path"]) in _OPEN:
            return
        authorization = dict(scope["headers"]).get(b"authorization", b"")
        # In constant time, so that the duration says nothing about the token.
        if not hmac.compare_digest(authorization, b"Bearer " + self.token):
            raise _RefusedError(401, "Authorization: Bearer TOKEN is missing or wrong")

    async def _receive_body(self, scope: Scope, receive: Receive) -> bytes:
        limit = self.config.max_body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            reason = f"the request has {int(declared)} bytes; at most {limit} are allowed"
            raise _RefusedError(413, reason, has_rest=True)
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.config.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(499, "the client disconnected")
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


def _log_request(scope: Scope, status: int, size: int, seconds: float) -> None:
    """Log one JSON line, without the texts of the request: they may be private."""
    client = scope.get("client")
    record = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "bytes": size,
        "milliseconds": round(1e3 * seconds, 1),
        "client": client[0] if client else None,
    }
    ACCESS_LOG.info(json.dumps(record))


def _label_json(scope: Scope) -> Scope:
    """Return the request with the content type of JSON: curl labels every body as a form.

    If the right label were required, browsers would ask (CORS preflight) before they send a request
    of another site's page. Without it such a page can make a server without a token work, within
    its limits, but cannot read the response: there are no CORS headers, and `AllowedHosts` refuses
    rebound names.
    """
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}


def _replay(body: bytes) -> Receive:
    """Return a `receive` that returns the body once, and then blocks until it is cancelled."""
    is_received = False

    async def receive() -> Message:
        nonlocal is_received
        if is_received:
            await asyncio.Event().wait()
        is_received = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _discard_body(receive: Receive) -> None:
    """Read some of the rest of a body: closing before it has arrived would lose the response."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_MAX_DISCARD_SECONDS):
            while size < _MAX_DISCARD_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))


async def _refuse(scope: Scope, refusal: _RefusedError, send: Send) -> None:
    error = describe_error(scope["path"], refusal.status, refusal.reason)
    body = json.dumps(error).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status == 503:
        headers.append((b"retry-after", b"%d" % RETRY_SECONDS))
    if refusal.status in (408, 413):  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
