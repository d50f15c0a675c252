"""Tells a program what happens to its lease."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable, List, Optional

Callback = Callable[["Signal"], object]


class Signal:
    """Something that happens to a lease at most once: an event to test or wait for, with callbacks.

    A callback is called on a thread of its own, so it may use the run; if the signal has been set already, at once.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: List[Callback] = []
        self.reason: Optional[str] = None
        """The word that says why, once it is set."""
        self.message: Optional[str] = None
        """The same for people."""

    def __bool__(self) -> bool:
        return self._event.is_set()

    def __repr__(self) -> str:
        return f"<Signal {self._name}: {self.message if self else 'not set'}>"

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until it is set, or for `timeout` seconds. Returns whether it is."""
        return self._event.wait(timeout)

    def add_callback(self, callback: Callback) -> Callback:
        """Has `callback` called with this signal. Returns it, so this is also a decorator."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return callback
        self._call(callback)
        return callback

    def fire(self, reason: str, message: str) -> None:
        """Sets it, if it is not set yet. For the package's own use."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason, self.message = reason, message
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callback) -> None:
        # From Python 3.12 on no thread can be started while the interpreter ends.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=callback, args=(self,), name=f"fencepost-{self._name}", daemon=True).start()
