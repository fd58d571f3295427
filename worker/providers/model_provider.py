"""What all providers of models have in common, whatever they speak."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from worker.providers import prices
from worker.providers.http_call import HttpCall, Server, WireReader
from worker.providers.provider import ErrorClass, Piece, Receipt, TokenPrice
from worker.providers.settings import ProviderSettings


class ModelProvider:
    """Its table of the providers file, and its server."""

    def __init__(self, settings: ProviderSettings, headers: Mapping[str, str]) -> None:
        common = {"Accept": "text/event-stream", "Content-Type": "application/json"}
        self._settings = settings
        self._server = Server(settings, {**common, **headers})

    @property
    def name(self) -> str:
        """Of its table."""
        return self._settings.name

    def price(self, model: str | None) -> TokenPrice | None:
        """The providers file's, else what is listed for the address."""
        return self._settings.price or (prices.listed_price(model, self._settings.base_url) if model else None)

    def _chosen(self, model: str | None, receipt: Receipt) -> str:
        """The model, None takes the first one configured. Raises CallFailed where there is none."""
        chosen = model or next(iter(self._settings.models), None)
        if chosen is None:
            raise receipt.fail(ErrorClass.PERMANENT, "no_model")
        return chosen

    def _settle(self, usage: prices.Usage, model: str, receipt: Receipt) -> None:
        prices.settle(receipt, usage, model, self._settings.base_url, self._settings.price)


async def each_piece(http: HttpCall, reader: WireReader) -> AsyncGenerator[Piece]:
    """The pieces of a call one by one; iterate inside `aclosing`."""
    async with aclosing(http.pieces(reader)) as batches:
        async for pieces in batches:
            for piece in pieces:
                yield piece
