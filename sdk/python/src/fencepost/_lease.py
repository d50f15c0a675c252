"""A lease from its claim to its end, as far as nothing waits: what `fencepost.Run` and `fencepost.aio.Run` have in common."""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
import traceback
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Dict, Generic, Iterator, Mapping, Optional, Tuple, Type, TypeVar, Union

from fencepost import _answers, _session, _terms
from fencepost._answers import Grant, Result
from fencepost._errors import Halted, LeaseLost, NotGranted, Skipped, StoreError, UsageError, error_of
from fencepost._session import Answer, Asked
from fencepost._signal import Signal

S = TypeVar("S", bound=Signal)

# A request has to fit into a line of 4 MiB, with six bytes for a control character. Larger content goes through a file.
INLINE_BYTES_MAX = 256 * 1024

# A record keeps this much of a note.
NOTE_BYTES_MAX = 8 * 1024

# The exit codes of `fencepost once`: 1 says that there was no effect, and above 128 that it is not known.
NO_EFFECT, UNKNOWN_EFFECT = 1, 255

# The exit codes of runs that did not end as the program said, by their reason.
CODES = {"lost": 12, "fenced": 13, "no_output": 18, "timeout": 124}


class Claim:
    """What is claimed: a job or an item of work, with its terms."""

    def __init__(self, request: str, subject: str, terms: Mapping[str, Any]) -> None:
        known = {"claim": _terms.Terms, "once": _terms.ItemTerms}[request]
        _terms.checked({"claim": "run"}.get(request, request), known, terms)
        rest = dict(terms)
        self.request, self.subject = request, subject
        self.place = (rest.pop("store", None), rest.pop("config", None))
        self.on_skip = rest.pop("on_skip", "result")
        if self.on_skip not in ("result", "raise"):
            raise UsageError(f'on_skip is {self.on_skip!r}; it has to be "result" or "raise".')
        named = {"claim": "job", "once": "key"}[request]
        self.fields = {named: subject, **_terms.fields(rest)}


class Lease(Generic[S]):
    """A claim, and what became of it. True if it was granted."""

    def __init__(self, claim: Claim, lost: S, stop: S, no_effect: Tuple[Type[BaseException], ...] = ()) -> None:
        self._claim = claim
        self._lost, self._stop = lost, stop
        self._no_effect = no_effect
        self._pid = os.getpid()
        self._asked: Optional[Asked] = None
        self._grant: Optional[Grant] = None
        self._result: Optional[Result[Any]] = None
        self._deadline = 0.0
        self._was_tested = False
        self._is_begun = self._is_abandoned = False

    # What the program asks about a run.

    def __bool__(self) -> bool:
        self._was_tested = True
        return self._grant is not None

    def __repr__(self) -> str:
        if self._grant is not None:
            return f"<fencepost run of {self._grant.job}, token {self._grant.token}>"
        return f"<fencepost run of {self._claim.subject}: {self._result.status if self._result else 'not claimed'}>"

    @property
    def result(self) -> Result[Any]:
        """Why the run was not granted; after the block, how it ended."""
        self._was_tested = True
        if self._result is None:
            raise UsageError(f"The run of {self._claim.subject} has not ended yet, so it has no result.")
        return self._result

    @property
    def grant(self) -> Grant:
        """Everything that is known of the grant."""
        if self._grant is not None:
            return self._grant
        if self._result is None:
            raise UsageError(f"The run of {self._claim.subject} has not begun. Use it in a `with` block.")
        raise self._not_granted()

    @property
    def job(self) -> str:
        return self.grant.job

    @property
    def id(self) -> str:
        """The id of this run."""
        return self.grant.run

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of the job."""
        return self.grant.token

    @property
    def slot(self) -> datetime:
        """The slot that the work is for; of a job without slots, the time of the claim."""
        return self.grant.slot

    @property
    def date(self) -> str:
        """The day of the slot in the job's time zone."""
        return self.grant.date

    @property
    def trigger(self) -> str:
        """Why it runs: "schedule", "catch_up", "retry" or "manual"."""
        return self.grant.trigger

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt at one slot, on every machine. For the provider of an effect."""
        return self.grant.key

    @property
    def inputs(self) -> Mapping[str, Path]:
        """Where the pinned inputs of each upstream are."""
        return self.grant.inputs

    @property
    def lost(self) -> S:
        """Set when the lease is lost: the program must not write any more."""
        _ = self.grant
        return self._lost

    @property
    def stop(self) -> S:
        """Set when the program is asked to stop: it has the grace to end its block."""
        _ = self.grant
        return self._stop

    def check(self) -> None:
        """Raises `LeaseLost` if the lease is lost. For loops that call nothing else."""
        if self.lost:
            raise self._lease_lost()

    # What the session says.

    def _hear(self, event: Answer) -> None:
        if "remaining_ms" in event and event["event"] == "renewed":
            self._extend(event["remaining_ms"])
        elif event["event"] == "stop":
            self._stop.fire(event["reason"], event["message"])
        elif event["event"] == "lost":
            self._lost.fire(event["reason"], event["message"])

    def _tick(self) -> None:
        if self._grant is not None and _session.now() > self._deadline:
            self._lost.fire("session_silent", "the session has not renewed it in time")

    def _end(self, message: str) -> None:
        self._lost.fire("session_ended", message)

    def _extend(self, remaining_ms: int) -> None:
        self._deadline = _session.now() + remaining_ms / 1000

    # The steps, each without a wait.

    def _open(self) -> None:
        if self._is_begun:
            raise UsageError(f"The run of {self._claim.subject} was begun before. Make a new one for each block.")
        self._is_begun = True

    def _submit_claim(self) -> "Future[Answer]":
        self._asked = _session.ask(self._claim.place, self._claim.request, self, **self._claim.fields)
        if self._is_abandoned:
            self._abandon()
        return self._asked.answer

    def _begin(self, answer: Answer) -> None:
        """Takes the answer to the claim."""
        if answer["answer"] == "granted":
            self._grant = _answers.granted(answer)
            self._extend(self._grant.remaining_ms)
            return
        self._forget()
        # There is nothing to give up.
        self._asked = None
        if answer["answer"] not in ("skipped", "halted"):
            raise error_of(answer)
        self._result = _answers.not_granted(answer)
        if self._claim.on_skip == "raise":
            raise self._not_granted()

    def _abandon(self) -> None:
        """Gives up a claim whose block does not begin. The session cancels it, or releases a lease that it has just granted."""
        # A claim that another thread is still sending is given up there.
        self._is_abandoned = True
        if self._asked is None:
            return
        session, number, future = self._asked
        note = "the program gave up before it began"
        with contextlib.suppress(StoreError):
            session.submit("release", claim=number, outcome="error", note=note, exit_code=NO_EFFECT)
        future.add_done_callback(lambda _: self._forget())

    def _submit(self, request: str, **fields: Any) -> "Future[Answer]":
        """Sends a request about the lease."""
        _ = self.grant
        assert self._asked is not None
        if self._pid != os.getpid():
            raise UsageError(
                f"The run of {self.job} belongs to process {self._pid}, and this is a fork of it. "
                "Leave the writing to that process, or claim another job here."
            )
        if self._lost:
            raise self._lease_lost()
        if self._result is not None:
            raise UsageError(f"The run of {self.job} has ended.")
        return self._asked.session.submit(request, claim=self._asked.number, **fields)

    def _submit_release(self, error: Optional[BaseException]) -> "Optional[Future[Answer]]":
        """Ends the work. None: there is nothing to release."""
        if self._grant is None or self._asked is None or self._pid != os.getpid():
            return None
        try:
            return self._asked.session.submit("release", claim=self._asked.number, **self._outcome(error))
        except StoreError:
            if error is not None:
                return None
            raise self._lease_lost() from None

    def _outcome(self, error: Optional[BaseException]) -> Dict[str, Any]:
        """How the block ended. Without an exception, as the program has recorded it."""
        if error is None or (isinstance(error, SystemExit) and not error.code):
            return {}
        code = NO_EFFECT
        if self._claim.request == "once" and not isinstance(error, self._no_effect):
            code = UNKNOWN_EFFECT
        return {"outcome": "error", "note": last_line(error), "exit_code": code}

    def _finish(self, answer: Answer, error: Optional[BaseException]) -> None:
        """Takes the answer to the release."""
        self._forget()
        if answer["answer"] == "error":
            if error is None:
                raise error_of(answer)
            return
        self._result = Result(answer["status"], answer.get("reason"), answer.get("message"), slot=self.slot)
        if error is None and self._result.reason is not None and self._result.status not in ("ok", "empty"):
            message = self._result.message or f"The run of {self.job} ended as {self._result.status}."
            raise error_of({"code": CODES.get(self._result.reason, 1), "reason": self._result.reason, "message": message})

    def _check_tested(self, error: Optional[BaseException]) -> None:
        """A block that was left as if its work were done, without a lease."""
        if self._grant is None and self._result is not None and not self._was_tested and error is None:
            raise self._not_granted()

    def _forget(self) -> None:
        if self._asked is not None:
            self._asked.session.forget(self._asked.number)

    def _not_granted(self) -> NotGranted:
        assert self._result is not None
        error = (Halted if self._result.halted else Skipped)(
            self._result.message or f"{self._claim.subject} was not granted.",
            reason=self._result.reason,
            next_step="Test the run before its use: if not run: return run.result",
        )
        error.result = self._result
        return error

    def _lease_lost(self) -> LeaseLost:
        return LeaseLost(
            f"The lease of {self.job} is lost: {self._lost.message}.",
            next_step="Stop what you do under this lease, and claim it again.",
        )


def without_run(function: Callable[..., object]) -> inspect.Signature:
    """The signature that callers of a job see. Schedulers and command line libraries look at it."""
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def last_line(error: BaseException) -> str:
    """The last line of an exception, as a traceback ends, without its notes. It fits into a request and into a record."""
    said = traceback.TracebackException(type(error), error, None)
    vars(said)["__notes__"] = None
    line = "".join(said.format_exception_only()).strip().splitlines()[-1]
    return line.encode(errors="replace")[:NOTE_BYTES_MAX].decode(errors="ignore")


@contextlib.contextmanager
def content(fields: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """Moves content that is no text, or too long for a line, into a private file for the time of the request."""
    data: Union[str, bytes, None] = fields.get("data")
    if data is None:
        yield fields
        return
    if "from" in fields:
        raise UsageError("A write takes either data or source_file. Nothing was sent.")
    try:
        raw = data.encode() if isinstance(data, str) else bytes(data)
    except UnicodeEncodeError:
        raise UsageError("The content contains a lone surrogate, which no UTF-8 text has. Nothing was sent.") from None
    text = _text(raw) if len(raw) <= INLINE_BYTES_MAX else None
    if text is not None:
        yield {**fields, "data": text}
        return
    with tempfile.NamedTemporaryFile(prefix="fencepost-") as file:
        file.write(raw)
        file.flush()
        rest = {name: value for name, value in fields.items() if name != "data"}
        yield {**rest, "from": file.name}


def _text(raw: bytes) -> Optional[str]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
