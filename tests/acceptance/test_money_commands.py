"""`python -m schema money`, as an operator types it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.acceptance.test_schema_command import run
from tests.support.jobs import opened, queued
from tests.support.money import a_payer, account, at_most

pytestmark = pytest.mark.anyio


async def test_check_finds_the_damage_and_rebuild_mends_it(database_url: str) -> None:
    async with opened(database_url, 2) as database:
        tenant = await a_payer(database, "10")
        await queued(database, tenant_id=tenant.id, money=at_most("2.5"))
        sound = run(database_url, "money", "check")
        assert (sound.returncode, sound.stderr) == (0, "")
        assert "agree (1 entries, 1 accounts, 1 open reservations)" in sound.stdout
        await database.execute("UPDATE outlive.quota_accounts SET reserved_usd = 1")
        damaged = run(database_url, "money", "check")
        assert damaged.returncode == 1
        assert damaged.stdout == (
            f"account of {tenant.name}, total: reserved 1, charged 0; its ledger says 2.5 and 0; "
            "`money rebuild` mends it\n"
        )
        mended = run(database_url, "money", "rebuild")
        assert (mended.returncode, mended.stdout) == (0, "1 accounts made from the ledger\n")
        assert run(database_url, "money", "check").returncode == 0
        assert await account(database, tenant.id) == (Decimal("2.5"), 0)


async def test_quotas_are_set_by_command_and_the_books_follow(database_url: str) -> None:
    assert run(database_url, "tenant", "add", "acme").returncode == 0
    async with opened(database_url, 2) as database:
        tenant_id = await database.fetchval("SELECT id FROM outlive.tenants WHERE name = 'acme'")
        await queued(database, tenant_id=tenant_id, money=at_most("2.5"))
        for words, shown, accounts in [
            (("--quota-usd", "10"), "quota 10 USD total", 1),
            (("--quota-usd", "0.000000001", "--quota-period", "month"), "quota 0.000000001 USD month", 1),
            (("--weight", "3"), "quota 0.000000001 USD month", 1),
            (("--no-quota",), "weight 3\n", 0),
        ]:
            answer = run(database_url, "tenant", "set", "acme", *words)
            assert answer.returncode == 0, answer.stderr
            assert shown in answer.stdout
            assert await database.fetchval("SELECT count(*) FROM outlive.quota_accounts") == accounts
            assert run(database_url, "money", "check").returncode == 0


@pytest.mark.parametrize("amount", ["-1", "1e3000", "NaN", "Infinity", "0.0000000001", "1000000000", "ten", ""])
def test_what_is_no_amount_is_refused_in_one_sentence(database_url: str, amount: str) -> None:
    answer = run(database_url, "tenant", "add", "acme", "--quota-usd", amount)
    assert answer.returncode == 2
    assert "--quota-usd" in answer.stderr
    assert "Traceback" not in answer.stderr
