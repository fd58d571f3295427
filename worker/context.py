"""What a handler has of its run: the log to say things in, and the provider to call."""

from uuid import UUID

import stamina

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.events import Draft, EventKind
from schema.json_line import json_line
from schema.runs import Lease, store_checkpoint
from schema.text import clean_json, clean_text
from worker.appender import Appender
from worker.caller import Caller, channel_drafts
from worker.handlers.kind import Answer, Json
from worker.log_writer import LeaseLost, LogWriter
from worker.providers.provider import Prompt

# What a `data` event may hold, so that its line stays under 64 KiB; docs/protocol.md 4.
DATA_BYTES = 60 * 1024


class DataTooLarge(ValueError):
    """A `data` or `progress` value over 60 KiB of JSON; emit less, or several."""


class Context:
    """Implements RunContext for one run."""

    def __init__(
        self, database: Database, appender: Appender, writer: LogWriter, caller: Caller, checkpoint: Json = None
    ) -> None:
        self._database = database
        self._appender = appender
        self._writer = writer
        self._caller = caller
        self._checkpoint = checkpoint
        self.has_stored = False

    @property
    def _lease(self) -> Lease:
        return self._writer.lease

    @property
    def job_id(self) -> UUID:
        """Of the job."""
        return self._lease.job_id

    @property
    def attempt(self) -> int:
        """Of this run."""
        return self._lease.attempt

    async def emit(self, text: str, channel: str | None = None) -> None:
        """Add to the job's text, or to a channel beside it."""
        text = clean_text(text)
        if not text:
            return
        self._caller.handler_spoke()
        if channel is None:
            await self._appender.chunk(self._writer, text)
        else:
            await self._appender.event(self._writer, *channel_drafts(text, channel))

    async def emit_data(self, name: str, value: Json) -> None:
        """Add a `data` event. Raises DataTooLarge."""
        self._caller.handler_spoke()
        await self._event(EventKind.DATA, {"name": name, "value": value})

    async def progress(self, done: int, total: int, label: str = "") -> None:
        """Add a `progress` event."""
        await self._event(EventKind.PROGRESS, {"done": done, "total": total, "label": label})

    async def _event(self, kind: EventKind, data: dict[str, Json]) -> None:
        encoded = json_line(clean_json(data))
        if len(encoded) > DATA_BYTES:
            raise DataTooLarge
        await self._appender.event(self._writer, Draft(kind, encoded.decode()))

    @property
    def checkpoint(self) -> Json:
        """What was stored last, by this attempt or an earlier one."""
        return self._checkpoint

    async def store_checkpoint(self, value: Json) -> None:
        """Keep `value` and all that was emitted before it, in this order. Raises LeaseLost."""
        value = clean_json(value)
        # The same again after an answer that was lost changes nothing, so it may be tried until it is heard.
        async for attempt in stamina.retry_context(
            on=(DatabaseUnavailable, DatabaseBusy), attempts=None, timeout=None, wait_max=2.0
        ):
            with attempt:
                last_seq = await self._appender.flush(self._writer)
                if not await store_checkpoint(self._database, self._lease, last_seq, value):
                    raise LeaseLost
        self._checkpoint = value
        self.has_stored = True
        self._caller.checkpointed()

    def step_key(self, step: str) -> str:
        """The same in every attempt of this job."""
        return f"{self.job_id}:{step}"

    async def call(self, prompt: Prompt) -> Answer:
        """One request on the wire, with its row in the ledger and its pieces in the log. Raises CallFailed."""
        return await self._caller.call(prompt)
