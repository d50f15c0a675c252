"""Runs all tests, or the named ones, and prints how many passed: python -m tests [NAME...]"""

from __future__ import annotations

import sys
import time
import unittest
from typing import Any

SLOW_SECONDS = 2.0


class Counted(unittest.TextTestResult):
    """Counts what passed, and names what is slow."""

    passed = 0
    _begun = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        self._begun = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.passed += 1
        super().addSuccess(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        took = time.monotonic() - self._begun
        if took > SLOW_SECONDS:
            self.stream.write(f" [{test.id()}: {took:.1f} s] ")
        super().stopTest(test)


def main(names: Any) -> int:
    loader = unittest.defaultTestLoader
    suite = (
        loader.loadTestsFromNames([f"tests.{name}" for name in names]) if names else loader.discover("tests", top_level_dir=".")
    )
    result = unittest.TextTestRunner(resultclass=Counted, warnings="ignore").run(suite)  # type: ignore[arg-type]
    assert isinstance(result, Counted)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"{result.passed} passed, {failed} failed")
    return 1 if failed or not result.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
