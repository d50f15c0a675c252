"""The process `fencepost session`, which holds the leases of this program and renews them.

It is another process: Python's lock, a long computation or a stalled thread never delays a renewal. Two threads serve it here.
The writer sends lines, so that Ctrl-C cannot tear one. The reader hands each answer to its `Future` and each event to its lease,
and ends a session that no longer answers. So every wait ends: with an answer, or with the end of the session.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import queue
import select
import subprocess
import tempfile
import threading
import time
from concurrent.futures import Future
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Tuple, cast

from fencepost._binary import PROTOCOL, binary_path, unfit
from fencepost._errors import StoreError, UsageError, error_of
from fencepost._version import __version__

Answer = Mapping[str, Any]

TICK_SECONDS = 0.5
# A session that says nothing for this many ticks is asked for a sign of life while calls wait, and killed after as many more.
# They are counted rather than timed: a program that was itself stopped for an hour counts one.
SILENT_TICKS = 20
FAREWELL_SECONDS = 2.0
# The most bytes that the session takes in one line.
LINE_BYTES_MAX = 4 * 1024 * 1024
CLOCK = getattr(time, "CLOCK_BOOTTIME", None) or getattr(time, "CLOCK_MONOTONIC_RAW", None) or time.CLOCK_MONOTONIC


def now() -> float:
    """Seconds on a clock that also runs while the machine sleeps."""
    return time.clock_gettime(CLOCK)


class Listener(Protocol):
    """What a lease hears of its session."""

    def _hear(self, event: Answer) -> None:
        """Something happened to the lease."""

    def _tick(self) -> None:
        """The session has said nothing for a moment."""

    def _end(self, message: str) -> None:
        """The session has ended."""


class Session:
    """A session of this process."""

    def __init__(self, path: str, variables: Mapping[str, str]) -> None:
        self.pid = os.getpid()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: Dict[int, "Future[Answer]"] = {}
        self._listeners: Dict[int, Listener] = {}
        self._ended: Optional[str] = None
        self._how = ""
        self._unread: Optional[str] = None
        self._finished = threading.Event()
        self._lines: "queue.SimpleQueue[Optional[bytes]]" = queue.SimpleQueue()
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the session
        self._process = self._start([path, "session"], {**os.environ, **variables})
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"fencepost-{work.__name__.strip('_')}", daemon=True).start()
        self._greet(path)

    def _start(self, command: List[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._complaints, env=environment, bufsize=0)
        except OSError as error:
            raise unfit(command[0], f"it cannot be executed: {error.strerror}") from error

    def _greet(self, path: str) -> None:
        """Compares the versions, before anything is asked."""
        try:
            hello = self.submit("hello", client=f"python {__version__}").result()
        except StoreError:
            raise unfit(path, f"its session ended at once ({self._how})") from None
        if hello.get("answer") != "hello" or hello["protocol"] != PROTOCOL:
            self.close()
            raise unfit(path, f"it speaks version {hello.get('protocol', 'unknown')}")

    @property
    def is_open(self) -> bool:
        return self._ended is None and self.pid == os.getpid()

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._pending and not self._listeners

    def submit(self, request: str, listener: Optional[Listener] = None, **fields: Any) -> "Future[Answer]":
        """Sends a request. A claim has a listener, which hears of its lease until `forget`."""
        return self.submit_as(next(self._ids), request, listener, **fields)

    def next_id(self) -> int:
        return next(self._ids)

    def submit_as(self, number: int, request: str, listener: Optional[Listener] = None, **fields: Any) -> "Future[Answer]":
        line = _line(number, request, fields)
        future: "Future[Answer]" = Future()
        with self._lock:
            if self._ended is not None:
                raise StoreError(self._ended, reason="session_ended")
            self._pending[number] = future
            if listener is not None:
                self._listeners[number] = listener
        self._lines.put(line)
        return future

    def forget(self, number: int) -> None:
        """The lease of this claim has ended."""
        with self._lock:
            self._listeners.pop(number, None)

    def close(self) -> None:
        """Ends the input. The session answers what was asked, and ends; leases that are held expire."""
        self._lines.put(None)

    def join(self) -> None:
        """Waits a moment for the end. A session whose last request takes longer ends by itself."""
        self._finished.wait(FAREWELL_SECONDS)

    def disown(self) -> None:
        """In a child after a fork: lets go of the pipes, so that the session ends with the parent."""
        for pipe in (self._process.stdin, self._process.stdout):
            cast(IO[bytes], pipe).close()

    def _write(self) -> None:
        pipe = cast(IO[bytes], self._process.stdin)
        with pipe:
            for line in iter(self._lines.get, None):
                try:
                    rest = memoryview(line)
                    while rest:
                        rest = rest[os.write(pipe.fileno(), rest) :]
                except OSError:
                    return  # The session has ended; the reader notices.

    def _read(self) -> None:
        pipe = cast(IO[bytes], self._process.stdout)
        readable = select.poll()
        readable.register(pipe.fileno(), select.POLLIN)
        rest, silent = b"", 0
        try:
            while True:
                if not readable.poll(TICK_SECONDS * 1000):
                    silent = self._watch(silent + 1)
                    continue
                chunk = os.read(pipe.fileno(), 1 << 16)
                if not chunk:
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                silent = 0
                for line in lines:
                    self._take(line)
        finally:
            pipe.close()
            self._finish()

    def _watch(self, silent: int) -> int:
        """Looks after a session that says nothing. Returns for how many ticks it does."""
        with self._lock:
            listeners, is_awaited = list(self._listeners.values()), bool(self._pending)
        for listener in listeners:
            listener._tick()
        if not is_awaited:
            return 0
        if silent == SILENT_TICKS:
            self.submit("hello")
        elif silent >= 2 * SILENT_TICKS:
            # It holds nothing open and releases nothing: its leases end by their time-to-live.
            self._process.kill()
        return silent

    def _take(self, line: bytes) -> None:
        said: Answer = json.loads(line)
        if "answer" in said and said.get("id") is None:
            # It could not read a request, and it is not known which one waits in vain. The end of the session answers all.
            self._unread = said.get("message")
            self._process.kill()
            return
        with self._lock:
            future = self._pending.pop(said.get("id", 0), None)
            listener = self._listeners.get(said.get("claim", 0))
        if "event" in said and listener is not None:
            listener._hear(said)
        elif future is not None and future.set_running_or_notify_cancel():
            future.set_result(said)

    def _finish(self) -> None:
        try:
            code = self._process.wait(FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"signal {-code}" if code < 0 else f"exit {code}"
        why = f"it could not read a request: {self._unread}" if self._unread else f"{how}{self._said()}"
        self._how = why.rstrip(".")
        message = f"The session that holds the leases has ended ({self._how}). Its leases end by their time-to-live."
        with self._lock:
            self._ended = message
            pending, self._pending = list(self._pending.values()), {}
            listeners, self._listeners = list(self._listeners.values()), {}
        self._lines.put(None)
        for listener in listeners:
            listener._end(message)
        self._finished.set()
        for future in pending:
            if future.set_running_or_notify_cancel():
                future.set_exception(StoreError(f"{message} It is not known what became of the request.", reason="session_ended"))

    def _said(self) -> str:
        """What it complained about, in short."""
        with self._complaints as file:
            file.seek(0)
            words = file.read(1000).decode(errors="replace").split()
        return f": {' '.join(words)}" if words else ""


def _line(number: int, request: str, fields: Mapping[str, Any]) -> bytes:
    """A request as the session reads it. What it could not read is refused here: its answer would name no request."""
    for name, value in fields.items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise _unsent(f"{request}: {name} is a number of more than 64 bits.")
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            raise _unsent(f"{request}: {name} contains a lone surrogate (a file name that is not UTF-8?).") from None
        except ValueError as error:
            raise _unsent(f"{request}: {name} cannot be sent: {error}.") from None
    line = json.dumps({"id": number, "request": request, **fields}, ensure_ascii=False).encode()
    if len(line) > LINE_BYTES_MAX:
        raise _unsent(f"{request}: the request has {len(line)} bytes, and may have {LINE_BYTES_MAX}.")
    return line + b"\n"


def _unsent(message: str) -> UsageError:
    return UsageError(message, next_step="Nothing was sent.")


def answer_of(future: "Future[Answer]") -> Answer:
    """Waits for an answer, and raises it if it is an error."""
    return unless_error(future.result())


def unless_error(answer: Answer) -> Answer:
    if answer["answer"] == "error":
        raise error_of(answer)
    return answer


Place = Tuple[Optional[str], Optional[Any]]
"""The store and the configuration, where the program names them."""

Key = Tuple[str, str, Tuple[Tuple[str, str], ...]]

_sessions: Dict[Key, Session] = {}
_sessions_lock = threading.Lock()


def ask(place: Place, request: str, listener: Optional[Listener] = None, **fields: Any) -> "Asked":
    """Asks the session for a place: the one that this process has, or a new one.

    What a session finds by itself depends on its directory and its environment, so these are a part of the place.
    """
    path, variables = binary_path(), _variables(place)
    known_by = (path, os.getcwd(), tuple(sorted(variables.items())))
    with _sessions_lock:
        for key, known in list(_sessions.items()):
            if not known.is_open:
                del _sessions[key]
            elif key != known_by and known.is_idle:
                _sessions.pop(key).close()
        if known_by not in _sessions:
            _sessions[known_by] = Session(path, variables)
        # Still under the lock: a session with a request is not idle, and is not closed.
        session = _sessions[known_by]
        number = session.next_id()
        return Asked(session, number, session.submit_as(number, request, listener, **fields))


class Asked(NamedTuple):
    """A request that was sent, and the future of its answer."""

    session: Session
    number: int
    answer: "Future[Answer]"


def _variables(place: Place) -> Dict[str, str]:
    """The variables of a session. A store's URL may contain a password, and process lists show arguments."""
    store, config = place
    variables = {name: value for name, value in os.environ.items() if name.startswith("FENCEPOST_")}
    if store is not None:
        variables["FENCEPOST_STORE"] = store
    if config is not None:
        variables["FENCEPOST_CONFIG"] = os.path.abspath(os.fspath(config))
    return variables


@atexit.register
def _close_all() -> None:
    open_ones = [known for known in list(_sessions.values()) if known.is_open]
    for known in open_ones:
        known.close()
    for known in open_ones:
        known.join()


def _disown_all() -> None:
    """A forked child has neither the threads nor the leases of its parent. It begins anew."""
    global _sessions_lock
    _sessions_lock = threading.Lock()
    for known in _sessions.values():
        known.disown()
    _sessions.clear()


os.register_at_fork(after_in_child=_disown_all)
