"""/metrics: what the tables say, kept for a moment, and what this process says of itself.

    scrape -> figures still fresh? -> else one count for all who ask now -> families -> text

Counting reads whole tables, so one at a time does it, and at most a tenth of the time. Whoever scrapes while the
database is away gets what the process knows; `tables_counted` tells.
"""

from collections.abc import Iterator
from time import monotonic

import anyio
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.gateway import Gateway
from gateway.metric_families import families_of_tables, gauge
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.totals import Totals, totals

# Several scrapers, or a person who reloads, share one count...
FRESH_SECONDS = 2.0
# ...and where one takes long, none is begun before so many times as long have passed.
REST_FACTOR = 10

log = structlog.get_logger()


class Metrics(Collector):
    """All metrics of one gateway; `page` gives them as text."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._totals: Totals | None = None
        self._fresh_until = float("-inf")
        self._counting = anyio.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics where `accept` asks for it, else Prometheus's own."""
        async with self._counting:
            if monotonic() >= self._fresh_until:
                await self._count()
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    async def _count(self) -> None:
        began = monotonic()
        self._totals = await self._totals_now() if self._gateway.readiness.started else None
        ended = monotonic()
        self._fresh_until = ended + max(FRESH_SECONDS, (ended - began) * REST_FACTOR)

    async def _totals_now(self) -> Totals | None:
        try:
            return await totals(self._gateway.database)
        except (DatabaseUnavailable, DatabaseBusy) as error:
            log.warning("tables not counted", error=str(error))
            return None

    def collect(self) -> Iterator[Metric]:
        """For the library, which asks when it makes the text."""
        gateway = self._gateway
        if self._totals is not None:
            yield from families_of_tables(self._totals)
        yield gauge("tables_counted", "1 where this answer has what the tables say.", self._totals is not None)
        yield gauge("sse_connections", "Streams, and requests that wait, at this gateway.", len(gateway.wheel))
        yield gauge("listener_up", "1 while NOTIFY reaches this gateway.", gateway.readiness.listen_up)
