"""The cursor of outcomes as text: 32 characters that say nothing to whoever holds them."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from schema.outcomes import OutcomeCursor

_XID_BYTES = 8
# 24 bytes fill 32 characters exactly, so every such text has one meaning and every meaning one text.
_TEXT = re.compile(r"[A-Za-z0-9_-]{32}", re.ASCII)


def encode_outcome_cursor(cursor: OutcomeCursor) -> str:
    """The text that `decode_outcome_cursor` takes."""
    return urlsafe_b64encode(cursor.xid.to_bytes(_XID_BYTES) + cursor.job_id.bytes).decode()


def decode_outcome_cursor(text: str) -> OutcomeCursor | None:
    """None where it is none of ours."""
    if not _TEXT.fullmatch(text):
        return None
    raw = urlsafe_b64decode(text)
    return OutcomeCursor(int.from_bytes(raw[:_XID_BYTES]), UUID(bytes=raw[_XID_BYTES:]))
