"""Connections: how many there may be, how long one may wait for its client, and the socket.

uvicorn counts none that are idle. Each takes an open file, of which a process usually has 1,024:
without a limit of our own anybody could take them all and keep everybody else out.
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
# A loop accepts at most this many connections before it does anything else (asyncio).
BACKLOG = 128
# asyncio needs two rounds of its loop from accepting a connection to `Connections.admit`, and one
# more to close the connection whose place it takes: up to three times `BACKLOG` files beside the
# counted ones. The other 64 are for weights, logs and the loop itself.
OTHER_FILES = 3 * BACKLOG + 64
_FEWEST = 16  # connections, to be of any use
_QUIET_SECONDS = 60.0  # between two lines that say the same


class Connection(asyncio.Protocol):
    """A connection that is cut when its client keeps it waiting; HTTP is spoken by uvicorn.

    One timer serves two cases. While part of an answer is unread it is the client's turn to read,
    else, without a request, to send a header.

    Args:
        connections: all of them, with the times that a client may take.
        settings: the arguments of uvicorn's protocol.

    Attributes:
        is_paused: so much of an answer is unread that no more is written.
    """

    def __init__(self, connections: "Connections", settings: dict[str, Any]) -> None:
        self._connections, self._settings = connections, settings
        self._http: H11Protocol | None = None  # until the connection is admitted
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._num_requests = 0  # that are being answered; of pipelined ones two for a moment
        self.is_paused = False
        self._unread = 0  # bytes, when the timer was set

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._connections.admit(self):
            transport.abort()
            return
        state = {**self._settings["app_state"], STATE_KEY: self}
        self._http = H11Protocol(**{**self._settings, "app_state": state})
        self._http.connection_made(transport)
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
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
        """Note that a request is being answered, which has times of its own."""
        self._num_requests += 1
        self._update()

    def end_request(self) -> None:
        """Note that an answer is complete, though the client may not have read it yet."""
        self._num_requests -= 1
        self._update()

    def cut(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _update(self) -> None:
        is_idle = not self._num_requests
        self._connections.note(self, is_idle=is_idle)
        self._stop_timer()
        if is_idle or self.is_paused:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._unread = self._transport.get_write_buffer_size()
        limits = self._connections
        seconds = limits.read_seconds if self._unread else limits.header_seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look_again)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        """Cut the connection if nothing has been read, or if there is nothing left to read."""
        if self._transport is not None and self._transport.get_write_buffer_size() != self._unread:
            self._set_timer()
        else:
            self.cut()


class Connections:
    """All open connections, of which there are at most `limit`.

    One more takes the place of the one that has been idle longest. So a request is heard however
    many connections somebody else holds open, unless every one of them is being answered.

    Args:
        limit: most that are open.
        header_seconds: from when a connection is free to when a whole header has come.
        read_seconds: that a client may leave an answer where it is without reading any of it.
    """

    def __init__(self, limit: int, header_seconds: float, read_seconds: float) -> None:
        self.limit, self.header_seconds, self.read_seconds = limit, header_seconds, read_seconds
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the longest idle first

    def __len__(self) -> int:
        return len(self._open)

    def make(self, **settings: Any) -> Connection:
        """Return the protocol of a new connection; uvicorn calls this as its ``http`` class."""
        return Connection(self, settings)

    def admit(self, connection: Connection) -> bool:
        """Return True if there is room for a connection, which may be that of an idle one."""
        if len(self._open) >= self.limit:
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.forget(oldest)
            oldest.cut()
        self._open.add(connection)
        return True

    def note(self, connection: Connection, *, is_idle: bool) -> None:
        """Remember since when a connection has been idle."""
        if not is_idle:
            self._idle.pop(connection, None)
        elif connection in self._open:
            self._idle.setdefault(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a connection, which may have been removed before."""
        self._open.discard(connection)
        self._idle.pop(connection, None)


class AcceptFailures:
    """The loop's exception handler: one line a minute while no connection can be accepted.

    asyncio has a traceback for every attempt, and makes `BACKLOG` of them a second.
    """

    def __init__(self) -> None:
        self._said = -_QUIET_SECONDS

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or "socket" not in context:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._said >= _QUIET_SECONDS:
            self._said = time.monotonic()
            LOG.error(
                "no connection can be accepted: %s. Raise the limit of open files (ulimit -n), "
                "or lower --max_connections.",
                error.strerror,
            )


def allow_connections(wanted: int) -> int:
    """Raise this process's limit of open files for `wanted` connections.

    Returns:
        How many connections there may be: fewer than `wanted` if the hard limit is too low.

    Raises:
        InputError: the hard limit leaves room for hardly any.
    """
    try:
        import resource
    except ImportError:  # Windows, whose sockets are not limited so
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < _FEWEST + OTHER_FILES:
        raise InputError(
            f"ulimit -n = {soft} must be at least {_FEWEST + OTHER_FILES} to serve connections. "
            "Raise the hard limit (ulimit -Hn)."
        )
    return min(wanted, soft - OTHER_FILES)


def listen(config: ServeConfig) -> socket.socket:
    """Return the socket to serve on.

    Raises:
        InputError: the port is taken, or the host is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except OSError as error:
        if (error.errno or 0) < 0:  # of a name that stands for no address
            raise InputError(f"host = {config.host} is no address here.") from None
        raise InputError(
            f"host = {config.host}, port = {config.port}: {os.strerror(error.errno or 0)}. "
            "Choose another --host or --port."
        ) from None
    # An answer leaves in two parts, its head and its body. Without this option, which connections
    # inherit, the second waits for the client to acknowledge the first: 40 ms. asyncio sets it
    # only where a socket was made with its protocol by name, which these are not.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
