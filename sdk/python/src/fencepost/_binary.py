"""Finds the program."""

import os
import platform
import shutil
from typing import Optional

SUPPORTED = ("Linux x86_64", "Linux arm64", "macOS x86_64", "macOS arm64")


class NotFound(FileNotFoundError):
    """There is no program for this platform."""


def _named() -> Optional[str]:
    return os.environ.get("FENCEPOST_BIN") or None


def _contained() -> Optional[str]:
    """The program inside this package. A package for no platform has none."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "fencepost")
    return path if os.path.exists(path) else None


def _missing(where: str) -> NotFound:
    return NotFound(
        f"fencepost: no program for {platform.system()} {platform.machine()} {where}. "
        f"Supported: {', '.join(SUPPORTED)}. "
        "On another platform build it from source and name it by FENCEPOST_BIN."
    )


def own_path() -> str:
    """The program that the command `fencepost` of this package runs. Not from PATH: that may be the command itself."""
    found = _named() or _contained()
    if found is None:
        raise _missing("in this package")
    return found


def binary_path() -> str:
    """The path of the program: FENCEPOST_BIN, the one in this package, or the one on PATH."""
    found = _named() or _contained() or shutil.which("fencepost")
    if found is None:
        raise _missing("in this package or on PATH")
    return found
