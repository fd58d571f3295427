"""The worker's admin port, where one is wanted: /metrics, /livez and /readyz.

As much of HTTP as a platform's probe needs, in the loop that the runs are in: a loop that hangs is not alive.
"""

from collections.abc import Iterator
from contextlib import suppress

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from worker.worker import Worker

HEAD_BYTES = 8192
# For a whole exchange: whoever dribbles, or does not read, is let go.
EXCHANGE_SECONDS = 5.0
JSON = "application/json"


class AdminPortTaken(Exception):
    """The address of the admin port cannot be had."""

    def __init__(self, host: str, port: int, reason: str | None) -> None:
        super().__init__(f"cannot listen at {host}:{port} ({reason}); choose another OUTLIVE_ADMIN_PORT")
        self.host = host
        self.port = port


async def admin_listener(host: str, port: int) -> Listener[SocketStream]:
    """The listening socket, whose address is printed; port 0 picks a free one. Raises AdminPortTaken."""
    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        raise AdminPortTaken(host, port, error.strerror) from error
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610  not the database's `extra` that the rule means
    print(f"outlive worker admin listening on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)  # noqa: T201
    return listener


class Admin(Collector):
    """What a worker says of itself; `serve` is its task."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    async def serve(self, listener: Listener[SocketStream]) -> None:
        """Answer until cancelled."""
        async with listener:
            await listener.serve(self._exchange)

    async def _exchange(self, stream: ByteStream) -> None:
        async with stream:
            # A probe that goes away in the middle is none of our concern.
            with anyio.move_on_after(EXCHANGE_SECONDS), suppress(OSError, anyio.BrokenResourceError):
                await self._answer(stream)

    async def _answer(self, stream: ByteStream) -> None:
        with suppress(anyio.IncompleteRead, anyio.DelimiterNotFound):
            head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", HEAD_BYTES)
            method, _, rest = head.partition(b" ")
            status, kind, body = self._page(method, rest.partition(b" ")[0].partition(b"?")[0])
            lines = (
                *(f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"),
                *("Cache-Control: no-store", "Connection: close", "", ""),
            )
            await stream.send("\r\n".join(lines).encode() + (b"" if method == b"HEAD" else body))

    def _page(self, method: bytes, path: bytes) -> tuple[str, str, bytes]:
        """Status, content type and body."""
        if method not in {b"GET", b"HEAD"}:
            return "405 Method Not Allowed\r\nAllow: GET, HEAD", JSON, b"{}"
        match path:
            case b"/metrics":
                return "200 OK", CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)
            case b"/livez":
                return "200 OK", JSON, b'{"alive":true}'
            case b"/readyz" if self._worker.is_ready:
                return "200 OK", JSON, b'{"ready":true}'
            case b"/readyz":
                return "503 Service Unavailable", JSON, b'{"ready":false}'
        return "404 Not Found", JSON, b"{}"

    def collect(self) -> Iterator[Metric]:
        """For the library."""
        yield GaugeMetricFamily("outlive_worker_runs", "Runs in hand.", self._worker.runs_in_hand)
        yield CounterMetricFamily("outlive_worker_claims", "Jobs that this process has taken.", self._worker.claims)
