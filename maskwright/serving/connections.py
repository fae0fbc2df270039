"""Open connections: their number, timeouts for slow clients, and the listening socket.

uvicorn's options cannot replace this: `limit_concurrency` counts idle connections as load,
`timeout_keep_alive` does not cover a header that never ends, and nothing covers a response that is
never read. Idle connections each hold an open file, of which a process usually has 1,024.
"""

import asyncio
import logging
import os
import socket
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from maskwright.errors import InputError
from maskwright.serving.config import ServeConfig

LOG = logging.getLogger("maskwright.serving")
STATE_KEY = "maskwright.connection"  # in ``scope["state"]`` of each request
BACKLOG = 128  # asyncio accepts at most this many connections in one round of its loop
# asyncio needs two rounds of its loop from accepting a connection to `Connections.admit`, and one
# more to close the connection that it replaces: up to three times `BACKLOG` files on top of the
# counted connections. The other 64 are for weights, logs and the loop itself.
OTHER_FILES = 3 * BACKLOG + 64
_MIN_CONNECTIONS = 16
_QUIET_SECONDS = 60.0  # between two log lines about the same failure


class Connection(asyncio.Protocol):
    """A connection that is closed when its client is too slow; uvicorn's protocol speaks HTTP.

    One timer serves two timeouts: that of reading, while part of a response is unread, and that of
    sending a header, while there is no request.

    Args:
        connections: all connections, with the timeouts.
        app_state: the state that the requests get, to which this connection is added.
        settings: the other arguments of uvicorn's protocol.

    Attributes:
        is_paused: True while the transport takes no more of a response, because too much is unread.
    """

    def __init__(
        self, connections: "Connections", app_state: dict[str, Any], settings: dict[str, Any]
    ) -> None:
        self._connections, self._app_state, self._settings = connections, app_state, settings
        self._http: H11Protocol | None = None  # until the connection is admitted
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._num_requests = 0  # without a complete response; two for a moment if pipelined
        self.is_paused = False
        self._num_unread = 0  # bytes, when the timer was set

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._connections.admit(self):
            transport.abort()
            return
        app_state = {**self._app_state, STATE_KEY: self}
        self._http = H11Protocol(**self._settings, app_state=app_state)
        self._http.connection_made(transport)
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._stop_timer()
        if self._http is not None:
            self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._http is not None:
            self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received() if self._http is not None else None

    def pause_writing(self) -> None:
        self.is_paused = True
        if self._http is not None:
            self._http.pause_writing()
        self._update()

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._http is not None:
            self._http.resume_writing()
        self._update()

    def begin_request(self) -> None:
        """Stop the header timeout: the application has timeouts of its own."""
        self._num_requests += 1
        self._update()

    def end_request(self) -> None:
        """Start the header timeout, or that of reading if part of the response is unread."""
        self._num_requests -= 1
        self._update()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _update(self) -> None:
        is_idle = not self._num_requests
        self._connections.mark(self, is_idle=is_idle)
        self._stop_timer()
        if is_idle or self.is_paused:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._num_unread = self._transport.get_write_buffer_size()
        limits = self._connections
        seconds = limits.read_seconds if self._num_unread else limits.header_seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check_progress)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_progress(self) -> None:
        """Close the connection, unless the client has read something since the timer was set."""
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() != self._num_unread:
            self._set_timer()
        else:
            self.abort()


class Connections:
    """All open connections, at most `limit`.

    A new connection replaces the one that has been idle longest. So a request gets through however
    many idle connections there are, and is refused only if every connection has a request.

    Args:
        limit: the maximum number of open connections.
        header_seconds: from the end of a response, or the start, to a complete header.
        read_seconds: time without the client reading anything of a response.
    """

    def __init__(self, limit: int, header_seconds: float, read_seconds: float) -> None:
        self.limit, self.header_seconds, self.read_seconds = limit, header_seconds, read_seconds
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the longest idle first

    def __len__(self) -> int:
        return len(self._open)

    def make(self, *, app_state: dict[str, Any], **settings: Any) -> Connection:
        """Return the protocol of a new connection; uvicorn calls this as its ``http`` class."""
        return Connection(self, app_state, settings)

    def admit(self, connection: Connection) -> bool:
        """Add a connection, in place of an idle one if need be; return False if there is none."""
        if len(self._open) >= self.limit:
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.remove(oldest)
            oldest.abort()
        self._open.add(connection)
        return True

    def mark(self, connection: Connection, *, is_idle: bool) -> None:
        """Mark a connection as idle, from the first such call on, or as busy."""
        if not is_idle:
            self._idle.pop(connection, None)
        elif connection in self._open:
            self._idle.setdefault(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a connection; without effect if it is removed already."""
        self._open.discard(connection)
        self._idle.pop(connection, None)


class AcceptErrorHandler:
    """The event loop's exception handler: one line a minute while connections cannot be accepted.

    asyncio alone logs a traceback for every attempt, `BACKLOG` of them a second.
    """

    def __init__(self) -> None:
        self._last_logged = -_QUIET_SECONDS

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or "socket" not in context:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._last_logged >= _QUIET_SECONDS:
            self._last_logged = time.monotonic()
            LOG.error(
                "cannot accept connections: %s. Raise the limit of open files (ulimit -n), or "
                "lower --max_connections.",
                error.strerror,
            )


def allow_connections(requested: int) -> int:
    """Raise this process's limit of open files for `requested` connections.

    Returns:
        The number of connections: less than `requested` if the hard limit is too low.

    Raises:
        InputError: the hard limit is too low to serve at all.
    """
    try:
        import resource
    except ImportError:  # Windows, which does not count sockets as open files
        return requested
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = requested + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return requested
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < _MIN_CONNECTIONS + OTHER_FILES:
        raise InputError(
            f"ulimit -n = {soft} must be at least {_MIN_CONNECTIONS + OTHER_FILES} to serve. "
            "Raise the hard limit (ulimit -Hn)."
        )
    return min(requested, soft - OTHER_FILES)


def listen(config: ServeConfig) -> socket.socket:
    """Return the listening socket; raise InputError if the port is taken or the host not ours."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except OSError as error:
        if (error.errno or 0) < 0:  # the name does not resolve
            raise InputError(f"host = {config.host} does not resolve to an address.") from None
        raise InputError(
            f"host = {config.host}, port = {config.port}: {os.strerror(error.errno or 0)}. "
            "Choose another --host or --port."
        ) from None
    # A response is sent in two parts, head and body. Without this option, which connections
    # inherit, the second waits 40 ms until the client acknowledges the first. asyncio sets it only
    # on sockets that were created with an explicit protocol number.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
