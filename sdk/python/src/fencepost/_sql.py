"""Fences in the caller's own transaction: sqlite3, and PostgreSQL through psycopg or SQLAlchemy.

The rule is not here. For SQLite the session judges the fence; for PostgreSQL the function `fencepost_check` does, see
docs/publish/sql.md.
"""

from __future__ import annotations

import importlib
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Protocol, Tuple, Type, TypedDict

from fencepost import _terms
from fencepost._answers import Grant
from fencepost._errors import AlreadyApplied, Error, StaleToken, StoreError, UsageError

if TYPE_CHECKING:
    import sqlite3

    SqliteConnection = sqlite3.Connection


class SqlWrite(TypedDict, total=False):
    """What a transaction may say to its fence."""

    resource: str
    """The key of the fence: the same for all that must be fenced against each other (default: "sql:" and the database's name)."""
    mode: str
    """How often one token may write: "many" (the default) or "once"."""
    op: str
    """The operation's name: the same name under the same token is the same write."""
    digest: str
    """The digest of the write, as "sha256:…"."""


# SQLite. The table is that of `fencepost publish sql`: `open` is 1 only inside a transaction that has passed the fence, which is
# what the triggers of `--install --protect` look at.

TABLE = """CREATE TABLE IF NOT EXISTS main.fencepost_fences (
    resource TEXT NOT NULL PRIMARY KEY,
    fence TEXT NOT NULL,
    open INTEGER NOT NULL DEFAULT 0
)"""
STORED = "SELECT CAST(fence AS TEXT) FROM main.fencepost_fences WHERE resource = ?"
PUT = """INSERT INTO main.fencepost_fences (resource, fence, open) VALUES (?, ?, 1)
    ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence, open = 1"""
CLOSE = "UPDATE main.fencepost_fences SET open = 0 WHERE resource = ?"


class FencedTransaction:
    """The steps of a fenced transaction in SQLite, apart from the question to the session."""

    def __init__(self, connection: "SqliteConnection", write: SqlWrite) -> None:
        _terms.checked("sqlite", SqlWrite, write)
        self.connection = connection
        self._write = write
        self._resource = ""
        self._fence = ""

    def begin(self) -> Dict[str, Any]:
        """Locks the database and reads the fence. Returns the fields of the request that judges it."""
        if self.connection.in_transaction:
            raise UsageError(
                "The connection is in a transaction already, so its lock and the fence would be read too late.",
                next_step="Commit or roll back first. A connection with autocommit=False always is in one: use another.",
            )
        self.connection.execute("BEGIN IMMEDIATE")
        self._resource = self._write.get("resource") or self._default_resource()
        self.connection.execute(TABLE)
        fields = {**self._write, "resource": self._resource, "fence": self._stored()}
        return {name: value for name, value in fields.items() if value is not None}

    def admit(self, judged: Mapping[str, Any]) -> None:
        """Writes the fence that the session returned."""
        if judged["already_applied"]:
            raise AlreadyApplied(f"{self._resource}: this write was applied before. The transaction was rolled back.")
        self._fence = str(judged["fence"])
        self.connection.execute(PUT, (self._resource, self._fence))

    def _commit(self) -> None:
        if not self.connection.in_transaction or self._stored() != self._fence:
            if not self.connection.in_transaction:
                self.connection.execute(CLOSE, (self._resource,))
                self.connection.commit()
            raise UsageError(
                "The block ended the transaction or changed the fence, so it is not known what it wrote under the fence.",
                next_step="Leave COMMIT, ROLLBACK, executescript() and the table fencepost_fences to `run.sqlite`.",
            )
        self.connection.execute(CLOSE, (self._resource,))
        self.connection.commit()

    def end(self, run: "Checked", error: Optional[BaseException]) -> None:
        """Commits after a block without an exception, if the lease is not lost. Otherwise rolls back."""
        try:
            if error is None:
                run.check()
                self._commit()
        finally:
            self.roll_back()

    def roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.rollback()

    def _default_resource(self) -> str:
        files = {name: file for _, name, file in self._rows("PRAGMA database_list")}
        if not files.get("main"):
            raise UsageError("A database in memory has no name. Pass resource=…")
        return f"sql:{os.path.basename(os.path.realpath(files['main']))}"

    def _stored(self) -> Optional[str]:
        found = [fence for (fence,) in self._rows(STORED, (self._resource,))]
        return found[0] if found else None

    def _rows(self, query: str, values: Tuple[str, ...] = ()) -> Iterator[Tuple[Any, ...]]:
        """Rows as plain texts, however the connection makes its own."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
        for row in cursor.execute(query, values).fetchall():
            yield tuple(value.decode() if isinstance(value, bytes) else value for value in row)


class Checked(Protocol):
    """A run that raises if its lease is lost."""

    def check(self) -> None: ...


class _BlockingRun(Checked, Protocol):
    def _ask(self, request: str, **fields: Any) -> Mapping[str, Any]: ...


class SqliteTransaction:
    """A fenced transaction for the time of a `with` block: committed at its end, rolled back by an exception."""

    def __init__(self, run: _BlockingRun, connection: "SqliteConnection", write: SqlWrite) -> None:
        self._run = run
        self._fenced = FencedTransaction(connection, write)

    def __enter__(self) -> "SqliteConnection":
        self._run.check()
        fields = self._fenced.begin()
        try:
            self._fenced.admit(self._run._ask("judge", **fields))
        except BaseException:
            self._fenced.roll_back()
            raise
        return self._fenced.connection

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._fenced.end(self._run, error)


# PostgreSQL.

CHECK = """SELECT public.fencepost_check(
    coalesce(CAST({0}resource{1} AS text), 'sql:' || current_database()), {0}store{1}, {0}job{1}, CAST({0}token{1} AS bigint),
    {0}run{1}, {0}mode{1}, CAST({0}op{1} AS text), CAST({0}digest{1} AS text), {0}host{1})"""
# After the check its transaction has a number. In a new transaction there is none: the connection commits each statement.
IS_OPEN = "SELECT txid_current_if_assigned() IS NOT NULL"

REFUSALS = {"ZF001": "stale", "ZF002": "spent", "ZF003": "other_run", "ZF004": "other_lineage"}


def check_postgres(grant: Grant, connection: Any, write: SqlWrite) -> int:
    values = check_values(grant, write)
    try:
        seq = int(_first(connection, CHECK, values))
        require_transaction(_first(connection, IS_OPEN, {}))
        return seq
    except Exception as error:
        raise_explained(error, connection)
        raise


def check_values(grant: Grant, write: SqlWrite) -> Dict[str, Any]:
    """The values of the check."""
    _terms.checked("check_postgres", SqlWrite, write)
    said = {"resource": None, "mode": "many", "op": None, "digest": None, **write}
    return {**said, "store": grant.store, "job": grant.job, "token": grant.token, "run": grant.run, "host": grant.host}


def _first(connection: Any, query: str, values: Dict[str, Any]) -> Any:
    """The first value of the answer, through SQLAlchemy or through a driver of Python's database API."""
    if is_sqlalchemy(connection):
        return connection.execute(sqlalchemy_text(query), values).scalar()
    if not hasattr(connection, "cursor"):
        connection.execute(query.format("%(", ")s"), values)
        return only_value(connection.fetchone())
    with connection.cursor() as cursor:
        cursor.execute(query.format("%(", ")s"), values)
        return only_value(cursor.fetchone())


def is_sqlalchemy(connection: Any) -> bool:
    return any(kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__)


def sqlalchemy_text(query: str) -> Any:
    return importlib.import_module("sqlalchemy").text(query.format(":", ""))


def only_value(row: Any) -> Any:
    """The only value of a row, which is a tuple or, with some settings of the drivers, a mapping."""
    return next(iter(row.values())) if isinstance(row, Mapping) else row[0]


def require_transaction(is_open: bool) -> None:
    if not is_open:
        raise UsageError(
            "The connection commits each statement by itself, so the check protects nothing that follows.",
            next_step="Begin a transaction first, or use a connection without autocommit.",
        )


def raise_explained(error: Exception, connection: Any) -> None:
    """Raises what the database refused as this package's exception. Returns if it was something else."""
    state = _state(error)
    said = str(getattr(error, "orig", None) or error).strip().split("\n")[0].replace("ERROR:  ", "")
    if state in REFUSALS:
        step = "Roll the transaction back, and stop: a newer run writes now."
        raise StaleToken(f"{said}.", reason=REFUSALS[state], next_step=step) from error
    if state == "ZF000":
        raise AlreadyApplied(f"{said}.", next_step="Roll the transaction back: nothing is left to do.") from error
    if state == "ZF005":
        raise StoreError(f"{said}.", reason="unreadable", next_step="Restore the fence together with the data.") from error
    if state == "42883":
        step = f"Install it, as the owner of the database: fencepost publish sql --url {_url(connection)} --install"
        raise Error("The database has no function fencepost_check.", reason="not_installed", next_step=step) from error
    if state == "42501":
        step = "Its owner runs: GRANT EXECUTE ON FUNCTION public.fencepost_check TO the role of this connection"
        raise Error(f"{said}.", reason="not_permitted", next_step=step) from error
    if state == "22023":
        raise UsageError(f"{said}.") from error


def _state(error: Any) -> Optional[str]:
    """The SQLSTATE, by the names that the drivers have for it."""
    error = getattr(error, "orig", None) or error
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _url(connection: Any) -> str:
    """Where the database is, without a user and a password."""
    try:
        if is_sqlalchemy(connection):
            url = connection.get_bind().engine.url if hasattr(connection, "get_bind") else connection.engine.url
            host, port, name = url.host, url.port, url.database
        else:
            info = getattr(connection, "connection", connection).info
            host, port, name = info.host, info.port, info.dbname
    except Exception:
        return "postgres://OWNER@HOST/DATABASE"
    return f"postgres://OWNER@{host or ''}{f':{port}' if port else ''}/{name}"
