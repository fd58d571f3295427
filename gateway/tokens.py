"""Tokens: who, which jobs, what, until when, signed with the operator's secret (a JWT, HS256)."""

import hmac
import math
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import jwt
import orjson

from schema.errors import OutliveError
from schema.job_ids import parse_job_id
from schema.text import clean_text

LONGEST = timedelta(hours=24)
# The maker's clock may be a little ahead of ours.
SKEW = timedelta(seconds=60)
USER_CHARACTERS = 255
_ALGORITHM = "HS256"


def _base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


_HEADER = _base64url(orjson.dumps({"alg": _ALGORITHM, "typ": "JWT"}))


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    CANCEL = "cancel"
    CREATE = "create"


class TokenInvalid(OutliveError):
    """The token is not one of ours, or expired; get a new one."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says. `tenant` is a name; `jobs` None stands for all of them, `user` None for all users."""

    tenant: str
    user: str | None
    jobs: frozenset[UUID] | None
    scopes: frozenset[Scope]
    expires_at: datetime


class Signer:
    """Signs with the first secret; takes what any of them signed, so that a secret can be changed in peace."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets

    def sign(self, claims: Claims) -> str:
        """The token's text."""
        payload: dict[str, Any] = {
            "tenant": claims.tenant,
            "jobs": "*" if claims.jobs is None else [str(job) for job in sorted(claims.jobs)],
            "scope": sorted(claims.scopes),
            "exp": int(claims.expires_at.timestamp()),
        }
        if claims.user is not None:
            payload["user"] = claims.user
        return self.sign_payload(payload)

    def verify(self, text: str) -> Claims:
        """What a token says. Raises TokenInvalid for anything that is not exactly one of ours and alive."""
        payload = self.verify_payload(text)
        return Claims(
            tenant=_name(payload.get("tenant")),
            user=_name(payload["user"]) if "user" in payload else None,
            jobs=_jobs(payload.get("jobs")),
            scopes=_scopes(payload.get("scope")),
            expires_at=_expiry(payload["exp"]),
        )

    def sign_payload(self, payload: Mapping[str, Any]) -> str:
        """Sign any claims; `exp` has to be among them.

        By hand (RFC 7515, 3.1): a list of 200 jobs carries 200 tokens; one takes 26 us here and 101 by PyJWT.
        """
        signed = b".".join((_HEADER, _base64url(orjson.dumps(payload))))
        signature = hmac.digest(self._secrets[0].encode(), signed, "sha256")
        return b".".join((signed, _base64url(signature))).decode()

    def verify_payload(self, text: str) -> Mapping[str, Any]:
        """The claims of what we signed and what has not expired. Raises TokenInvalid."""
        for secret in self._secrets:
            try:
                payload: Mapping[str, Any] = jwt.decode(
                    text, secret, algorithms=[_ALGORITHM], options={"require": ["exp"]}
                )
            except jwt.InvalidSignatureError:
                continue
            # A header of a thousand brackets ends the parser's recursion before its signature is looked at.
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
                break
            return payload
        raise TokenInvalid


def _expiry(value: object) -> datetime:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenInvalid
    now = datetime.now(UTC)
    if not now.timestamp() < value <= (now + LONGEST + SKEW).timestamp():
        raise TokenInvalid
    return datetime.fromtimestamp(value, UTC)


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= USER_CHARACTERS or clean_text(value) != value:
        raise TokenInvalid
    return value


def _jobs(value: object) -> frozenset[UUID] | None:
    if value == "*":
        return None
    if not isinstance(value, list):
        raise TokenInvalid
    ids = [parse_job_id(item) if isinstance(item, str) else None for item in value]
    if None in ids:
        raise TokenInvalid
    return frozenset(job_id for job_id in ids if job_id is not None)


def _scopes(value: object) -> frozenset[Scope]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item in set(Scope) for item in value):
        raise TokenInvalid
    return frozenset(Scope(item) for item in value)
