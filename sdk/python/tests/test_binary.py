"""Which program is used, and what is said if none can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fencepost
from fencepost import _binary
from tests.support import BINARY, ROOT, Case


class Search(Case):
    def script(self, name: str, text: str) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def test_the_variable_then_the_package_then_the_path(self) -> None:
        package = self.place / "site/fencepost"
        shutil.copytree(Path(_binary.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        contained, found = self.script("site/fencepost/bin/fencepost", ""), self.script("path/fencepost", "")
        environment = {**os.environ, "PYTHONPATH": str(self.place / "site"), "PATH": f"{found.parent}:{os.environ['PATH']}"}

        def search() -> str:
            program = [sys.executable, "-c", "import fencepost; print(fencepost.binary_path())"]
            return subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout.strip()

        self.assertEqual(search(), str(BINARY))
        del environment["FENCEPOST_BIN"]
        self.assertEqual(search(), str(contained))
        contained.unlink()
        self.assertEqual(search(), str(found))

    def test_the_error_lists_the_places(self) -> None:
        self.set_variables(FENCEPOST_BIN=None, PATH="/nowhere")
        with self.assertRaises(fencepost.NotFound) as caught:
            fencepost.binary_path()
        for place in ("FENCEPOST_BIN: none", "this package: none", "PATH: none", "Linux x86_64"):
            self.assertIn(place, str(caught.exception))
        self.assertIsInstance(caught.exception, FileNotFoundError)

    def test_a_program_that_speaks_another_version_is_refused(self) -> None:
        hello = '{"v":2,"id":1,"answer":"hello","version":"9.9.9","protocol":2}'
        answers = {
            "speaks version 2": f"read line; echo '{hello}'; cat >/dev/null",
            "no such verb": "echo no such verb >&2; exit 2",
            "cannot be executed": "",
        }
        for number, (why, text) in enumerate(answers.items()):
            path = self.script(f"fencepost{number}", f"case $1 in --version) echo fencepost 9.9.{number};; *) {text};; esac")
            path.chmod(0o755 if text else 0o644)
            self.set_variables(FENCEPOST_BIN=str(path))
            with self.subTest(why), self.assertRaises(fencepost.ProgramError) as caught, fencepost.run("nightly"):
                self.fail("the block must not run")
            said = str(caught.exception)
            self.assertIn(why, said)
            self.assertNotRegex(said, r"\.\.|lease")
            for part in (str(path), f"fencepost {fencepost.__version__}", "version 1 of the session protocol", "FENCEPOST_BIN:"):
                self.assertIn(part, said)
            if text:
                self.assertIn(f"fencepost 9.9.{number}", said)


class Package(Case):
    """The wheel with the program, in a clean environment."""

    def test_it_is_built_installed_and_used(self) -> None:
        program = self.place / "program"
        shutil.copy(BINARY, program)
        subprocess.run(["strip", str(program)], check=False)
        build = (
            "import sys; sys.path.insert(0, sys.argv[1]); import fencepost_wheel; print(fencepost_wheel.build_wheel(sys.argv[2]))"
        )
        environment = {
            **os.environ,
            "FENCEPOST_WHEEL_BINARY": str(program),
            "FENCEPOST_WHEEL_TARGET": "x86_64-unknown-linux-musl",
        }
        command = [sys.executable, "-c", build, str(ROOT / "sdk/python"), str(self.place)]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], check=True)
        python = str(self.place / "venv/bin/python")
        install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", made.stdout.strip()]
        subprocess.run(install, check=True)
        text = """
import fencepost, fencepost.aio, pathlib
with fencepost.run("nightly") as run:
    run.publish_file("out.txt", "by the package")
print(run.result.status, pathlib.Path(fencepost.binary_path()).parent.parent.name)
"""
        clean = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place),
            "FENCEPOST_STATE_DIR": os.environ["FENCEPOST_STATE_DIR"],
            "FENCEPOST_CONFIG": "",
        }
        said = subprocess.run([python, "-c", text], env=clean, capture_output=True, text=True, check=False)
        self.assertEqual((said.stdout, said.stderr), ("ok fencepost\n", ""))
        self.assertEqual(Path("out.txt").read_text(), "by the package")
