"""`python -m schema limit` and the terms of a tenant, as an operator types them."""

from __future__ import annotations

import pytest

from schema.runs import Ask, claim
from tests.acceptance.test_schema_command import run
from tests.support.jobs import KIND, opened, queued

pytestmark = pytest.mark.anyio


async def test_a_limit_holds_at_once_and_is_listed_with_what_it_holds(database_url: str) -> None:
    assert run(database_url, "tenant", "add", "acme").returncode == 0
    for scope in ("global", "provider:there", "tenant:acme"):
        answer = run(database_url, "limit", "set", scope, "1")
        assert (answer.returncode, answer.stdout) == (0, f"{scope}  1\n")
    async with opened(database_url, 2) as database:
        tenant_id = await database.fetchval("SELECT id FROM outlive.tenants WHERE name = 'acme'")
        for _ in range(3):
            await queued(database, tenant_id=tenant_id, provider="there")
        ask = Ask("w", [KIND], ["there"], 10, 60)
        assert len((await claim(database, ask)).runs) == 1
        listed = run(database_url, "limit", "list")
        held = "1  1 running  set here"
        assert listed.stdout == f"global  {held}\nprovider:there  {held}\ntenant:acme  {held}\n"
        for scope in ("global", "provider:there"):
            assert run(database_url, "limit", "set", scope, "none").stdout == f"{scope}  no limit\n"
        assert (await claim(database, ask)).runs == []
        assert run(database_url, "limit", "set", "tenant:acme", "2").returncode == 0
        assert len((await claim(database, ask)).runs) == 1
    assert run(database_url, "limit", "set", "global", "none").stdout == "global had no limit\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("global", "40000000000"), "range"),
        (("global", "many"), "valid integer"),
        (("global", "1.5"), "valid integer"),
        (("everything", "1"), "global, provider:NAME or tenant:NAME"),
        (("provider:", "1"), "provider:NAME"),
        (("tenant:nobody", "1"), "nobody"),
        (("global",), "Missing argument"),
    ],
)
def test_what_is_no_limit_is_refused_in_a_sentence_and_changes_nothing(
    database_url: str, words: tuple[str, ...], says: str
) -> None:
    answer = run(database_url, "limit", "set", *words)
    assert answer.returncode != 0
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr
    assert run(database_url, "limit", "list").stdout == ""


@pytest.mark.parametrize(
    "words", [("--max-queued", "-1"), ("--max-queued", "x"), ("--weight", "0"), ("--weight", "1001")]
)
def test_terms_that_no_tenant_can_have_are_refused(database_url: str, words: tuple[str, ...]) -> None:
    answer = run(database_url, "tenant", "add", "acme", *words)
    assert answer.returncode != 0
    assert words[0] in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "acme" not in run(database_url, "tenant", "list").stdout


def test_terms_are_set_shown_and_taken_back(database_url: str) -> None:
    assert run(database_url, "tenant", "add", "acme", "--max-queued", "7", "--weight", "3").returncode == 0
    assert "weight 3" in run(database_url, "tenant", "list").stdout
    answer = run(database_url, "tenant", "set", "acme", "--max-queued", "9")
    assert (answer.returncode, "9" in answer.stdout) == (0, True)
