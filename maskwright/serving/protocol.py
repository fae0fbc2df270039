"""HTTP connections that do not wait for ever: for a request to begin, or for a client to read."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits without end in both cases.

    Args:
        header_seconds: from when a connection is free to when a whole header has come.
        read_seconds: that a client may leave an answer unread which does not fit on its way.
    """

    def __init__(
        self, *arguments: Any, header_seconds: float, read_seconds: float, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self._header_seconds, self._read_seconds = header_seconds, read_seconds
        self._for_header: asyncio.TimerHandle | None = None
        self._for_reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._for_header)
        _cancel(self._for_reading)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:  # a request has begun; its body has a time of its own
            _cancel(self._for_header)

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self._await_header()  # before the next request may begin, which is in the call below
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._for_reading)
        self._for_reading = self.loop.call_later(self._read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._for_reading)

    def _await_header(self) -> None:
        _cancel(self._for_header)
        self._for_header = self.loop.call_later(self._header_seconds, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
