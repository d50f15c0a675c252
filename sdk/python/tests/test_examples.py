"""The examples, as a reader would run them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Optional

from tests.support import BINARY, ROOT, Case, Program, redis_store, wait_for

EXAMPLES = ROOT / "examples"


class Examples(Case):
    def store_url(self) -> Optional[str]:
        return redis_store()

    def setUp(self) -> None:
        super().setUp()
        os.mkdir("bin")
        os.symlink(BINARY, "bin/fencepost")
        self.set_variables(PATH=f"{self.place}/bin:{os.environ['PATH']}")

    def example(self, name: str, *words: str, machine: str = "a") -> Program:
        """Starts an example on one of two machines: each has a state directory of its own."""
        state = self.place / f"state-{machine}"
        state.mkdir(mode=0o700, exist_ok=True)
        interpreter = [sys.executable] if name.endswith(".py") else []
        environment = {**os.environ, "FENCEPOST_STATE_DIR": str(state)}
        program = Program([*interpreter, str(EXAMPLES / name), *words], env=environment, start_new_session=True)
        self.addCleanup(program.end)
        return program

    def test_bounded_catch_up(self) -> None:
        def hours() -> int:
            return len(list(Path("hours").glob("*.json")))

        os.mkdir("hours")
        # A new job waits for its next slot, at most for a moment.
        first = self.example("bounded-catch-up.py", "hours", "every 1s").communicate()[0]
        time.sleep(8)
        said = self.example("bounded-catch-up.py", "hours", "every 1s").communicate()[0]
        self.assertEqual((first + said).count(" done "), hours(), said)
        # Eight slots have passed. The newest three count: the last of them may still be on time, and on a busy machine
        # further ones pass meanwhile.
        self.assertIn(said.count("catch_up"), (2, 3, 4, 5), said)
        self.assertIn("missed", [run["status"] for run in self.runs("rollup")])

    def test_two_machines_in_python(self) -> None:
        self.race("two-machines.py")

    def test_two_machines_in_bash(self) -> None:
        self.race("two-machines.sh")

    def test_a_machine_that_stalls_in_python(self) -> None:
        late = self.stall("two-machines.py")
        self.assertRegex(late.reads(), "^too late: ")
        self.assertEqual(late.returncode, 1)

    def test_a_machine_that_stalls_in_bash(self) -> None:
        self.assertNotEqual(self.stall("two-machines.sh").returncode, 0)

    def race(self, name: str) -> None:
        """Both start at once: one writes."""
        both = [self.example(name, "first.txt", "0.5", machine=machine) for machine in "ab"]
        said = [program.communicate()[0] for program in both]
        self.assertEqual(sum("working" in lines for lines in said), 1, said)
        self.assertEqual([program.returncode for program in both], [0, 0])
        self.assertIn("Written", Path("first.txt").read_text())

    def stall(self, name: str) -> Program:
        """One stalls with everything that it started, and the other takes over. Returns the one that wakes up."""
        late = self.example(name, "second.txt", "1", "2s")
        late.says("working")
        _signal_all(late.pid, signal.SIGSTOP)

        def is_taken_over() -> bool:
            return "working" in self.example(name, "second.txt", "0", "2s", machine="b").communicate()[0]

        wait_for("the other machine gets the slot", is_taken_over)
        written = Path("second.txt").read_text()
        _signal_all(late.pid, signal.SIGCONT)
        late.wait(20)
        self.assertEqual(Path("second.txt").read_text(), written)
        self.assertIn("Written", written)
        return late


def _signal_all(session: int, number: signal.Signals) -> None:
    """Signals every process of a session of processes: the keeper has a group of its own."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            os.kill(int(place.name), number)
