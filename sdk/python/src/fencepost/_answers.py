"""What the calls return."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Generic, List, Mapping, Optional, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Result(Generic[T]):
    """How a claim ended: the recorded status of a run, or why there was none."""

    status: str
    """As in the ledger: "ok", "empty", "error", "skipped_overlap", "halted", …"""
    reason: Optional[str] = None
    """The word that says why nothing ran, or why the run did not end as the program said (docs/reference/reasons.md)."""
    message: Optional[str] = None
    """The same, as a sentence for people."""
    granted: bool = True
    """Whether the work was begun."""
    slot: Optional[datetime] = None
    exit_code: Optional[int] = None
    """Of an item of `once` that is done: the code it was done with."""
    value: Optional[T] = None
    """What the function of `fencepost.job` returned."""

    @property
    def skipped(self) -> bool:
        return not self.granted and not self.halted

    @property
    def halted(self) -> bool:
        return self.status == "halted"


@dataclass(frozen=True)
class Published:
    """A fenced write that was accepted."""

    resource: str
    kind: str
    level: str
    """ "atomic": check and write are one step at the target. "gated": something can come between."""
    token: int
    seen: int
    already_applied: bool
    digest: Optional[str]
    remarks: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Upstream:
    """What one upstream says."""

    job: str
    decision: str
    reason: Optional[str] = None
    status: Optional[str] = None
    slot: Optional[datetime] = None


@dataclass(frozen=True)
class Gate:
    """What the upstreams say together. It is true if the work may proceed."""

    decision: str
    """ "proceed", "skip" or "halt"."""
    reason: str
    upstreams: List[Upstream]

    def __bool__(self) -> bool:
        return self.decision == "proceed"


@dataclass(frozen=True)
class Grant:
    """What a lease was granted for."""

    job: str
    run: str
    token: int
    grants: int
    slot: datetime
    date: str
    timezone: str
    trigger: str
    late_seconds: int
    slot_from: Optional[datetime]
    slot_to: Optional[datetime]
    slot_count: Optional[int]
    key: str
    store: str
    host: str
    inputs: Mapping[str, Path]
    ttl_ms: int
    remaining_ms: int


def instant(text: Optional[str]) -> Optional[datetime]:
    """Reads an instant. Python before 3.11 does not know the letter for UTC."""
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))


def granted(answer: Mapping[str, Any]) -> Grant:
    texts = ("job", "run", "date", "timezone", "trigger", "key", "store", "host")
    numbers = ("token", "grants", "late_seconds", "ttl_ms", "remaining_ms")
    plain: Dict[str, Any] = {name: answer[name] for name in (*texts, *numbers)}
    return Grant(
        **plain,
        slot=datetime.fromisoformat(answer["slot"]),
        slot_from=instant(answer.get("slot_from")),
        slot_to=instant(answer.get("slot_to")),
        slot_count=answer.get("slot_count"),
        inputs={name: Path(path) for name, path in answer["inputs"].items()},
    )


def not_granted(answer: Mapping[str, Any]) -> Result[Any]:
    return Result(
        status=answer.get("status", answer["answer"]),
        reason=answer["reason"],
        message=answer["message"],
        granted=False,
        slot=instant(answer.get("slot")),
        exit_code=answer.get("exit_code"),
    )


def published(answer: Mapping[str, Any]) -> Published:
    names = ("resource", "kind", "level", "token", "seen", "already_applied", "digest", "remarks")
    return Published(**{name: answer[name] for name in names})


def gated(answer: Mapping[str, Any]) -> Gate:
    upstreams = [
        Upstream(said["job"], said["decision"], said.get("reason"), said.get("status"), instant(said.get("slot")))
        for said in answer["upstreams"]
    ]
    return Gate(answer["decision"], answer["reason"], upstreams)
