"""The same verbs for asyncio.

>>> async with fencepost.aio.run("nightly", ttl="10m") as run:
...     if not run:
...         return run.result
...     await run.publish_file("out.txt", "the report")
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, Optional, Sequence, Tuple, Type, TypeVar, Union

from fencepost import _answers, _session, _sql, _terms
from fencepost._answers import Gate, Published, Result
from fencepost._lease import Claim, Lease, content, without_run
from fencepost._session import Answer, unless_error
from fencepost._signal import Callback
from fencepost._signal import Signal as _BlockingSignal
from fencepost._terms import AnyPath

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Concatenate, ParamSpec, Unpack

    P = ParamSpec("P")

__all__ = ["Run", "Signal", "gate", "job", "once", "record", "run"]

T = TypeVar("T")


class Signal(_BlockingSignal):
    """A signal whose `wait` is awaited, and whose callbacks are called in the event loop."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loop = asyncio.get_running_loop()

    async def wait(self, timeout: Optional[float] = None) -> bool:  # type: ignore[override]
        """Waits until it is set, or for `timeout` seconds. Returns whether it is."""
        came = asyncio.Event()
        self.add_callback(lambda _: came.set())
        try:
            return await asyncio.wait_for(came.wait(), timeout)
        except asyncio.TimeoutError:
            return self.is_set()

    def _call(self, callback: Callback) -> None:
        # A loop that is closed calls nothing any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, self)


class Run(Lease[Signal]):
    """A run for the time of an `async with` block. As `fencepost.Run`, with `await`.

    With `cancel_on_loss`, the task of the block is cancelled when the lease is lost, and the block ends with `LeaseLost`.
    """

    def __init__(self, claim: Claim, cancel_on_loss: bool = False, no_effect: Tuple[Type[BaseException], ...] = ()) -> None:
        super().__init__(claim, Signal("lost"), Signal("stop"), no_effect)
        self._cancel_on_loss = cancel_on_loss
        self._cancelled: Optional["asyncio.Task[Any]"] = None
        self._is_over = False

    async def __aenter__(self) -> "Run":
        self._open()
        try:
            # Starting a process is the only step that blocks.
            future = await asyncio.get_running_loop().run_in_executor(None, self._submit_claim)
            self._begin(await _answered(future))
        except BaseException:
            self._abandon()
            raise
        if self._cancel_on_loss and self._grant is not None:
            task = asyncio.current_task()
            self._lost.add_callback(lambda _: self._cancel(task))
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._is_over = True
        self._check_tested(error)
        released = self._submit_release(error)
        if released is not None:
            self._finish(await _answered(released), error)
        if self._cancelled is not None and isinstance(error, asyncio.CancelledError):
            # From Python 3.11 on a task counts its cancellations. One that came from outside stays one.
            uncancel = getattr(self._cancelled, "uncancel", None)
            if uncancel is None or uncancel() == 0:
                raise self._lease_lost() from error

    def _cancel(self, task: Optional["asyncio.Task[Any]"]) -> None:
        if task is not None and not self._is_over:
            self._cancelled = task
            task.cancel()

    async def _ask(self, request: str, **fields: Any) -> Answer:
        return unless_error(await _answered(self._submit(request, **fields)))

    async def publish_file(self, path: AnyPath, data: Union[str, bytes], **write: Unpack[_terms.Write]) -> Published:
        """Replaces a file, if no newer run has written it. Raises `StaleToken` otherwise."""
        _terms.checked("publish_file", _terms.Write, write)
        return await self.publish("file", path=path, data=data, **write)

    async def publish(self, kind: str, **write: Unpack[_terms.AnyWrite]) -> Published:
        """Writes to a target under the token: "file", "tree", "git", "http", "sql", "redis" or "s3". See docs/publish."""
        _terms.checked("publish", _terms.AnyWrite, write)
        with content(_terms.fields(write)) as fields:
            return _answers.published(await self._ask("publish", kind=kind, **fields))

    async def ok(self, note: Optional[str] = None, artifacts: Sequence[AnyPath] = ()) -> None:
        """States that the work is done, with the files that it left. The end of the block records it."""
        await self._record("ok", note, artifacts)

    async def empty(self, note: Optional[str] = None) -> None:
        """States that there was nothing to do, which is no failure. The end of the block records it."""
        await self._record("empty", note)

    async def error(self, note: Optional[str] = None) -> None:
        """States that the work has failed. The end of the block records it. An exception does the same."""
        await self._record("error", note)

    async def _record(self, outcome: str, note: Optional[str], artifacts: Sequence[AnyPath] = ()) -> None:
        await self._ask("record", outcome=outcome, **_terms.fields({"note": note, "artifacts": artifacts or None}))

    async def gate(self, *upstreams: str, **terms: Unpack[_terms.GateTerms]) -> Gate:
        """Asks whether upstreams are good for the slot of this run. What was let through is recorded with it."""
        _terms.checked("gate", _terms.GateTerms, terms)
        return _answers.gated(await self._ask("gate", upstreams=list(upstreams), **_terms.fields(terms)))

    def sqlite(self, connection: "_sql.SqliteConnection", **write: Unpack[_sql.SqlWrite]) -> "SqliteTransaction":
        """A transaction of a `sqlite3` connection that a stale run cannot commit: `async with run.sqlite(connection) as db:`."""
        return SqliteTransaction(self, connection, write)

    async def check_postgres(self, connection: Any, **write: Unpack[_sql.SqlWrite]) -> int:
        """Checks the fence in the open transaction of an asynchronous psycopg or SQLAlchemy connection.

        Returns how many writes this token has made. Raises `StaleToken` if a newer run has written.
        """
        self.check()
        values = _sql.check_values(self.grant, write)
        try:
            seq = int(await _first(connection, _sql.CHECK, values))
            _sql.require_transaction(await _first(connection, _sql.IS_OPEN, {}))
            return seq
        except Exception as error:
            _sql.raise_explained(error, connection)
            raise


class SqliteTransaction:
    """A fenced transaction for the time of an `async with` block: committed at its end, rolled back by an exception."""

    def __init__(self, run: Run, connection: "_sql.SqliteConnection", write: _sql.SqlWrite) -> None:
        self._run = run
        self._fenced = _sql.FencedTransaction(connection, write)

    async def __aenter__(self) -> "_sql.SqliteConnection":
        self._run.check()
        fields = self._fenced.begin()
        try:
            self._fenced.admit(await self._run._ask("judge", **fields))
        except BaseException:
            self._fenced.roll_back()
            raise
        return self._fenced.connection

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._fenced.end(self._run, error)


async def _answered(future: "Future[Answer]") -> Answer:
    """Waits for an answer. A task that is cancelled meanwhile does not take the answer away from the lease."""
    return await asyncio.shield(asyncio.wrap_future(future))


async def _first(connection: Any, query: str, values: Any) -> Any:
    if _sql.is_sqlalchemy(connection):
        return (await connection.execute(_sql.sqlalchemy_text(query), values)).scalar()
    async with connection.cursor() as cursor:
        await cursor.execute(query.format("%(", ")s"), values)
        return _sql.only_value(await cursor.fetchone())


def run(job: str, *, cancel_on_loss: bool = False, **terms: Unpack[_terms.Terms]) -> Run:
    """Claims a job for the time of an `async with` block. As `fencepost.run`."""
    return Run(Claim("claim", job, terms), cancel_on_loss)


def once(
    key: str,
    *,
    cancel_on_loss: bool = False,
    no_effect: Tuple[Type[BaseException], ...] = (),
    **terms: Unpack[_terms.ItemTerms],
) -> Run:
    """Claims an item of work that is done once. As `fencepost.once`."""
    return Run(Claim("once", key, terms), cancel_on_loss, no_effect)


def job(
    name: str, *, cancel_on_loss: bool = False, **terms: Unpack[_terms.Terms]
) -> Callable[[Callable[Concatenate[Run, P], Awaitable[T]]], Callable[P, Coroutine[Any, Any, Result[T]]]]:
    """Makes a coroutine function a job. As `fencepost.job`."""
    _terms.checked("job", _terms.Terms, terms)

    def decorate(function: Callable[Concatenate[Run, P], Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, Result[T]]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Result[T]:
            async with run(name, cancel_on_loss=cancel_on_loss, **terms) as granted:
                if not granted:
                    return granted.result
                value = await function(granted, *args, **kwargs)
            return dataclasses.replace(granted.result, value=value)

        call.__signature__ = without_run(function)  # type: ignore[attr-defined]
        return call

    return decorate


async def gate(*upstreams: str, **terms: Unpack[_terms.PlacedGateTerms]) -> Gate:
    """Asks whether upstreams are good. As `fencepost.gate`."""
    place, fields = _terms.placed("gate", _terms.PlacedGateTerms, terms)
    return _answers.gated(await _ask(place, "gate", upstreams=list(upstreams), **fields))


async def record(job: str, outcome: str, **terms: Unpack[_terms.RecordTerms]) -> None:
    """Records an outcome of a job by hand: "ok", "empty" or "error"."""
    place, fields = _terms.placed("record", _terms.RecordTerms, terms)
    await _ask(place, "record", job=job, outcome=outcome, **fields)


async def _ask(place: _session.Place, request: str, **fields: Any) -> Answer:
    def submit() -> "Future[Answer]":
        return _session.ask(place, request, **fields).answer

    future = await asyncio.get_running_loop().run_in_executor(None, submit)
    return unless_error(await _answered(future))
