"""Programs that are stopped, killed, forked or busy, and sessions that die. Every program is a process of its own."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import psycopg

import fencepost
from tests.support import BINARY, Case, is_running, new_database, wait_for

HOLDS = """
with fencepost.run("nightly", ttl=sys.argv[1]) as run:
    print(bool(run), flush=True)
    sys.stdin.readline()
"""


class Zombies(Case):
    """A program that sleeps past its deadline together with its session, while another run takes over."""

    def test_its_writes_are_refused_and_its_signal_has_fired(self) -> None:
        database = new_database()
        install = [str(BINARY), "publish", "sql", "--url", database, "--install"]
        subprocess.run(install, check=True, capture_output=True)
        sqlite3.connect("shop.db").execute("CREATE TABLE orders (note TEXT)")
        zombie = self.program(ZOMBIE, database)
        zombie.says("working")
        session = zombie.session()
        for pid in (zombie.pid, session):
            os.kill(pid, signal.SIGSTOP)
        with fencepost.run("nightly", ttl="30s", wait="30s") as run:
            run.publish_file("out.txt", "new")
            with run.sqlite(sqlite3.connect("shop.db")) as db:
                db.execute("INSERT INTO orders VALUES ('new')")
            with psycopg.connect(database) as connection:
                run.check_postgres(connection)
        for pid in (session, zombie.pid):
            os.kill(pid, signal.SIGCONT)
        zombie.tell()
        zombie.says("signal: True, callback: True")
        for name in ("publish", "sqlite", "postgres"):
            zombie.says(f"{name}: LeaseLost")
        zombie.says("postgres itself: StaleToken stale")
        zombie.says("block: LeaseLost")
        self.assertEqual(Path("out.txt").read_text(), "new")
        self.assertEqual(sqlite3.connect("shop.db").execute("SELECT note FROM orders").fetchall(), [("new",)])


ZOMBIE = """
import sqlite3, psycopg
from fencepost import _sql

def attempt(name, call):
    try:
        call()
        print(name, "was not refused", flush=True)
    except fencepost.Error as error:
        print(f"{name}: {type(error).__name__}", flush=True)

def write_sqlite():
    with run.sqlite(sqlite3.connect("shop.db")) as db:
        db.execute("INSERT INTO orders VALUES ('old')")

called = []
try:
    with fencepost.run("nightly", ttl="1500ms") as run:
        run.lost.add_callback(called.append)
        print("working", flush=True)
        sys.stdin.readline()
        fired = run.lost.wait(10)
        time.sleep(0.1)
        print(f"signal: {fired}, callback: {called == [run.lost]}", flush=True)
        attempt("publish", lambda: run.publish_file("out.txt", "old"))
        attempt("sqlite", write_sqlite)
        connection = psycopg.connect(sys.argv[1])
        attempt("postgres", lambda: run.check_postgres(connection))
        try:
            # As if the program had not been told: the fence is in the database.
            _sql.check_postgres(run.grant, connection, {})
        except fencepost.StaleToken as error:
            print("postgres itself: StaleToken", error.reason, flush=True)
except fencepost.LeaseLost:
    print("block: LeaseLost", flush=True)
"""


class Races(Case):
    def test_one_of_32_processes_wins(self) -> None:
        racer = """
        print("ready", flush=True)
        sys.stdin.readline()
        with fencepost.run("nightly", slot="2026-11-18T07:00:00Z") as run:
            if run:
                with open("winners", "a") as file:
                    print(run.token, file=file)
                time.sleep(0.2)
        print(run.result.status, flush=True)
        """
        racers = [self.program(racer) for _ in range(32)]
        for program in racers:
            program.says("ready")
        for program in racers:
            program.tell()
        statuses = sorted(program.communicate()[0].strip() for program in racers)
        self.assertEqual((statuses.count("ok"), len(Path("winners").read_text().splitlines())), (1, 1), statuses)
        self.assertLessEqual(set(statuses), {"ok", "skipped_overlap", "skipped_duplicate"})


class Deaths(Case):
    def test_a_killed_interpreter_leaves_nothing_behind(self) -> None:
        program = self.program(HOLDS, "1500ms")
        program.says("True")
        session = program.session()
        program.kill()
        wait_for("the session ends with its program", lambda: not is_running(session))
        # It was not released: children of the program might still be at work.
        with fencepost.run("nightly") as run:
            self.assertFalse(run)
        with fencepost.run("nightly", wait="20s") as run:
            self.assertTrue(run)

    def test_the_end_of_the_interpreter_ends_the_session(self) -> None:
        program = self.program(
            """
            import threading
            granted = threading.Event()
            def work():
                with fencepost.run("nightly", ttl="1m"):
                    granted.set()
                    time.sleep(600)
            threading.Thread(target=work, daemon=True).start()
            granted.wait()
            from fencepost import _session
            print(next(iter(_session._sessions.values()))._process.pid, flush=True)
            """
        )
        session = int(program.reads())
        self.assertEqual(program.wait(20), 0)
        assert program.stderr is not None
        self.assertEqual(program.stderr.read(), "")
        wait_for("the session ends", lambda: not is_running(session))

    def test_a_session_that_dies_loses_its_leases(self) -> None:
        program = self.program(
            """
            try:
                with fencepost.run("nightly", ttl="1m") as run:
                    print("working", flush=True)
                    print(run.lost.wait(20), run.lost.reason, flush=True)
                    try:
                        run.publish_file("out.txt", "")
                    except fencepost.LeaseLost as error:
                        print("LeaseLost", flush=True)
            except fencepost.LeaseLost as error:
                print("LeaseLost", error.code, flush=True)
            with fencepost.run("other") as run:
                print(bool(run), flush=True)
            """
        )
        program.says("working")
        os.kill(program.session(), signal.SIGKILL)
        for line in ("True session_ended", "LeaseLost", "LeaseLost 12", "True"):
            program.says(line)

    def test_a_session_that_dies_fails_the_calls_that_wait(self) -> None:
        with fencepost.run("nightly", ttl="1m"):
            program = self.program(
                """
                print("waiting", flush=True)
                try:
                    with fencepost.run("nightly", wait="10m"):
                        pass
                except fencepost.StoreError as error:
                    print(error.reason, flush=True)
                """
            )
            program.says("waiting")
            wait_for("the session is there", lambda: _has_session(program))
            time.sleep(0.3)
            os.kill(program.session(), signal.SIGKILL)
            program.says("session_ended")

    def test_a_session_that_no_longer_answers_is_ended(self) -> None:
        program = self.program(
            """
            from fencepost import _session
            _session.TICK_SECONDS, _session.SILENT_TICKS = 0.1, 5
            try:
                with fencepost.run("nightly", ttl="1500ms") as run:
                    print("working", flush=True)
                    print(run.lost.wait(20), run.lost.reason, flush=True)
            except fencepost.StoreError as error:
                print(error.reason, flush=True)
            """
        )
        program.says("working")
        session = program.session()
        os.kill(session, signal.SIGSTOP)
        program.says("True session_silent")
        program.says("session_ended")
        self.assertFalse(is_running(session))


class Programs(Case):
    def test_a_busy_loop_keeps_its_lease(self) -> None:
        program = self.program(
            """
            with fencepost.run("nightly", ttl="1s") as run:
                begun, total = time.monotonic(), 0
                while time.monotonic() - begun < 3:
                    total += sum(number * number for number in range(10_000))
                print(bool(run.lost), flush=True)
                run.publish_file("out.txt", "done")
            print(run.result.status, flush=True)
            """
        )
        program.says("False")
        program.says("ok")

    def test_ctrl_c_ends_the_block_and_is_recorded(self) -> None:
        program = self.program(HOLDS, "1m", start_new_session=True)
        program.says("True")
        os.killpg(program.pid, signal.SIGINT)
        self.assertEqual(program.wait(20), -signal.SIGINT)
        newest = self.runs("nightly")[0]
        self.assertEqual((newest["status"], newest["note"]), ("error", "KeyboardInterrupt"))

    def test_ctrl_c_gives_up_a_claim_that_waits(self) -> None:
        with fencepost.run("nightly", ttl="1m"):
            program = self.program(
                """
                try:
                    print("waiting", flush=True)
                    with fencepost.run("nightly", wait="10m"):
                        pass
                except KeyboardInterrupt:
                    print("given up", flush=True)
                sys.stdin.readline()
                """
            )
            program.says("waiting")
            wait_for("the session is there", lambda: _has_session(program))
            time.sleep(0.5)
            program.send_signal(signal.SIGINT)
            program.says("given up")
            time.sleep(0.5)
        # The program lives on, and its claim does not: the lease is free at once, and no attempt is recorded.
        with fencepost.run("nightly") as run:
            self.assertTrue(run)
        self.assertEqual([run["status"] for run in self.runs("nightly")], ["ok", "ok"])
        program.tell()
        self.assertEqual(program.wait(20), 0)

    def test_sys_exit_in_the_block_is_its_outcome(self) -> None:
        for code, status in ((0, "ok"), (3, "error")):
            program = self.program(f"with fencepost.run('nightly'):\n    sys.exit({code})")
            self.assertEqual(program.wait(20), code)
            self.assertEqual(self.runs("nightly")[0]["status"], status)

    def test_a_fork_has_no_part_in_the_lease(self) -> None:
        program = self.program(
            """
            with fencepost.run("nightly", ttl="1m") as run:
                child = os.fork()
                if child == 0:
                    try:
                        run.publish_file("out.txt", "")
                    except fencepost.UsageError:
                        print("UsageError", flush=True)
                    with fencepost.run("other") as other:
                        print(bool(other), flush=True)
                else:
                    os.waitpid(child, 0)
                    run.publish_file("out.txt", "parent")
            if child == 0:
                sys.exit(0)
            print(run.result.status, flush=True)
            """
        )
        for line in ("UsageError", "True", "ok"):
            program.says(line)
        self.assertEqual(program.wait(20), 0)
        self.assertEqual(len(self.runs("nightly")), 1)

    def test_a_forked_child_does_not_keep_the_session_of_a_killed_parent(self) -> None:
        program = self.program(
            """
            with fencepost.run("nightly", ttl="1m") as run:
                child = os.fork()
                if child == 0:
                    time.sleep(600)
                print(child, flush=True)
                time.sleep(600)
            """
        )
        child = int(program.reads())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        session = program.session()
        program.kill()
        wait_for("the session ends", lambda: not is_running(session))
        self.assertTrue(is_running(child))

    def test_a_program_that_is_asked_to_stop_may_end_in_time(self) -> None:
        with self.assertRaises(fencepost.Error) as caught, fencepost.run("nightly", ttl="3s", timeout="200ms") as run:
            self.assertTrue(run.stop.wait(20))
            self.assertEqual((run.stop.reason, bool(run.lost)), ("timeout", False))
            run.publish_file("out.txt", "half of it")
        self.assertEqual(caught.exception.reason, "timeout")
        self.assertEqual(run.result.status, "timeout")


def _has_session(program: "subprocess.Popen[str]") -> bool:
    try:
        program.session()  # type: ignore[attr-defined]
    except (AssertionError, OSError):
        return False
    return True
