"""One connection of a client: uvicorn's protocol, made patient with honest clients only.

    bytes -> slices -> h11 -> request     a read is parsed for some milliseconds, then the streams have their turn
    request expected, and none comes      closed after REQUEST_SECONDS
    answer written, and not taken         cut after UNTAKEN_SECONDS without progress

None of it is there for good behaviour: it bounds what one connection can cost all the others.
"""

import asyncio
import time
from typing import cast

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.problems import Problem

# A connection that has not said by then what it wants holds a descriptor for nothing.
REQUEST_SECONDS = 30
# A read has up to 256 KiB. As chunks of one byte these are 43,000 events of h11, which held all streams for 3 s.
SLICE_BYTES = 2048
PARSE_SECONDS = 0.005
# An answer of which so little is taken in such a time is held for nobody: 2 KiB a second is slower than any modem.
UNTAKEN_SECONDS = 30
LEAST_TAKEN_BYTES = 64 * 1024


class Http(H11Protocol):
    """uvicorn's protocol with limits in time, and its refusals as problem documents."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the wait for a request."""
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._unparsed = bytearray()
        self._patience = self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Parse now what takes little time, and leave the rest to later turns of the loop; in order, always."""
        self._unparsed += data
        if len(self._unparsed) == len(data):
            self._parse()

    def _parse(self) -> None:
        until = time.monotonic() + PARSE_SECONDS
        while self._unparsed and not self.transport.is_closing():
            piece = bytes(self._unparsed[:SLICE_BYTES])
            del self._unparsed[:SLICE_BYTES]
            super().data_received(piece)
            if time.monotonic() > until:
                break
        if self.transport.is_closing():
            return
        self._look_at_request()
        self.flow.hold(bool(self._unparsed))
        if self._unparsed:
            self.loop.call_soon(self._parse)

    def _look_at_request(self) -> None:
        """A request that has begun ends the wait; bytes of none begin another, so that dribbling does not help."""
        if not self._waits:
            self._patience.cancel()
        elif self._patience.cancelled():
            self._patience = self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waits."""
        self._unparsed.clear()
        self._patience.cancel()
        self.flow.forget()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        return cast(object, self.cycle) is None or self.cycle.response_complete

    def _wait_for_request(self) -> asyncio.TimerHandle:
        return self.loop.call_later(REQUEST_SECONDS, self._lose_patience)

    def _lose_patience(self) -> None:
        if self._waits:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """For what is not HTTP at all."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.close()
            return
        response = Problem("bad_request", "This is not valid HTTP/1.1. Send a well-formed request.").response()
        headers = [*response.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=response.status_code, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Flow(FlowControl):
    """uvicorn's flow control, which reads nothing while something is unparsed and cuts who takes nothing.

    uvicorn's transport answers to `hold` last, since one of its calls goes past the flow control.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._held = False
        self._untaken_bytes = 0
        self._look: asyncio.TimerHandle | None = None

    def hold(self, held: bool) -> None:
        """Whether something that was read is still unparsed."""
        if held:
            self._transport.pause_reading()
        elif self._held and not self.read_paused:
            self._transport.resume_reading()
        self._held = held

    def resume_reading(self) -> None:
        """Not before all is parsed: what is unparsed would grow by a read for each small request in it."""
        if self._held:
            self.read_paused = False
        else:
            super().resume_reading()

    def pause_writing(self) -> None:
        """The client takes less than we write: begin to watch it."""
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        """It has taken enough."""
        self.forget()
        super().resume_writing()

    def forget(self) -> None:
        """Watch no more."""
        if self._look is not None:
            self._look.cancel()

    def _look_later(self) -> None:
        self._untaken_bytes = self._transport.get_write_buffer_size()
        self._look = asyncio.get_running_loop().call_later(UNTAKEN_SECONDS, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """uvicorn closes after the last byte is out, which who reads a byte a minute puts off for ever."""
        if self._transport.get_write_buffer_size() > self._untaken_bytes - LEAST_TAKEN_BYTES:
            self._transport.abort()
        else:
            self._look_later()
