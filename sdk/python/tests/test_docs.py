"""The programs of docs/sdk/python.md and of the package's README."""

from __future__ import annotations

import re
import subprocess
import sys
import unittest
from typing import List, Tuple

from tests.support import ROOT, SOURCES, Case

PAGES = ("docs/sdk/python.md", "sdk/python/README.md")


def blocks(page: str) -> List[Tuple[str, str]]:
    """The blocks of Python of a page: what follows the language, and the text."""
    return re.findall(r"^```python *([^\n]*)\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


class Pages(Case):
    def test_every_program_works_as_written(self) -> None:
        for page in PAGES:
            programs = [(info, text) for info, text in blocks(page) if "no-test" not in info]
            self.assertGreater(len(programs), 0, page)
            for info, text in programs:
                with self.subTest(f"{page}: {info}"):
                    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
                    self.assertEqual((said.returncode, said.stderr), (0, ""))


class Reasons(unittest.TestCase):
    def test_every_word_of_the_package_is_on_the_page_and_no_other(self) -> None:
        page = (ROOT / "docs/reference/reasons.md").read_text()
        section = page.split("\n## Words of the packages\n")[1].split("\n## ")[0]
        own = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
        sources = "".join(path.read_text() for path in sorted((SOURCES / "fencepost").glob("*.py")))
        used = set(re.findall(r'(?:reason(?:: \w+)? ?= ?|fire\()"(\w+)"', sources))
        self.assertIn("already_applied", used)
        self.assertLessEqual(used, own | set(re.findall(r"^### `(\w+)`$", page, re.MULTILINE)))
        # A request to stop has the reason of the session's event.
        self.assertEqual(own - used, {"replaced"})
