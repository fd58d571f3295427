"""Tokens: signed by one secret, taken by both, told apart from anything else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from gateway.tokens import Claims, Scope, Signer, TokenInvalid

OLD, NEW = "the old secret, which has 32 bytes", "the new secret, which has 32 bytes"
JOB = UUID("018f0000-0000-7000-8000-000000000000")


def claims(**other: object) -> Claims:
    good = {
        "tenant": "acme",
        "user": "ann",
        "jobs": frozenset({JOB}),
        "scopes": frozenset({Scope.READ, Scope.CANCEL}),
        "expires_at": (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0),
    }
    return Claims(**{**good, **other})  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [{}, {"user": None}, {"jobs": None}, {"jobs": frozenset()}])
def test_what_is_signed_comes_back(other: dict[str, object]) -> None:
    said = claims(**other)
    assert Signer((OLD,)).verify(Signer((OLD,)).sign(said)) == said


def test_secrets_are_changed_in_two_steps() -> None:
    """With both in place everything opens; with the new one alone only what it signed."""
    old, both, new = Signer((OLD,)), Signer((NEW, OLD)), Signer((NEW,))
    said = claims()
    assert both.verify(old.sign(said)) == said
    assert new.verify(both.sign(said)) == said
    for signer, token in ((new, old.sign(said)), (old, both.sign(said))):
        with pytest.raises(TokenInvalid):
            signer.verify(token)


def test_a_token_ends_when_it_says() -> None:
    signer = Signer((OLD,))
    with pytest.raises(TokenInvalid):
        signer.verify(signer.sign(claims(expires_at=datetime.now(UTC) - timedelta(seconds=1))))


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "\u00e9.\u00e9.\u00e9", "\ud800.a.b", "a" * 10_000])
def test_anything_else_is_no_token(text: str) -> None:
    with pytest.raises(TokenInvalid):
        Signer((OLD,)).verify(text)
