"""Fences in the caller's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from typing import Any, Callable, Iterator, Tuple

import psycopg
import psycopg2
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
from psycopg.rows import dict_row

import fencepost
import fencepost.aio
from fencepost import _sql
from tests.support import BINARY, Case, new_database


def publish_sql(url: str, statements: str, *words: str) -> int:
    command = [str(BINARY), "run", "nightly", "--", str(BINARY), "publish", "sql", "--url", url, *words]
    return subprocess.run(command, input=statements.encode(), capture_output=True, check=False).returncode


class Sqlite(Case):
    def setUp(self) -> None:
        super().setUp()
        self.db = sqlite3.connect("shop.db")
        self.addCleanup(self.db.close)
        self.db.execute("CREATE TABLE orders (note TEXT)")

    def orders(self) -> str:
        return "".join(note for (note,) in sqlite3.connect("shop.db").execute("SELECT note FROM orders ORDER BY rowid"))

    def test_a_block_is_committed_with_its_fence_and_an_exception_rolls_back(self) -> None:
        with fencepost.run("nightly") as run:
            for note in "ab":
                with run.sqlite(self.db) as db:
                    db.execute("INSERT INTO orders VALUES (?)", (note,))
            with self.assertRaises(KeyError), run.sqlite(self.db) as db:
                db.execute("INSERT INTO orders VALUES ('c')")
                raise KeyError
            self.assertFalse(self.db.in_transaction)
        self.assertEqual(self.orders(), "ab")

    def test_it_is_the_fence_of_publish_sql_with_its_triggers(self) -> None:
        url = f"sqlite:{self.place}/shop.db"
        subprocess.run([str(BINARY), "publish", "sql", "--url", url, "--install", "--protect", "orders"], check=True)
        with self.assertRaises(sqlite3.Error):
            self.db.execute("INSERT INTO orders VALUES ('unfenced')")
        self.db.rollback()
        with fencepost.run("nightly") as run, run.sqlite(self.db) as db:
            db.execute("INSERT INTO orders VALUES ('a')")
        with self.assertRaises(sqlite3.Error):
            self.db.execute("INSERT INTO orders VALUES ('unfenced')")
        self.db.rollback()
        self.assertEqual(publish_sql(url, "INSERT INTO orders VALUES ('b');"), 0)
        self.assertEqual(self.orders(), "ab")

    def test_a_stale_token_is_refused_by_the_session(self) -> None:
        # A refusal that the program swallows still ends the run as fenced.
        with self.assertRaises(fencepost.StaleToken), fencepost.run("nightly") as run:
            with run.sqlite(self.db) as db:
                db.execute("INSERT INTO orders VALUES ('a')")
            fence = (
                '{"v":1,"store":"%s","job":{"name":"nightly"},"token":%d,"seq":1,"run":"%s","digest":"sha256:","at":1,"host":"b"}'
            )
            newer = fence % (run.grant.store, run.token + 1, run.id)
            self.db.execute("UPDATE fencepost_fences SET fence = ?", (newer,))
            self.db.commit()
            with self.assertRaises(fencepost.StaleToken) as caught, run.sqlite(self.db):
                self.fail("the block must not run")
            self.assertEqual((caught.exception.code, caught.exception.reason), (13, "stale"))
            self.assertFalse(self.db.in_transaction)
            self.db.execute("UPDATE fencepost_fences SET fence = 'damaged'")
            self.db.commit()
            with self.assertRaises(fencepost.Error), run.sqlite(self.db):
                self.fail("the block must not run")
        self.assertEqual(run.result.status, "fenced")

    def test_another_job_is_refused(self) -> None:
        with fencepost.run("nightly") as run, run.sqlite(self.db):
            pass
        with self.assertRaises(fencepost.StaleToken) as caught, fencepost.run("other") as run, run.sqlite(self.db):
            self.fail("the block must not run")
        self.assertEqual(caught.exception.reason, "other_lineage")

    def test_the_same_operation_is_applied_once(self) -> None:
        with fencepost.run("nightly") as run:
            with run.sqlite(self.db, op="import") as db:
                db.execute("INSERT INTO orders VALUES ('a')")
            with self.assertRaises(fencepost.AlreadyApplied), run.sqlite(self.db, op="import"):
                self.fail("the block must not run")
        self.assertEqual(self.orders(), "a")

    def test_a_block_that_ends_the_transaction_itself_is_told(self) -> None:
        with fencepost.run("nightly") as run:
            with self.assertRaises(fencepost.UsageError), run.sqlite(self.db) as db:
                db.commit()
            self.assertEqual(self.db.execute("SELECT open FROM fencepost_fences").fetchall(), [(0,)])
            self.db.execute("INSERT INTO orders VALUES ('open')")
            with self.assertRaises(fencepost.UsageError), run.sqlite(self.db):
                self.fail("the block must not run")
            self.db.rollback()

    def test_rows_of_any_kind_are_read(self) -> None:
        self.db.row_factory = lambda cursor, row: {"names": row}
        self.db.text_factory = bytes
        with fencepost.run("nightly") as run:
            for _ in range(2):
                with run.sqlite(self.db):
                    pass
        with fencepost.run("nightly") as run, self.assertRaises(fencepost.UsageError), run.sqlite(sqlite3.connect(":memory:")):
            self.fail("the block must not run")

    def test_asyncio(self) -> None:
        async def work() -> None:
            async with fencepost.aio.run("nightly") as run, run.sqlite(self.db) as db:
                db.execute("INSERT INTO orders VALUES ('a')")

        asyncio.run(work())
        self.assertEqual(self.orders(), "a")


class Postgres(Case):
    def setUp(self) -> None:
        super().setUp()
        self.url = new_database()
        with psycopg.connect(self.url) as connection:
            connection.execute("CREATE TABLE orders (note TEXT)")
        self.engine = sqlalchemy.create_engine(self.url.replace("postgres://", "postgresql+psycopg://"))
        self.addCleanup(self.engine.dispose)

    def install(self, *more: str) -> None:
        command = [str(BINARY), "publish", "sql", "--url", self.url, "--install", *more]
        subprocess.run(command, check=True, capture_output=True)

    def connections(self) -> Iterator[Tuple[Any, Callable[[str], Any]]]:
        """A connection of each kind, with what executes a statement there."""
        one = psycopg.connect(self.url)
        yield one, one.execute
        mapped = psycopg.connect(self.url, row_factory=dict_row)
        yield mapped, mapped.execute
        two = psycopg2.connect(self.url)
        yield two, two.cursor().execute
        cursor = psycopg2.connect(self.url).cursor()
        yield cursor, cursor.execute
        plain = self.engine.connect()
        yield plain, lambda statement: plain.execute(sqlalchemy.text(statement))
        session = sqlalchemy.orm.Session(self.engine)
        yield session, lambda statement: session.execute(sqlalchemy.text(statement))

    def test_each_driver_checks_the_fence_in_its_transaction(self) -> None:
        self.install("--protect", "orders")
        with fencepost.run("nightly") as run:
            for number, (connection, execute) in enumerate(self.connections(), 1):
                with self.subTest(type(connection)):
                    self.assertEqual(run.check_postgres(connection), number)
                    execute("INSERT INTO orders VALUES ('fenced')")
                    getattr(connection, "connection", connection).commit() if hasattr(
                        connection, "fetchone"
                    ) else connection.commit()
            self.assertEqual(run.grant.token, run.token)
        with psycopg.connect(self.url) as connection:
            self.assertEqual(connection.execute("SELECT count(*) FROM orders").fetchone(), (6,))
            with self.assertRaises(psycopg.Error):
                connection.execute("INSERT INTO orders VALUES ('unfenced')")

    def test_an_item_of_work_has_a_fence_of_its_own(self) -> None:
        self.install()
        statement = "INSERT INTO orders VALUES ('fenced')"
        for key in ("invoice/7", "a.b/c:d-e_f", "host-1:8080/x"):
            with fencepost.once(key) as item:
                with psycopg.connect(self.url) as connection:
                    self.assertEqual(item.check_postgres(connection, resource=f"sql:{key}"), 1)
                    connection.execute(statement)
                # The verb reads the same fence.
                item.publish("sql", url=self.url, resource=f"sql:{key}", data=statement)
        # Tokens of two items are not comparable, so items share no fence.
        refused = self.assertRaises(fencepost.StaleToken)
        with refused, fencepost.once("invoice/8") as other, psycopg.connect(self.url) as connection:
            other.check_postgres(connection, resource="sql:invoice/7")
        self.assertEqual(refused.exception.reason, "other_lineage")

    def test_each_driver_says_stale_and_that_the_function_is_missing(self) -> None:
        with fencepost.run("nightly") as old:
            pass
        with fencepost.run("nightly") as run:
            for connection, _ in self.connections():
                with self.subTest(type(connection)), self.assertRaises(fencepost.Error) as caught:
                    run.check_postgres(connection)
                self.assertEqual(caught.exception.reason, "not_installed")
                self.assertRegex(
                    str(caught.exception), r"fencepost publish sql --url postgres://OWNER@127.0.0.1:\d+/shop\d+ --install"
                )
            self.install()
            with psycopg.connect(self.url) as connection:
                run.check_postgres(connection)
            for connection, _ in self.connections():
                with self.subTest(type(connection)), self.assertRaises(fencepost.StaleToken) as refused:
                    _sql.check_postgres(old.grant, connection, {})
                self.assertEqual((refused.exception.code, refused.exception.reason), (13, "stale"))

    def test_a_connection_without_a_transaction_is_refused(self) -> None:
        self.install()
        with fencepost.run("nightly") as run:
            with psycopg.connect(self.url, autocommit=True) as connection:
                with self.assertRaises(fencepost.UsageError):
                    run.check_postgres(connection)
                with connection.transaction():
                    run.check_postgres(connection, op="import")
                with self.assertRaises(fencepost.AlreadyApplied), connection.transaction():
                    run.check_postgres(connection, op="import")
            with (
                self.assertRaises(fencepost.UsageError),
                self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as plain,
            ):
                run.check_postgres(plain)

    def test_asyncio(self) -> None:
        self.install()
        engine = sqlalchemy.ext.asyncio.create_async_engine(self.url.replace("postgres://", "postgresql+psycopg://"))

        async def work() -> None:
            async with fencepost.aio.run("nightly") as run:
                async with await psycopg.AsyncConnection.connect(self.url) as connection:
                    self.assertEqual(await run.check_postgres(connection), 1)
                    await connection.execute("INSERT INTO orders VALUES ('fenced')")
                async with engine.begin() as plain:
                    self.assertEqual(await run.check_postgres(plain), 2)
            await engine.dispose()

        asyncio.run(work())
