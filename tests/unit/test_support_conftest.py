"""What conftest.py forbids to all tests: leaks, and, where every test is required, skips."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import ROOT

SUSPECTS = """
import asyncio

import asyncpg
import pytest

pytestmark = pytest.mark.anyio
kept = []


async def test_leaves_a_task():
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="left behind"))


async def test_cancels_its_task():
    asyncio.create_task(asyncio.Event().wait()).cancel()


async def test_leaves_a_connection(empty_database_url):
    kept.append(await asyncpg.connect(empty_database_url, server_settings={"application_name": "left open"}))


def test_skips():
    pytest.skip("nothing to run it on")


@pytest.mark.xfail
def test_is_expected_to_fail():
    raise AssertionError
"""


@pytest.fixture
def suspects(tmp_path: Path) -> Path:
    path = tmp_path / "test_suspects.py"
    path.write_text(SUSPECTS)
    return path


def run_pytest(path: Path, admin_url: str, *, require_all: bool) -> str:
    """The output of another pytest with our conftest as a plugin, on the server of this session."""
    environment = {**os.environ, "TEST_DATABASE_URL": admin_url, "OUTLIVE_TEST_REQUIRE_ALL": str(int(require_all))}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        f"--rootdir={ROOT}",
        f"-c={ROOT}/pyproject.toml",
    ]
    done = subprocess.run(
        [*command, "-W", "ignore", str(path)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50
    )
    return done.stdout


def test_leaks_fail_and_skips_are_said_by_name(suspects: Path, admin_url: str) -> None:
    output = run_pytest(suspects, admin_url, require_all=False)
    assert re.search(r"ERROR at teardown of test_leaves_a_task\S* _+\ntasks still run .*name='left behind'", output)
    assert re.search(r"ERROR at teardown of test_leaves_a_connection\S* _+\nconnections .*left open", output)
    assert "NOT RUN: 1 skipped" in output
    assert "::test_skips: Skipped: nothing to run it on" in output
    assert "3 passed, 1 skipped, 1 xfailed, 2 errors" in output


def test_a_skip_fails_where_all_are_required(suspects: Path, admin_url: str) -> None:
    output = run_pytest(suspects, admin_url, require_all=True)
    assert re.search(r"skipped, which OUTLIVE_TEST_REQUIRE_ALL=1 forbids: .*nothing to run it on", output)
    assert "1 failed, 3 passed, 1 xfailed, 2 errors" in output
