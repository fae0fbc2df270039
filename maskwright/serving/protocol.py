"""HTTP connections that do not wait for ever: for a request to begin, or for a client to read."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits without end in both cases.

    One timer serves both: of a connection on which no request is being answered. While part of an
    answer waits to be read it is the client's turn to read, else to send a header.

    Args:
        header_seconds: from when a connection is free to when a whole header has come.
        read_seconds: that a client may leave an answer where it is without reading any of it.
    """

    def __init__(
        self, *arguments: Any, header_seconds: float, read_seconds: float, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._header_seconds, self._read_seconds = header_seconds, read_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0  # bytes, when the timer was set

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:  # a request has begun; its body has a time of its own
            self._stop_timer()

    def on_response_complete(self) -> None:
        self._set_timer()  # before the next request may begin, which is in the call below
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:
            self._set_timer()

    def _set_timer(self) -> None:
        self._stop_timer()
        self._unread = self.transport.get_write_buffer_size()
        seconds = self._read_seconds if self._unread else self._header_seconds
        self._timer = self.loop.call_later(seconds, self._look_again)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        """Cuts the connection if nothing has been read, or if there is nothing left to read."""
        unread = self.transport.get_write_buffer_size()
        if unread == self._unread:
            self.transport.abort()
        else:
            self._set_timer()
