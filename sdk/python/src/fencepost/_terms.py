"""The options of the calls, and how they are written in a request. Their meaning is the session's business."""

from __future__ import annotations

import difflib
import os
from datetime import datetime, timedelta
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Type, TypedDict, Union

from fencepost._errors import UsageError

Duration = Union[str, timedelta]
"""A length of time: "90s", "10m", "1h30m", or a timedelta."""

Moment = Union[str, datetime]
"""A slot: an instant, a local time of the job's zone, or "day", "hour", "minute"."""

AnyPath = Union[str, "os.PathLike[str]"]


class Place(TypedDict, total=False):
    """Where leases are kept."""

    store: str
    """The URL of the store (default: as for the command line)."""
    config: AnyPath
    """The configuration (default: FENCEPOST_CONFIG, or the nearest fencepost.toml)."""


class HoldTerms(Place, total=False):
    """How a lease is held."""

    ttl: Duration
    """How long the lease lasts without a renewal."""
    grace: Duration
    """How long the program has to end once it is asked to stop, or before its lease is lost."""
    timeout: Duration
    """Ask the program to stop if it works longer."""
    wait: Duration
    """How long to wait for the lease if another run holds it."""
    on_skip: str
    """What a skip or a halt is: "result" (the default) or "raise"."""


class Terms(HoldTerms, total=False):
    """The terms of a job: the keys of fencepost.toml, which they take precedence over."""

    now: bool
    """Claim now, for the current slot or before the time of the next."""
    again: bool
    """Repeat the newest slot, or the one of `slot`, although it is done."""
    overlap: str
    """What to do while another run holds the lease: "skip" or "replace"."""
    per_host: bool
    """The job is each host's own."""
    schedule: str
    """When the job is due, in cron's notation or as "every 45m"."""
    every: Duration
    """The job is due this often."""
    timezone: str
    """The time zone of the schedule and of the days that count."""
    slot: Moment
    """The slot."""
    slack: Duration
    """How late a claim may come and be on time."""
    retries: int
    """How many attempts a slot has after its first."""
    on_lost: str
    """What to do about a slot whose run died: "rerun" or "skip"."""
    catch_up: int
    """After a gap, grant at most this many of the newest slots, one per claim."""
    catch_up_within: Duration
    """No slot older than this is caught up."""
    catch_up_mode: str
    """Whether each missed slot is granted, or one grant covers the gap: "each" or "collapse"."""
    catch_up_order: str
    """Which missed slot is granted first: "oldest" or "newest"."""
    needs: Union[str, Sequence[str]]
    """The upstreams: NAME[@RULE][,artifact=PATH][,on-empty=proceed]."""
    needs_wait: Duration
    """How long to wait for upstreams that are not good yet."""
    produces: Union[str, Sequence[str]]
    """The files that the work leaves: PATH[,min-bytes=N]."""
    stuck_after: int
    """Say so when this many good runs in a row have left the same bytes."""
    must_record: bool
    """A run that states no outcome ends as an error."""


class ItemTerms(HoldTerms, total=False):
    """The terms of an item of work that is done once."""

    params: str
    """What it is done with: the same key with another text is refused."""
    on_unknown: str
    """What to do about an item whose last attempt may have had its effect: "halt" (the default) or "retry"."""
    retry_after: int
    """Retry, if no attempt has begun after the one with this token: the program has seen that it had no effect."""


class GateTerms(TypedDict, total=False):
    """How upstreams are asked about."""

    slot: Moment
    """The slot that asks."""
    date: str
    """The day that asks."""
    timezone: str
    wait: Duration
    """How long to wait for upstreams that are not good yet."""
    on_empty_proceed: bool
    """Proceed although an upstream had nothing to do."""


class PlacedGateTerms(Place, GateTerms, total=False):
    """How upstreams are asked about, and where."""


class RecordTerms(Place, total=False):
    """A record by hand."""

    note: str
    artifacts: Sequence[AnyPath]
    slot: Moment
    date: str
    timezone: str
    per_host: bool


class Write(TypedDict, total=False):
    """What every fenced write may say."""

    mode: str
    """How often one token may write: "many" (the default) or "once"."""
    op: str
    """The operation's name: the same name under the same token is the same write."""
    resource: str
    """What `status` calls the target."""
    adopt: bool
    """Take the target over from another store or job."""
    dry_run: bool
    """Say whether it would be accepted, and touch nothing."""
    if_digest: str
    """Write only content with this digest."""
    wait: Duration
    """For files and trees: how long to wait for another write to the same place."""


class AnyWrite(Write, total=False):
    """A write to any target: docs/publish has a page for each."""

    path: AnyPath
    source: AnyPath
    data: Union[str, bytes]
    source_file: AnyPath
    """The file that holds the content, in place of `data`."""
    url: str
    key: str
    repo: AnyPath
    remote: str
    branch: Union[str, Sequence[str]]
    rebase: bool
    method: str
    content_type: str
    cache_control: str
    metadata: Union[str, Sequence[str]]
    header: Union[str, Sequence[str]]
    bearer_file: AnyPath
    keep: int
    timeout: Duration


# Paths are resolved here: the program may have changed its directory since the session began. `artifacts` stay as they are: a
# relative one belongs to the directory of the job.
_PATHS = ("path", "source", "source_file", "repo", "bearer_file")
_LISTS = ("needs", "produces", "branch", "header", "metadata", "upstreams", "artifacts")
_DURATIONS = ("ttl", "grace", "timeout", "wait", "every", "slack", "catch_up_within", "needs_wait")
# The names of fields that are words of Python.
_FIELDS = {"source_file": "from"}


def checked(call: str, known: Type[Any], terms: Mapping[str, Any]) -> None:
    """Refuses options that do not exist, as Python does; a session ignores fields that it does not know."""
    for name in terms:
        if name not in known.__optional_keys__:
            near = difflib.get_close_matches(name, known.__optional_keys__, 1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")


def fields(terms: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields of a request. Options that are None are left out."""
    return {_FIELDS.get(name, name): _written(name, value) for name, value in terms.items() if value is not None}


def _written(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    if isinstance(value, datetime):
        return value.isoformat()
    if name in _DURATIONS and isinstance(value, (int, float)):
        raise UsageError(f'{name} is {value}, which has no unit: write "{value}s", or a timedelta.')
    if name in _PATHS:
        return os.path.abspath(os.fspath(value))
    if name in _LISTS:
        return _listed(value)
    return value


def _listed(value: Any) -> List[str]:
    values = [value] if isinstance(value, (str, os.PathLike)) else value
    return [os.fspath(item) for item in values]


def placed(call: str, known: Type[Any], terms: Mapping[str, Any]) -> Tuple[Tuple[Any, Any], Dict[str, Any]]:
    """The place, and the fields of a request that needs no lease."""
    checked(call, known, terms)
    rest = dict(terms)
    place = (rest.pop("store", None), rest.pop("config", None))
    return place, fields(rest)
