"""Finds the program."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from typing import Optional

from fencepost._errors import NotFound, ProgramError
from fencepost._version import __version__

SUPPORTED = ("Linux x86_64", "Linux arm64", "macOS x86_64", "macOS arm64")

# The version of the protocol of `fencepost session` that this package speaks.
PROTOCOL = 1


def _named() -> Optional[str]:
    return os.environ.get("FENCEPOST_BIN") or None


def _contained() -> Optional[str]:
    """The program inside this package. A package for no platform has none."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "fencepost")
    return path if os.path.exists(path) else None


def _on_path() -> Optional[str]:
    return shutil.which("fencepost")


def _missing(where: str) -> NotFound:
    return NotFound(
        f"fencepost: no program for {platform.system()} {platform.machine()} {where}. Supported: {', '.join(SUPPORTED)}.",
        next_step="On another platform build it from source and name it by FENCEPOST_BIN.",
    )


def own_path() -> str:
    """The program that the command `fencepost` of this package runs. Not from PATH: that may be the command itself."""
    found = _named() or _contained()
    if found is None:
        raise _missing("in this package")
    return found


def binary_path() -> str:
    """The path of the program: FENCEPOST_BIN, the one in this package, or the one on PATH."""
    found = _named() or _contained() or _on_path()
    if found is None:
        raise _missing(f"found. Searched: {_places()}")
    return found


def unfit(path: str, why: str) -> ProgramError:
    """The error about a program that was found and cannot serve this package."""
    return ProgramError(
        f"fencepost: {path} ({_version(path)}) cannot serve the package fencepost {__version__}, which speaks version "
        f"{PROTOCOL} of the session protocol: {why}. Searched: {_places()}.",
        next_step="Install a program and a package of the same version, or name another program by FENCEPOST_BIN.",
    )


def _places() -> str:
    places = (("FENCEPOST_BIN", _named()), ("this package", _contained()), ("PATH", _on_path()))
    return "; ".join(f"{name}: {found or 'none'}" for name, found in places)


def _version(path: str) -> str:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its version is not known: {error}"
    lines = said.stdout.decode(errors="replace").splitlines()
    return lines[0][:100] if lines else "it names no version"
