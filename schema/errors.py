"""What can go wrong at the edge to PostgreSQL, in our words; the driver's errors end here."""


class OutliveError(Exception):
    """Base of every error that this package raises on purpose."""


class DatabaseUnavailable(OutliveError):
    """PostgreSQL did not answer: not reachable, restarting, or out of connections; try again later."""


class DatabaseBusy(OutliveError):
    """A row stayed locked for longer than the statement may wait; nothing was written, try again."""


class WriteRefused(OutliveError):
    """PostgreSQL will not store this: a value it cannot hold, or a rule of a table; nothing was written."""

    def __init__(self, state: str) -> None:
        super().__init__(f"PostgreSQL refused the write (SQLSTATE {state}); the same write will be refused again")
        self.state = state


class SchemaNotReady(OutliveError):
    """The tables are older than this program: run `python -m schema migrate`."""

    def __init__(self, found: int, needed: int) -> None:
        super().__init__(
            f"the database has schema version {found} and this program needs {needed}; run `python -m schema migrate`"
        )
        self.found = found
        self.needed = needed


class SchemaTooNew(OutliveError):
    """The tables are newer than this program knows: roll it forward."""

    def __init__(self, found: int, newest: int) -> None:
        super().__init__(
            f"the database has schema version {found} and this program knows versions up to {newest}; "
            "start a newer version of it"
        )
        self.found = found
        self.newest = newest


class MigrationChanged(OutliveError):
    """A migration that was applied does not read as it did then."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"migration {number:04d} was applied with another text; migrations are never edited: "
            "restore the file and put the change into a new one"
        )
        self.number = number


class PoolerRefused(OutliveError):
    """A transaction pooler stands where a session is needed."""

    def __init__(self, why: str | None = None) -> None:
        super().__init__(
            why
            or "LISTEN does not survive on this address, so a transaction pooler stands before PostgreSQL; "
            "set OUTLIVE_DIRECT_URL to an address that leads to PostgreSQL itself"
        )


class IsolationRefused(PoolerRefused):
    """Behind a pooler a session cannot choose its isolation, and that of the role or the database is another."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"behind the pooler at DATABASE_URL transactions are {found!r}, at which claims fail where they meet a "
            "lock; run ALTER ROLE ... SET default_transaction_isolation = 'read committed' (or ALTER DATABASE)"
        )
        self.found = found


class SettingInvalid(OutliveError):
    """A setting has a value that it does not accept; the message names both."""


class NameTaken(OutliveError):
    """A tenant of this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a tenant named {name!r} exists; choose another name or use that one")
        self.name = name


class NoSuchTenant(OutliveError):
    """No tenant has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no tenant is named {name!r}; `python -m schema tenant list` shows them all")
        self.name = name


class NoSuchKey(OutliveError):
    """No API key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no key has the id {key_id!r}; `python -m schema key list TENANT` shows them")
        self.key_id = key_id


class LogBroken(OutliveError):
    """A job's log has a hole, which the fence makes impossible: somebody deleted or wrote rows by hand."""

    def __init__(self, job_id: object, expected: int, found: int) -> None:
        super().__init__(
            f"the log of job {job_id} goes on at {found} where {expected} was due; "
            "restore the missing rows of outlive.job_events"
        )
        self.job_id = job_id
        self.expected = expected
        self.found = found
