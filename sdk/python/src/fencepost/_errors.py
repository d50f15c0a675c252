"""The exceptions. Each has the exit code that the command line uses for the same failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

if TYPE_CHECKING:
    from fencepost._answers import Result


class Error(Exception):
    """What failed, why, and what to do next.

    `reason` is a word to branch on (docs/reference/reasons.md lists them), `message` and `next_step` are for people.
    """

    code: int = 125
    reason: str = "failed"

    def __init__(
        self,
        message: str,
        *,
        code: Optional[int] = None,
        reason: Optional[str] = None,
        next_step: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}" if self.next_step else self.message


class UsageError(Error):
    """A call that makes no sense: an option that cannot be read, a run that is used after its end."""

    code = 2
    reason = "usage"


class LeaseLost(Error):
    """The lease is not renewed any more, and another run may have it. The program must stop its work and not write."""

    code = 12
    reason = "lost"


class StaleToken(Error):
    """The target refused a write: a newer run has written, or the target belongs to another job or store."""

    code = 13
    reason = "stale"


class UnknownOutcome(Error):
    """An earlier attempt at an item of `once` may have had its effect. `token` is that of the attempt, for `retry_after`."""

    code = 17
    reason = "unknown"
    token: Optional[int] = None


class StoreError(Error):
    """fencepost or its store failed. It is not known as "held" or "done"."""

    code = 125
    reason = "store_failed"


class AlreadyApplied(Error):
    """The very same write was committed before (the same `op`, or mode "once"). The caller rolls back; nothing is left to do."""

    code = 0
    reason = "already_applied"


class NotGranted(Error):
    """A run that was not granted was used, or its block was left without a test of it. `result` says why it was not granted."""

    code = 11
    reason = "held"
    result: "Result[Any]"


class Skipped(NotGranted):
    """There is nothing to do: another run is at it, the slot is done, or none is due."""


class Halted(NotGranted):
    """An upstream is not good, so the work must not begin."""

    code = 15
    reason = "halted"


class ProgramError(Error):
    """The program `fencepost` cannot be used by this package."""

    reason = "program"


class NotFound(ProgramError, FileNotFoundError):
    """There is no program for this platform."""


_BY_CODE = {known.code: known for known in (UsageError, LeaseLost, StaleToken, UnknownOutcome, StoreError)}


def error_of(answer: Mapping[str, Any]) -> Error:
    """The exception for an `error` of the session."""
    code = int(answer["code"])
    error = _BY_CODE.get(code, Error)(
        str(answer["message"]),
        code=code,
        reason=str(answer["reason"]),
        next_step=answer.get("next_step"),
    )
    if isinstance(error, UnknownOutcome):
        error.token = answer.get("token")
    return error
