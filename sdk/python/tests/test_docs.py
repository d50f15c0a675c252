"""The programs of docs/sdk/python.md and of the package's README."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import List, Tuple

from tests.support import ROOT, Case

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
