"""Type checker and linters."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

from tests.support import ROOT


class Style(unittest.TestCase):
    def call(self, name: str, *words: str) -> None:
        """Calls a program of the tests' own environment."""
        command = [str(Path(sys.executable).parent / name), *words]
        here = ROOT / "sdk/python"
        said = subprocess.run(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stdout)

    def test_mypy(self) -> None:
        self.call("mypy", "--strict", "--cache-dir", str(ROOT / "target/sdk-python/mypy"))

    def test_ruff(self) -> None:
        sources = ["src", "tests", "fencepost_wheel.py", "../../examples"]
        self.call("ruff", "check", "--no-cache", *sources)
        self.call("ruff", "format", "--no-cache", "--check", *sources)

    def test_python_3_9_can_run_the_package(self) -> None:
        self.call("vermin", "--quiet", "--no-tips", "--eval-annotations", "--violations", "-t=3.9-", "src")
