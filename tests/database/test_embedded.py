"""The embedded PostgreSQL: shared, owned by one, and found again after every kind of sudden end."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import psutil
import pytest

from schema import postmaster
from schema.embedded import EmbeddedPostgres, kept_secret, start_embedded
from schema.embedded_home import LASTING, EmbeddedFailed

ROOT = Path(__file__).resolve().parents[2]
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the server's account can walk: pytest's own folders are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="outlive-embedded-"))
    path.chmod(0o755)
    yield path
    stop_all_below(path)
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def made_cluster() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="outlive-embedded-"))
    path.chmod(0o755)
    start_embedded(path / "pg").close()
    yield path / "pg"
    shutil.rmtree(path)


@pytest.fixture
def cluster(folder: Path, made_cluster: Path) -> Path:
    """A directory whose cluster was made before, at the price of a copy: initdb waits for the disk, over and over."""
    subprocess.run(["cp", "-a", made_cluster, folder / "pg"], check=True)
    return folder / "pg"


def stop_all_below(path: Path) -> None:
    for process in servers_of(path):
        process.kill()
        process.wait(10)


def servers_of(path: Path) -> list[psutil.Process]:
    """Postmasters whose data are below `path`; zombies do not count."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and process.info["cmdline"]
        and "-D" in process.info["cmdline"]
        and any(word.startswith(str(path)) for word in process.info["cmdline"])
    ]


def fetch(server: EmbeddedPostgres, query: str) -> object:
    async def ask() -> object:
        connection = await asyncpg.connect(server.url, timeout=5)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(ask())


def hold(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "schema.embedded", "--hold", str(directory)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def first_line(holder: subprocess.Popen[str]) -> str:
    assert holder.stdout is not None
    return holder.stdout.readline().strip()


def end(holder: subprocess.Popen[str]) -> str:
    """Closes its input and returns what it said on standard error."""
    _, said = holder.communicate(timeout=40)
    return said


def test_it_is_durable_roomy_and_closed_to_others(folder: Path) -> None:
    with start_embedded(folder / "pg") as server:
        assert fetch(server, "SELECT current_setting('fsync')") == "on"
        assert fetch(server, "SELECT current_setting('synchronous_commit')") == "on"
        assert int(str(fetch(server, "SELECT current_setting('max_connections')"))) >= 200
        assert fetch(server, "SELECT current_setting('listen_addresses')") == ""
        assert fetch(server, "SELECT current_setting('server_version_num')") >= "180000"  # type: ignore[operator]
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    assert servers_of(folder) == []


def test_only_the_owner_stops_it(cluster: Path) -> None:
    with start_embedded(cluster) as server:
        with start_embedded(cluster) as guest:
            assert (server.owner, guest.owner) == (True, False)
            assert guest.url == server.url
        assert fetch(server, "SELECT 1") == 1
    assert not server.is_running()


def test_the_data_are_there_the_next_time(cluster: Path) -> None:
    with start_embedded(cluster) as server:
        fetch(server, "CREATE TABLE kept AS SELECT 42 AS value")
    with start_embedded(cluster) as server:
        assert fetch(server, "SELECT value FROM kept") == 42


def test_what_was_committed_survives_a_pulled_plug(cluster: Path) -> None:
    server = start_embedded(cluster)
    fetch(server, "CREATE TABLE kept AS SELECT 42 AS value")
    server.close(immediate=True)
    with start_embedded(cluster) as server:
        assert fetch(server, "SELECT value FROM kept") == 42


def test_five_starts_at_once_give_one_server(folder: Path) -> None:
    with ThreadPoolExecutor(5) as threads:
        servers = list(threads.map(start_embedded, [folder / "pg"] * 5))
    assert len({server.pid for server in servers}) == 1
    assert sum(server.owner for server in servers) == 1
    for server in sorted(servers, key=lambda server: server.owner):
        server.close()
    assert servers_of(folder) == []


def test_a_server_that_outlived_its_owner_gets_a_new_one(cluster: Path) -> None:
    holder = hold(cluster)
    url = first_line(holder)
    holder.kill()
    end(holder)
    assert len(servers_of(cluster)) == 1
    with start_embedded(cluster) as server:
        assert server.owner
        assert server.url == url
    assert servers_of(cluster) == []


def test_a_zombie_in_the_pid_file_is_no_server(cluster: Path) -> None:
    """evidence: a postmaster killed with -9 that nobody reaped was taken for a running server."""
    server = start_embedded(cluster)
    os.kill(server.pid, signal.SIGKILL)
    wait_for_zombie(server.pid)
    with start_embedded(cluster) as guest:
        assert fetch(guest, "SELECT 1") == 1
        assert guest.pid != server.pid
        assert (server.owner, guest.owner) == (True, False)
        server.close()
    assert servers_of(cluster) == []


def wait_for_zombie(pid: int) -> None:
    # WNOWAIT leaves the zombie unreaped, which is the point.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize(
    "pid_file", ["", "{pid}\n", "{pid}\n/elsewhere\n0\n5432\n/tmp\n\n0 0\nready\n", "999999999\n"]
)
def test_a_stale_pid_file_is_no_server(cluster: Path, pid_file: str) -> None:
    start_embedded(cluster).close()
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        (cluster / "data" / name).write_text(pid_file.format(pid=os.getpid()))
    with start_embedded(cluster) as server:
        assert fetch(server, "SELECT 1") == 1


def test_a_server_whose_socket_was_swept_away_is_started_again(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmaster, "DEAF_SECONDS", 0.2)
    with start_embedded(cluster) as deaf:
        (cluster / "data/.s.PGSQL.5432").unlink()
        guest = start_embedded(cluster)
        assert fetch(guest, "SELECT 1") == 1
        assert not deaf.is_running()
    guest.close()
    assert servers_of(cluster) == []


def test_a_cluster_that_was_cut_while_it_was_made_is_made_again(folder: Path) -> None:
    (folder / "pg/data.new/base").mkdir(parents=True)
    (folder / "pg/data.new/PG_VERSION").write_text("18")
    with start_embedded(folder / "pg") as server:
        assert fetch(server, "SELECT 1") == 1


def test_another_major_version_is_refused_in_a_sentence(folder: Path) -> None:
    (folder / "pg/data").mkdir(parents=True)
    (folder / "pg/data/PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedFailed, match=r"made by PostgreSQL 16, this is 18; move .*data away"):
        start_embedded(folder / "pg")


def test_a_failed_start_says_what_postgres_said(cluster: Path) -> None:
    with pytest.raises(EmbeddedFailed, match="invalid value for parameter"):
        start_embedded(cluster, {"work_mem": "many"})
    with start_embedded(cluster) as server:
        assert server.owner


@pytest.mark.parametrize("name", ["with space", "comma, and 'quote\"", "l" * 120, "ünï%20c"])
def test_any_path_will_do(folder: Path, name: str) -> None:
    with start_embedded(folder / name) as server:
        assert fetch(server, "SELECT 1") == 1
        assert server.data == folder / name / "data"
        with start_embedded(folder / name) as guest:
            assert guest.url == server.url


def test_a_closed_folder_stays_closed(folder: Path) -> None:
    """As root the cluster goes elsewhere, is found again from there, and no mode above it is loosened."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    mark = hashlib.sha256(os.fsencode((home / "pg").resolve())).hexdigest()[:12]
    place = LASTING / mark / "data" if IS_ROOT else home / "pg" / "data"
    try:
        with start_embedded(home / "pg") as server:
            fetch(server, "CREATE TABLE kept AS SELECT 42 AS value")
            assert server.data == place
        with start_embedded(home / "pg") as server:
            assert fetch(server, "SELECT value FROM kept") == 42
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(LASTING / mark, ignore_errors=True)


def test_settings_of_the_shell_do_not_reach_it(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGPORT": "1",
        "PGDATA": "/nowhere",
        "PGHOST": "nowhere",
        "LC_ALL": "xx_YY",
        "PGUSER": "x",
    }.items():
        monkeypatch.setenv(name, value)
    with start_embedded(cluster) as server:
        assert fetch(server, "SELECT 1") == 1


def test_the_holder_lets_go_when_its_input_ends(cluster: Path) -> None:
    holder = hold(cluster)
    assert first_line(holder).startswith("postgresql://")
    end(holder)
    assert holder.returncode == 0
    assert servers_of(cluster) == []


def test_the_holder_stops_the_server_on_sigterm(cluster: Path) -> None:
    holder = hold(cluster)
    first_line(holder)
    holder.terminate()
    holder.wait(40)
    end(holder)
    assert servers_of(cluster) == []


def test_the_holder_fails_when_the_server_ends_first(cluster: Path) -> None:
    holder = hold(cluster)
    first_line(holder)
    (server,) = servers_of(cluster)
    server.kill()
    assert holder.wait(20) == 1
    assert "PostgreSQL ended by itself" in end(holder)


def test_the_secret_is_kept_and_private(folder: Path) -> None:
    with ThreadPoolExecutor(5) as threads:
        secrets = set(threads.map(kept_secret, [folder / "pg"] * 5))
    assert len(secrets) == 1
    assert len(secrets.pop()) >= 32
    assert stat.S_IMODE((folder / "pg/secret").stat().st_mode) == 0o600
