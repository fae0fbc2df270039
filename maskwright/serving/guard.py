"""Limits of connections and requests, in front of the application.

uvicorn, hypercorn and granian have no such limits: with 1,024 open files, /health of uvicorn and
granian no longer answered beside 1,200 idle connections, that of hypercorn after 4 seconds; none
closes a connection whose client reads nothing (research/experiments.md).
"""

import asyncio
import hmac
import ipaddress
import json
import logging
import os
import re
import resource
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from maskwright.errors import InputError
from maskwright.serving.config import ServeConfig
from maskwright.serving.pages import DOCS_PATHS
from maskwright.serving.schemas import INTERNAL_ERROR, RETRY_SECONDS, SHA_HEADER, describe_error

ACCESS_LOG = logging.getLogger("maskwright.access")
ERROR_LOG = logging.getLogger("maskwright.serving")
BACKLOG = 128  # asyncio accepts at most this many connections in one round of its loop
# asyncio needs two rounds of its loop from accepting a connection to `connection_made`, and one
# more to close the connection that it replaces: up to three times `BACKLOG` files on top of the
# counted connections. The other 64 are for weights, logs and the loop itself.
OTHER_FILES = 3 * BACKLOG + 64
_MIN_CONNECTIONS = 16
_CONNECTION = "maskwright.connection"  # in ``scope["state"]`` of each request
# No token is needed for health checks, nor for the pages that ask for it: a browser sends none with
# an address that is typed or with the files of a page.
_OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/", "/health", *DOCS_PATHS)}
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]*)\]|(?P<name>[\w.-]*))(?::[0-9]*)?")
_MAX_SHOWN_HOST = 100  # characters
_MAX_DISCARD_BYTES = 16 << 20
_MAX_OPEN_BYTES = 1 << 30  # of the bodies of all requests that are not answered yet
_CLOSE = {"Connection": "close"}  # the rest of the body is not read
_REFUSAL_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: _CLOSE,
    413: _CLOSE,
    503: {"Retry-After": str(RETRY_SECONDS)},
}
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Connection(H11Protocol):
    """uvicorn's connection, closed when its client is too slow, or another one needs its place.

    One timer serves two timeouts: that of reading, while part of a response is unread, and that of
    sending a header, while there is no request. One connection more than `max_open` replaces the
    first of `idle`, all that have no request, or is refused if there is none.
    """

    def __init__(
        self,
        limits: ServeConfig,
        max_open: int,
        idle: dict["Connection", None],
        app_state: dict[str, Any],
        **settings: Any,
    ) -> None:
        super().__init__(app_state={**app_state, _CONNECTION: self}, **settings)
        self._limits, self._max_open, self._idle = limits, max_open, idle
        self._timer: asyncio.TimerHandle | None = None
        self._num_unread = 0  # bytes, when the timer was set

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._max_open:
            next(iter(self._idle), self).abort()
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.pop(self, None)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self in self._idle and self._has_request:
            self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update()

    def abort(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self._idle.pop(self, None)
        self.transport.abort()

    @property
    def _has_request(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)

    def _update(self) -> None:
        """Note whether the connection is idle, and set the timer if its client has to do a part."""
        self._stop_timer()
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        if self._has_request:
            self._idle.pop(self, None)
        else:
            self._idle.setdefault(self)
        if self in self._idle or self.flow.write_paused:
            self._num_unread = self.transport.get_write_buffer_size()
            limits = self._limits
            seconds = limits.read_seconds if self._num_unread else limits.header_seconds
            self._timer = self.loop.call_later(seconds, self._check_progress)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_progress(self) -> None:
        """Close the connection, unless the client has read something since the timer was set."""
        if self.transport.get_write_buffer_size() != self._num_unread:
            self._update()
        else:
            self.abort()


def allow_connections(requested: int) -> int:
    """Raise this process's limit of open files for `requested` connections; return their number,
    which is smaller if the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = requested + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return requested
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(requested, max(soft - OTHER_FILES, _MIN_CONNECTIONS))


def listen(host: str, port: int) -> socket.socket:
    """Return the listening socket; raise InputError if the port is taken or the host not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        number = error.errno or 0  # negative if the name does not resolve
        reason = os.strerror(number) if number > 0 else error.strerror
        raise InputError(
            f"host = {host}, port = {port}: {reason}. Choose another --host or --port."
        ) from None
    # A response is sent in two parts, head and body. Without this option, which connections
    # inherit, the second waits 40 ms until the client acknowledges the first. asyncio sets it only
    # on sockets that were created with an explicit protocol number.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class AllowedHosts:
    """The values that the ``Host`` header may have, against DNS rebinding: a page of another site
    whose name resolves to this address.

    Allowed are localhost, names under it and loopback addresses; the address that the server
    listens on, or any address if it listens on all, because none can be rebound; and `names`.
    Starlette's `TrustedHostMiddleware` knows no addresses.
    """

    def __init__(self, listening: str, names: Sequence[str] = ()) -> None:
        self._names = {name.lower().removesuffix(".") for name in (listening, *names)}
        self._allows_addresses = listening in ("", "0.0.0.0", "::")

    def allow(self, host: str) -> bool:
        """Return True if a request may have this host, with or without a port."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name, bracketed = (found["name"] or "").lower().removesuffix("."), found["address"]
        if bracketed is not None:  # only an address of IPv6 is written in brackets (RFC 3986)
            name = bracketed.lower()
            if not isinstance(_parse_address(name), ipaddress.IPv6Address):
                return False
        if name in self._names or is_loopback(name) or name.endswith(".localhost"):
            return True
        return self._allows_addresses and _parse_address(name) is not None


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on `host`."""
    address = _parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Guard:
    """The middleware: host, token, size and time limits, headers, and the access log.

    The body of a request is received here, whole and within its time, so that a slow or endless one
    blocks only its own connection.

    Args:
        policy: the Content-Security-Policy of every response that has none of its own.
        observe: called with path, status and seconds of every request.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ServeConfig,
        policy: str,
        token: str | None,
        observe: Callable[[str, int, float], None],
        hosts: AllowedHosts,
    ) -> None:
        self.app, self.config, self.observe, self.hosts = app, config, observe, hosts
        self._num_open = 0  # requests without a complete response
        self._num_bytes = 0  # of their bodies
        self.token = token
        self.headers = {**_HEADERS, "content-security-policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, has_begun, model = time.perf_counter(), 500, False, None
        body = bytearray()

        async def send_with_headers(message: Message) -> None:
            nonlocal status, has_begun, model
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                headers = MutableHeaders(scope=message)
                model = headers.get(SHA_HEADER)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        async def refuse(code: int, reason: str) -> None:
            content = json.dumps(describe_error(scope["path"], code, reason))
            response = Response(content, code, _REFUSAL_HEADERS.get(code), "application/json")
            await response(scope, receive, send_with_headers)

        self._num_open += 1
        try:
            self._check(scope["method"], scope["path"], Headers(scope=scope))
            await self._receive_body(scope, receive, body)
            await self._run(scope, bytes(body), receive, send_with_headers)
        except HTTPException as refusal:
            await refuse(refusal.status_code, refusal.detail)
        except Exception:
            # Starlette raises again what it has answered. It ends here: uvicorn would log it, too.
            ERROR_LOG.exception("%s %r failed", scope["method"], scope["path"])
            if not has_begun:
                await refuse(500, INTERNAL_ERROR)
        except asyncio.CancelledError:  # the server shuts down
            connection: Connection | None = scope.get("state", {}).get(_CONNECTION)
            if connection is not None and connection.flow.write_paused:
                connection.abort()  # uvicorn would wait until its client reads
            elif not has_begun:
                await refuse(503, "the server is shutting down")
        finally:
            self._num_open -= 1
            self._num_bytes -= len(body)
            seconds = time.perf_counter() - began
            self.observe(scope["path"], status, seconds)
            _log_request(scope, status, len(body), seconds, model)

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application, and cancel it if the client disconnects."""
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        if body:
            # curl labels every body as a form. If the right label were required, browsers would ask
            # (CORS preflight) before they send a request of another site's page. Without it such a
            # page can make a server without a token work, within its limits, but cannot read the
            # response: there are no CORS headers, and `AllowedHosts` refuses rebound names.
            MutableHeaders(scope=scope)["content-type"] = "application/json"

        async def receive_once() -> Message:
            return messages.pop() if messages else await asyncio.Future()

        async def wait_for_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        response = asyncio.ensure_future(self.app(scope, receive_once, send))
        disconnect = asyncio.ensure_future(wait_for_disconnect())
        try:
            await asyncio.wait({response, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not response.done():
                raise HTTPException(499, "the client disconnected")
            await response
        finally:
            response.cancel()
            disconnect.cancel()
            await asyncio.gather(response, disconnect, return_exceptions=True)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse a request for its head alone; raise HTTPException.

        Browsers always send ``Host``, so a request without it is allowed. With a token any host is:
        a page of another site does not have the token.
        """
        # /health is exempt: an orchestrator would restart a server that is only busy.
        if self._num_open > self.config.max_requests and path != "/health":
            raise HTTPException(503, "too many requests at once; try again later")
        host = headers.get("host")
        if self.token is None and host and not self.hosts.allow(host):
            raise HTTPException(
                421,
                f"Host: {host[:_MAX_SHOWN_HOST]!r} is not a name of this server. Use localhost or "
                "its address, or start it with --allowed-host NAME or with a token.",
            )
        if self.token is not None and (method, path) not in _OPEN:
            given = headers.get("authorization", "").encode("latin-1")
            # In constant time, so that the duration says nothing about the token.
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                raise HTTPException(401, "Authorization: Bearer TOKEN is missing or wrong")

    async def _receive_body(self, scope: Scope, receive: Receive, body: bytearray) -> None:
        """Append the body; raise HTTPException if it is too large or takes too long."""
        limit = self.config.max_body_bytes
        declared = Headers(scope=scope).get("content-length", "")
        size, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.body_seconds):
                # Some of what is too much is read: closing before it arrives loses the response.
                while more and size <= limit + _MAX_DISCARD_BYTES:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPException(499, "the client disconnected")
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    if size <= limit:
                        if self._num_bytes + len(part) > _MAX_OPEN_BYTES:
                            raise HTTPException(503, "too much text at once; try again later")
                        self._num_bytes += len(part)
                        body += part
        if size > limit or (declared.isdigit() and int(declared) > limit):
            raise HTTPException(413, f"the request has more than {limit} bytes")
        if more:
            seconds = f"{self.config.body_seconds:g} seconds"
            raise HTTPException(408, f"the request did not arrive within {seconds}")


def _log_request(scope: Scope, status: int, size: int, seconds: float, model: str | None) -> None:
    """Log one JSON line, without the texts of the request: they may be private."""
    client = scope.get("client")
    record = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "bytes": size,
        "milliseconds": round(1e3 * seconds, 1),
        "client": client[0] if client else None,
        "model": model and model[:12],
    }
    ACCESS_LOG.info(json.dumps(record))
