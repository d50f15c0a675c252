"""The calls that block: `run`, `job`, `once`, `gate`, `record`."""

from __future__ import annotations

import dataclasses
import functools
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, Type, TypeVar, Union

from fencepost import _answers, _session, _sql, _terms
from fencepost._answers import Gate, Published, Result
from fencepost._lease import Claim, Lease, content, without_run
from fencepost._session import answer_of
from fencepost._signal import Signal
from fencepost._terms import AnyPath

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    P = ParamSpec("P")

T = TypeVar("T")


class Run(Lease[Signal]):
    """A run of a job, or an attempt at an item of work, for the time of a `with` block.

    A run that was not granted is falsy. Test it first: `if not run: return run.result`. Every other use raises `NotGranted`,
    and so does leaving the block without a test.
    """

    def __init__(self, claim: Claim, no_effect: Tuple[Type[BaseException], ...] = ()) -> None:
        super().__init__(claim, Signal("lost"), Signal("stop"), no_effect)

    def __enter__(self) -> "Run":
        self._open()
        try:
            self._begin(self._submit_claim().result())
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._check_tested(error)
        released = self._submit_release(error)
        if released is not None:
            self._finish(released.result(), error)

    def _ask(self, request: str, **fields: Any) -> _session.Answer:
        return answer_of(self._submit(request, **fields))

    def publish_file(self, path: AnyPath, data: Union[str, bytes], **write: Unpack[_terms.Write]) -> Published:
        """Replaces a file, if no newer run has written it. Raises `StaleToken` otherwise."""
        _terms.checked("publish_file", _terms.Write, write)
        return self.publish("file", path=path, data=data, **write)

    def publish(self, kind: str, **write: Unpack[_terms.AnyWrite]) -> Published:
        """Writes to a target under the token: "file", "tree", "git", "http", "sql", "redis" or "s3". See docs/publish."""
        _terms.checked("publish", _terms.AnyWrite, write)
        with content(_terms.fields(write)) as fields:
            return _answers.published(self._ask("publish", kind=kind, **fields))

    def ok(self, note: Optional[str] = None, artifacts: Sequence[AnyPath] = ()) -> None:
        """States that the work is done, with the files that it left. The end of the block records it."""
        self._record("ok", note, artifacts)

    def empty(self, note: Optional[str] = None) -> None:
        """States that there was nothing to do, which is no failure. The end of the block records it."""
        self._record("empty", note)

    def error(self, note: Optional[str] = None) -> None:
        """States that the work has failed. The end of the block records it. An exception does the same."""
        self._record("error", note)

    def _record(self, outcome: str, note: Optional[str], artifacts: Sequence[AnyPath] = ()) -> None:
        self._ask("record", outcome=outcome, **_terms.fields({"note": note, "artifacts": artifacts or None}))

    def gate(self, *upstreams: str, **terms: Unpack[_terms.GateTerms]) -> Gate:
        """Asks whether upstreams are good for the slot of this run. What was let through is recorded with it."""
        _terms.checked("gate", _terms.GateTerms, terms)
        return _answers.gated(self._ask("gate", upstreams=list(upstreams), **_terms.fields(terms)))

    def sqlite(self, connection: "_sql.SqliteConnection", **write: Unpack[_sql.SqlWrite]) -> "_sql.SqliteTransaction":
        """A transaction of a `sqlite3` connection that a stale run cannot commit: `with run.sqlite(connection) as db:`."""
        return _sql.SqliteTransaction(self, connection, write)

    def check_postgres(self, connection: Any, **write: Unpack[_sql.SqlWrite]) -> int:
        """Checks the fence in the open transaction of a psycopg or SQLAlchemy connection. Call it first in the transaction.

        Returns how many writes this token has made. Raises `StaleToken` if a newer run has written.
        """
        self.check()
        return _sql.check_postgres(self.grant, connection, write)


def run(job: str, **terms: Unpack[_terms.Terms]) -> Run:
    """Claims a job for the time of a `with` block, and renews its lease meanwhile.

    The end of the block records the outcome and releases the lease in one step; an exception is recorded as `error`.
    """
    return Run(Claim("claim", job, terms))


def once(key: str, *, no_effect: Tuple[Type[BaseException], ...] = (), **terms: Unpack[_terms.ItemTerms]) -> Run:
    """Claims an item of work that is done once, such as "invoice/7". An item that is done is a skip.

    After an exception it is not known whether the effect happened: the next attempt raises `UnknownOutcome`. Exceptions of the
    types `no_effect` say that it did not, and the next attempt does the work.
    """
    return Run(Claim("once", key, terms), no_effect)


def job(name: str, **terms: Unpack[_terms.Terms]) -> Callable[[Callable[Concatenate[Run, P], T]], Callable[P, Result[T]]]:
    """Makes a function a job. It is called with the run as its first argument, only if the run is granted.

    The call returns a `Result`, with what the function returned as its `value`.
    """
    _terms.checked("job", _terms.Terms, terms)

    def decorate(function: Callable[Concatenate[Run, P], T]) -> Callable[P, Result[T]]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result[T]:
            with run(name, **terms) as granted:
                if not granted:
                    return granted.result
                value = function(granted, *args, **kwargs)
            return dataclasses.replace(granted.result, value=value)

        call.__signature__ = without_run(function)  # type: ignore[attr-defined]
        return call

    return decorate


def gate(*upstreams: str, **terms: Unpack[_terms.PlacedGateTerms]) -> Gate:
    """Asks whether upstreams are good: `if not fencepost.gate("reference"): …`."""
    place, fields = _terms.placed("gate", _terms.PlacedGateTerms, terms)
    asked = _session.ask(place, "gate", upstreams=list(upstreams), **fields)
    return _answers.gated(answer_of(asked.answer))


def record(job: str, outcome: str, **terms: Unpack[_terms.RecordTerms]) -> None:
    """Records an outcome of a job by hand: "ok", "empty" or "error"."""
    place, fields = _terms.placed("record", _terms.RecordTerms, terms)
    answer_of(_session.ask(place, "record", job=job, outcome=outcome, **fields).answer)
