"""What the tests have in common: a place of their own, real servers on loopback, and programs in processes of their own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import psycopg

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "sdk/python/src"
BINARY = Path(os.environ.get("FENCEPOST_BIN") or ROOT / "target/debug/fencepost").resolve()
PATIENCE_SECONDS = 30.0


def wait_for(what: str, is_so: Callable[[], Any], patience: float = PATIENCE_SECONDS) -> None:
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > patience:
            raise AssertionError(f"{what}: not within {patience} s")
        time.sleep(0.02)


class Case(unittest.TestCase):
    """A test with a store, a state directory and a working directory of its own."""

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="fencepost-py-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        state = self.place / "state"
        state.mkdir(mode=0o700)
        self.set_variables(
            FENCEPOST_BIN=str(BINARY),
            FENCEPOST_STATE_DIR=str(state),
            FENCEPOST_CONFIG="",
            FENCEPOST_STORE=self.store_url(),
            PYTHONPATH=str(SOURCES),
        )
        before = os.getcwd()
        os.chdir(self.place)
        self.addCleanup(os.chdir, before)

    def store_url(self) -> Optional[str]:
        """The store of this case. None: the embedded one."""
        return None

    def set_variables(self, **variables: Optional[str]) -> None:
        """Sets variables for the rest of the test. None removes one."""
        for name, value in variables.items():
            self.addCleanup(_set, name, os.environ.get(name))
            _set(name, value)

    def command(self, *words: str) -> Any:
        """The answer of the command line."""
        said = subprocess.run([str(BINARY), *words, "--json"], capture_output=True, text=True, check=False)
        self.assertIn(said.returncode, (0, 1), said.stderr)
        return json.loads(said.stdout)

    def runs(self, job: str) -> List[Dict[str, Any]]:
        """The recorded runs of a job, newest first."""
        said = subprocess.run([str(BINARY), "runs", job, "--json"], capture_output=True, text=True, check=True)
        return [json.loads(line) for line in said.stdout.splitlines()]

    def program(self, text: str, *words: str, **options: Any) -> "Program":
        """Starts a Python program."""
        path = self.place / f"program{len(list(self.place.glob('program*.py')))}.py"
        path.write_text("import fencepost, os, sys, time, signal\n" + textwrap.dedent(text))
        program = Program([sys.executable, str(path), *words], **options)
        self.addCleanup(program.end)
        return program


class Program(subprocess.Popen[str]):
    """A program whose lines are read one by one."""

    def __init__(self, command: List[str], **options: Any) -> None:
        pipe = subprocess.PIPE
        super().__init__(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, **options)

    def says(self, expected: str) -> None:
        """Reads its next line."""
        assert self.stdout is not None and self.stderr is not None
        line = self.stdout.readline().rstrip("\n")
        if line != expected:
            rest = "" if self.poll() is None and line else self.stderr.read()
            raise AssertionError(f"{line!r} instead of {expected!r}\n{rest}")

    def reads(self) -> str:
        assert self.stdout is not None
        return self.stdout.readline().rstrip("\n")

    def tell(self, line: str = "") -> None:
        assert self.stdin is not None
        self.stdin.write(line + "\n")

    def session(self) -> int:
        """The process of its session."""
        found = [pid for pid in _all_children(self.pid) if b"session" in _command_line(pid)]
        assert len(found) == 1, found
        return found[0]

    def end(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
            self.kill()
        self.communicate()


def _all_children(pid: int) -> List[int]:
    """Children of any thread: a child belongs to the thread that started it."""
    found: List[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _set(name: str, value: Optional[str]) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _own_directory() -> Path:
    """A directory for a server, which does not run as root: in memory, where it flushes quickly."""
    memory = Path("/dev/shm")
    in_memory = memory if memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30 else None
    place = Path(tempfile.mkdtemp(prefix="fencepost-server-", dir=in_memory))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(place, user.pw_uid, user.pw_gid)
    return place


def _unprivileged(*command: str) -> List[str]:
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]


def _serve(command: List[str], place: Path, port: int, end_by: signal.Signals) -> None:
    """Starts a server, which ends with the tests, and waits until it listens."""
    with open(place / "log", "wb") as log:
        server = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)

    def end() -> None:
        server.send_signal(end_by)
        server.wait(PATIENCE_SECONDS)

    atexit.register(end)
    wait_for(f"{command} listens", lambda: _listens(port) or server.poll() is not None)
    if server.poll() is not None:
        raise AssertionError((place / "log").read_text())


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def redis_store() -> str:
    """The URL of a new store."""
    return f"{_redis_server()}/{next(_numbers)}"


@functools.cache
def _redis_server() -> str:
    place, port = _own_directory(), free_port()
    options = ["--databases", "1000", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), *options]
    _serve(_unprivileged(*command), place, port, signal.SIGTERM)
    return f"redis://127.0.0.1:{port}"


@functools.cache
def _postgres_server() -> int:
    """The port of a server whose user `fencepost` needs no password."""
    place, port = _own_directory(), free_port()
    newest = max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None)
    programs = str(newest.parent) + "/" if newest else ""
    make = [f"{programs}initdb", "-U", "fencepost", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-D", "data"]
    environment = {**os.environ, "HOME": str(place)}
    subprocess.run(_unprivileged(*make), cwd=place, env=environment, stdout=subprocess.DEVNULL, check=True)
    serve = [f"{programs}postgres", "-D", "data", "-k", str(place), "-h", "127.0.0.1", "-p", str(port)]
    _serve(_unprivileged(*serve), place, port, signal.SIGQUIT)
    return port


def new_database() -> str:
    """The URL of a new database."""
    server = f"postgres://fencepost@127.0.0.1:{_postgres_server()}"
    name = f"shop{next(_numbers)}"

    def is_made() -> bool:
        try:
            with psycopg.connect(f"{server}/postgres?sslmode=disable", autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}".encode())
        except psycopg.OperationalError:
            return False  # It still starts.
        return True

    wait_for("the database is made", is_made)
    return f"{server}/{name}?sslmode=disable"


_numbers = iter(range(1, 1000))
